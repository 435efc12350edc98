"""Many callers: a text is the same alone and under load; permits, queue, shared weights."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import CapacityError, RequestError, SamplingParams
from oxibonsai.engine import Engine, EnginePool

DRAWN = SamplingParams(temperature=1, top_k=0, top_p=1, max_tokens=30, ignore_eos=True)
RANDOM = np.random.default_rng(6)
PROMPTS = [[int(i) for i in RANDOM.integers(0, 256, RANDOM.integers(1, 200))] for _ in range(24)]


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_answer_is_the_one_it_would_be_alone(tiny_path: Path, replicas: int) -> None:
    alone = oxibonsai.load(tiny_path, threads=1)
    pool = EnginePool.from_pretrained(tiny_path, replicas=replicas, parallel=6, threads=2)

    def ask(i: int) -> list[int]:
        with pool.permit() as engine:
            return list(engine.generate_tokens(PROMPTS[i], replace(DRAWN, seed=i)))

    try:
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(ask, range(len(PROMPTS))))
    finally:
        pool.close()
    for i, answer in enumerate(answers):
        assert answer == list(alone.generate_tokens(PROMPTS[i], replace(DRAWN, seed=i)))
    assert all(e.cache.used_bytes == 0 for e in pool.engines)


def test_permits_bound_what_runs_and_the_queue_what_waits(tiny_path: Path) -> None:
    pool = EnginePool.from_pretrained(tiny_path, parallel=2, queue=1)
    release = threading.Event()
    entered = threading.Semaphore(0)

    def hold() -> None:
        with pool.permit():
            entered.release()
            release.wait()

    threads = [threading.Thread(target=hold) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(2):
        entered.acquire()
    while pool.waiting < 1:
        pass
    assert (pool.running, pool.waiting, pool.permits) == (2, 1, 2)
    with pytest.raises(CapacityError, match="2 requests run and 1 wait"), pool.permit():
        pass
    release.set()
    for t in threads:
        t.join()
    assert (pool.running, pool.waiting) == (0, 0)
    pool.close()


def test_waiting_can_be_bounded_in_time(tiny_path: Path) -> None:
    pool = EnginePool.from_pretrained(tiny_path, parallel=1)
    with (
        pool.permit(),
        pytest.raises(CapacityError, match="no engine was free in time"),
        pool.permit(timeout=0.01),
    ):
        pass
    with pool.permit(timeout=0.01) as engine:
        assert isinstance(engine, Engine)
    pool.close()
    with pytest.raises(CapacityError, match="closed"), pool.permit():
        pass


def test_closing_ends_what_runs(tiny_path: Path) -> None:
    pool = EnginePool.from_pretrained(tiny_path, parallel=1)
    (engine,) = pool.engines
    sequence = engine.submit(PROMPTS[0], replace(DRAWN, max_tokens=None))
    while sequence.num_generated == 0:
        sequence.changed.wait()
    pool.close()
    assert sequence.finish_reason in ("cancelled", "length")
    assert engine.cache.used_bytes == 0


def test_a_step_that_fails_is_known_and_ends_what_waits(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = EnginePool.from_pretrained(tiny_path)
    (engine,) = pool.engines

    def fail(*_: object, **__: object) -> None:
        raise CapacityError("out of memory")

    monkeypatch.setattr(engine.model, "run", fail)
    sequence = engine.submit(PROMPTS[0], DRAWN)
    while not sequence.finished:
        sequence.changed.wait()
    assert sequence.finish_reason == "cancelled"
    while pool.failure is None:
        time.sleep(0.01)
    with pytest.raises(CapacityError, match="an engine has stopped"), pool.permit():
        pass
    pool.close()
    assert isinstance(pool.failure, CapacityError)


def test_who_waits_for_an_engine_that_stops_is_told_so(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    pool = EnginePool.from_pretrained(tiny_path, parallel=1, on_failure=failed.set)
    (engine,) = pool.engines
    running = pool.queue_up()
    assert running.wait(0) is engine

    def wait() -> str:
        with pytest.raises(CapacityError) as error, pool.permit():
            pass
        return str(error.value)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        while pool.waiting == 0:
            time.sleep(0.01)
        monkeypatch.setattr(engine.model, "run", lambda *_: 1 / 0)
        engine.submit(PROMPTS[0], DRAWN)
        assert "an engine has stopped" in waiting.result(20)
    assert failed.wait(20)
    running.leave()
    assert (pool.running, pool.waiting) == (0, 0)
    with pytest.raises(CapacityError, match="an engine has stopped"):
        pool.queue_up()
    assert pool.waiting == 0
    pool.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"replicas": 0}, "replicas is 0"), ({"parallel": 0}, "parallel is 0"), ({"queue": -1}, "-1")],
)
def test_numbers_out_of_range_are_named(tiny_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        EnginePool.from_pretrained(tiny_path, **arguments)


_RESIDENT = """
import sys
from pathlib import Path
from oxibonsai.engine import EnginePool
pool = EnginePool.from_pretrained(sys.argv[1], replicas=int(sys.argv[2]), parity="off", ctx_size=128)
for engine in pool.engines:
    list(engine.generate_tokens([1, 2, 3], __import__("oxibonsai").SamplingParams(max_tokens=2)))
pool.close()
pages = int(Path("/proc/self/statm").read_text().split()[1])
print(pages * 4096)
"""


@pytest.mark.slow
def test_more_engines_add_caches_and_activations_and_no_weights(smollm2_path: Path) -> None:
    def resident(replicas: int) -> int:
        command = [sys.executable, "-c", _RESIDENT, str(smollm2_path), str(replicas)]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)

    one, four = resident(1), resident(4)
    weights = smollm2_path.stat().st_size
    assert one > weights
    assert four - one < weights // 4  # three more copies would be three times the weights
