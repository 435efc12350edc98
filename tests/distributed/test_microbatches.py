"""Stages work on steps of several engines, or on pieces of a prompt, at the same time.

Two ranks are threads that hand each other what processes send. Nothing is timed: the last stage holds
its results back until rank 0 has begun the next step, which it never would if it waited for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import numpy as np
import pytest

import oxibonsai
from oxibonsai import Engine, SamplingParams
from oxibonsai.distributed import Group, Layout, RankPlan, follow
from oxibonsai.distributed.group import Floats, Words
from oxibonsai.engine.loading import replicate
from oxibonsai.loading import open_model
from oxibonsai.models import load_model

PATIENCE = 60.0  # seconds
SAMPLING = SamplingParams(temperature=0.9, seed=4, max_tokens=12, ignore_eos=True)
PROMPTS = ([5, 9, 2], [7] * 6)


class Wire:
    """From one rank to the other: what comes goes to who asks, in the order of asking."""

    def __init__(self) -> None:
        self._sent: list[Floats] = []
        self._asked = 0
        self._changed = threading.Condition()

    def put(self, values: Floats) -> None:
        with self._changed:
            self._sent.append(values.copy())
            self._changed.notify_all()

    def ask(self) -> Callable[[], Floats]:
        number, self._asked = self._asked, self._asked + 1

        def get() -> Floats:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self._sent) > number, PATIENCE)
                return self._sent[number]

        return get


class Wires:
    """What is on its way between two ranks, and what rank 0 has sent and received, in order.

    Args:
        held: The last stage sends its first result when rank 0 has sent so many messages of rows.
    """

    def __init__(self, held: int) -> None:
        self.rows = [Wire(), Wire()]  # by their sender
        self.plans: Queue[Words] = Queue()
        self.barrier = threading.Barrier(2, timeout=PATIENCE)
        self.gathered = [b"", b""]  # by rank
        self.log: list[str] = []
        self.held = held
        self.enough = threading.Event()


class ThreadGroup(Group):
    """One of the two ranks."""

    def __init__(self, rank: int, wires: Wires) -> None:
        super().__init__(Layout(1, 2, rank), PATIENCE, None, None, None)
        self._wires = wires

    def send(self, values: Floats, to: int) -> None:
        w = self._wires
        if self.rank == 0:
            w.log.append("rows")
            if w.log.count("rows") == w.held:
                w.enough.set()
        else:
            assert w.enough.wait(PATIENCE), "rank 0 waits for the first step's results"
        w.rows[self.rank].put(values)

    def receive_later(self, values: Floats, source: int) -> Callable[[], None]:
        get = self._wires.rows[source].ask()

        def wait() -> None:
            values[:] = get()
            if self.rank == 0:
                self._wires.log.append("results")

        return wait

    def send_plan(self, words: Words) -> None:
        assert words.dtype == np.int32
        self._wires.plans.put(words.copy())

    def receive_plan(self) -> Words:
        return self._wires.plans.get(timeout=PATIENCE)

    def all_gather_bytes(self, own: bytes) -> list[bytes]:
        self._wires.gathered[self.rank] = own
        self._wires.barrier.wait()
        everything = list(self._wires.gathered)
        self._wires.barrier.wait()
        return everything

    def meet(self, *, late: bool = False) -> None:
        self._wires.barrier.wait()


@contextmanager
def two_stages(path: Path, held: int) -> Iterator[tuple[Engine, list[str]]]:
    """An engine whose second stage is a thread, and the order of rank 0's messages."""
    wires = Wires(held)

    def second() -> None:
        group = ThreadGroup(1, wires)
        follow(group, load_model(open_model(path), RankPlan(group, 1)))

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(second)
        plan = RankPlan(ThreadGroup(0, wires), 1)
        engine = oxibonsai.load(
            path, device=plan, ctx_size=256, parallel=2, parity="off", mmproj=False
        )
        try:
            yield engine, wires.log
        finally:
            wires.enough.set()
            plan.leader.stop()
            done.result()


def generate(engine: Engine, prompt: list[int]) -> list[int]:
    return list(engine.generate_tokens(prompt, SAMPLING))


@pytest.fixture
def expected(tiny_path: Path) -> list[list[int]]:
    engine = oxibonsai.load(tiny_path, ctx_size=256, parity="off")
    return [generate(engine, p) for p in PROMPTS]


def test_rank_0_begins_a_step_of_another_engine_before_it_has_the_results(
    tiny_path: Path, expected: list[list[int]]
) -> None:
    with two_stages(tiny_path, held=2) as (engine, log), ThreadPoolExecutor(2) as threads:
        assert list(threads.map(generate, replicate(engine, 2), PROMPTS)) == expected
    assert log[:3] == ["rows", "rows", "results"]
    assert log.count("rows") == log.count("results")


def test_one_engine_has_one_step_on_its_way(tiny_path: Path, expected: list[list[int]]) -> None:
    with two_stages(tiny_path, held=1) as (engine, log):
        assert [generate(engine, p) for p in PROMPTS] == expected
    assert log == ["rows", "results"] * sum(map(len, expected))


def test_a_prompt_goes_through_the_stages_in_pieces(tiny_path: Path) -> None:
    alone = oxibonsai.load(tiny_path, ctx_size=256, parity="off")
    with two_stages(tiny_path, held=2) as (engine, log):
        ids = [3 + i % 20 for i in range(150)]
        assert generate(engine, ids) == generate(alone, ids)
    assert log[:3] == ["rows", "rows", "results"]
