"""Tenants share an engine: permits, queue, steps, pages; and keep their prefixes apart."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import CapacityError, SamplingParams
from oxibonsai.engine import Engine, EnginePool, EngineRequest, Options, Sequence
from oxibonsai.engine.scheduler import Chunk, ServiceCounts, schedule

A, B, C = Options(tenant="a"), Options(tenant="b"), Options(tenant="c")
LONG = SamplingParams(temperature=1, top_k=0, top_p=1, seed=1, max_tokens=150, ignore_eos=True)
SHORT = replace(LONG, max_tokens=2)
IDS = [int(i) for i in np.random.default_rng(4).integers(0, 256, 200)]


@pytest.fixture
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path, threads=1)


@pytest.fixture
def pool(tiny_path: Path) -> EnginePool:
    return EnginePool.from_pretrained(tiny_path, threads=1, parallel=4, queue=8)


def enter(pool: EnginePool, tenant: str) -> EngineRequest:
    """A request that would run as soon as it may."""
    place = pool.queue_up(tenant)
    place.attach([pool.engines[0].make_sequence([1], SHORT, Options(tenant=tenant))])
    return place


def running(places: list[EngineRequest]) -> list[bool]:
    return [p.engine is not None and not p.paused for p in places]


# Permits


def test_one_tenant_has_all_permits_while_nobody_else_comes(pool: EnginePool) -> None:
    places = [enter(pool, "a") for _ in range(6)]
    assert running(places) == [True] * 4 + [False] * 2
    places[1].leave()
    assert running(places[4:]) == [True, False]
    pool.close()


def test_who_comes_gets_the_permit_of_the_newest_request_of_who_has_most(pool: EnginePool) -> None:
    of_a = [enter(pool, "a") for _ in range(10)]
    of_b = enter(pool, "b")
    assert running([of_b]) == [True]
    assert running(of_a) == [True] * 3 + [False] * 7
    assert of_a[3].paused
    assert all(s.paused for s in of_a[3].sequences)
    assert (pool.running, pool.waiting) == (4, 7)
    more = [enter(pool, "b") for _ in range(3)]
    assert running(more) == [True, False, False]  # two each
    others = [enter(pool, t) for t in "cde"]
    assert running(others) == [True, True, False]  # one each, and for the fifth there is none
    assert running([*of_a, of_b, *more]).count(True) == 2
    pool.close()


def test_what_was_paused_goes_on_before_what_came_later(pool: EnginePool) -> None:
    of_a = [enter(pool, "a") for _ in range(6)]
    of_b = [enter(pool, "b") for _ in range(2)]
    assert running(of_a) == [True, True, False, False, False, False]
    of_b[0].leave()
    assert running(of_a) == [True, True, True, False, False, False]
    of_b[1].leave()
    assert running(of_a) == [True, True, True, True, False, False]
    assert not any(s.paused for p in of_a for s in p.sequences)
    pool.close()


def test_a_free_permit_goes_to_who_holds_fewest_and_then_in_turn(pool: EnginePool) -> None:
    places = {t: [enter(pool, t) for _ in range(3)] for t in "abcd"}
    held = {t: sum(running(of)) for t, of in places.items()}
    assert held == {"a": 1, "b": 1, "c": 1, "d": 1}
    for tenant in "abcd":
        places[tenant][0].leave()  # those that hold none come next, the longest unserved first
        assert {t: sum(running(of)) for t, of in places.items()} == held
    pool.close()


def test_a_request_that_is_about_to_begin_is_not_paused(pool: EnginePool) -> None:
    of_a = [pool.queue_up("a") for _ in range(4)]
    of_b = pool.queue_up("b")
    assert running([of_b]) == [False]
    of_a[0].attach([pool.engines[0].make_sequence([1], SHORT, A)])
    assert running([*of_a, of_b]) == [False, True, True, True, True]
    pool.close()


def test_a_paused_request_can_leave(pool: EnginePool) -> None:
    of_a = [enter(pool, "a") for _ in range(4)]
    of_b = enter(pool, "b")
    of_a[3].leave()
    of_a[3].leave()
    assert (pool.running, pool.waiting) == (4, 0)
    of_b.leave()
    assert (pool.running, pool.waiting) == (3, 0)
    pool.close()


def test_engines_share_their_permits_out_together(tiny_path: Path) -> None:
    pool = EnginePool.from_pretrained(tiny_path, threads=2, replicas=2, parallel=1)
    of_a = [enter(pool, "a") for _ in range(3)]
    of_b = enter(pool, "b")
    assert running([*of_a, of_b]) == [True, False, False, True]
    first, paused = of_a[0].engine, of_a[1].engine
    assert of_b.engine is paused is not first
    of_a[0].leave()
    # What was paused goes on where it was; meanwhile another takes the free engine.
    assert running([*of_a[1:], of_b]) == [False, True, True]
    of_b.leave()
    assert running(of_a[1:]) == [True, True]
    pool.close()


# The queue


def test_a_full_queue_has_room_for_who_has_less_than_a_share_of_it(pool: EnginePool) -> None:
    of_a = [enter(pool, "a") for _ in range(4 + 8)]
    with pytest.raises(CapacityError, match="4 requests run and 8 wait"):
        pool.queue_up("a")
    of_b = [enter(pool, "b") for _ in range(2 + 4)]
    assert sum(running(of_b)) == 2
    for tenant in "ab":
        with pytest.raises(CapacityError, match="try again later"):
            pool.queue_up(tenant)
    of_c = [enter(pool, "c") for _ in range(1 + 2)]  # one runs, a third of the queue waits
    assert sum(running(of_c)) == 1
    with pytest.raises(CapacityError, match="try again later"):
        pool.queue_up("c")
    for place in (*of_a, *of_b):
        place.leave()
    pool.close()


def test_without_a_queue_nobody_waits(tiny_path: Path) -> None:
    pool = EnginePool.from_pretrained(tiny_path, threads=1, parallel=2, queue=0)
    of_a = [enter(pool, "a") for _ in range(2)]
    assert running([*of_a, enter(pool, "b")]) == [True, False, True]
    for tenant in "abc":
        with pytest.raises(CapacityError):
            pool.queue_up(tenant)
    pool.close()


# Steps


@pytest.mark.parametrize("prompt", [IDS[:40], IDS])
def test_a_first_token_comes_within_twice_its_work_alone_though_another_fills_everything(
    tiny_path: Path, prompt: list[int]
) -> None:
    pool = EnginePool.from_pretrained(
        tiny_path, threads=1, parallel=4, queue=80, prefix_cache=False
    )
    (engine,) = pool.engines
    # Rows until the first token of B, after each step.
    rows: list[int] = []
    sequence: list[Sequence] = []
    done = threading.Event()

    def watch() -> None:
        if sequence and sequence[0].num_generated > 0 and not rows:
            rows.append(engine.counts.rows)
            done.set()

    pool.after_steps(watch)

    def first_token() -> int:
        done.clear()
        rows.clear()
        with engine.lock:  # between two steps
            before = engine.counts.rows
            place = pool.queue_up("b")
            assert place.engine is engine
            sequence[:] = [engine.submit(prompt, SHORT, B)]
            place.attach(sequence[:])
        assert done.wait(60)
        engine.cancel(sequence[0])
        place.leave()
        return rows[0] - before

    alone = first_token()
    assert alone == len(prompt)
    texts: list[Sequence] = []
    forever = replace(LONG, max_tokens=None)
    waiting = []
    for i in range(84):
        place = pool.queue_up("a")
        if place.engine is None:
            waiting.append(place)
            continue
        texts.append(engine.submit([i, *IDS[:20]], forever, A))
        place.attach([texts[-1]])
    assert len(waiting) == 80
    while any(t.num_generated < 5 for t in texts):
        texts[0].changed.wait(1)
    found = first_token()
    for t in texts:
        engine.cancel(t)
    pool.close()
    assert found <= 2 * alone


def test_a_paused_text_goes_on_as_if_nothing_had_happened(engine: Engine) -> None:
    expected = list(engine.generate_tokens(IDS, LONG))
    text = engine.submit(IDS, LONG, Options(tenant="a", cache_salt="new"))
    for count in (3, 20, 70):
        while text.num_generated < count:
            engine.step()
        text.paused = True
        assert engine.step() == []
        assert engine.cache.used_bytes == 0
        assert not engine.has_work
        text.paused = False
        assert engine.has_work
    while not text.finished:
        engine.step()
    assert text.generated == expected
    assert engine.counts.preemptions == 3


def test_a_paused_text_can_be_cancelled(engine: Engine) -> None:
    text = engine.submit(IDS, LONG, A)
    engine.step()
    text.paused = True
    engine.step()
    engine.cancel(text)
    assert text.finish_reason == "cancelled"
    assert engine.num_waiting == 0


def test_a_waiting_sample_of_one_tenant_holds_up_no_other(engine: Engine) -> None:
    first = engine.submit(IDS, LONG, A)
    engine.submit(IDS, replace(LONG, seed=2), A, parent=first)
    other = engine.submit([1], SHORT, B)
    engine.step()
    assert other.num_generated == 1


def test_who_has_most_sequences_gives_way_for_want_of_pages(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, threads=1, ctx_size=256, parallel=1)  # four pages
    of_a = [engine.submit([i] * 60, LONG, A) for i in range(3)]
    engine.step()
    of_b = engine.submit([9] * 60, replace(LONG, max_tokens=20), B)
    while not of_b.finished:
        engine.step()
        assert of_b.num_generated > 0  # it came in at once and never had to leave
    assert engine.counts.preemptions > 0
    while not all(s.finished for s in of_a):
        engine.step()
    for i, s in enumerate(of_a):
        assert s.generated == list(engine.generate_tokens([i] * 60, LONG))


def test_nobody_gives_way_to_what_would_not_fit_all_the_same(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, threads=1, ctx_size=256, parallel=1)  # four pages
    of_a = [engine.submit([i] * 40, replace(LONG, max_tokens=20), A) for i in range(2)]
    engine.step()
    of_b = engine.submit([9] * 200, SHORT, B)
    while not all(s.finished for s in of_a):
        engine.step()
    assert engine.counts.preemptions == 0
    while not of_b.finished:
        engine.step()
    assert of_b.num_generated == 2


def a_sequence(tokens: int, computed: int, tenant: str) -> Sequence:
    s = Sequence(list(range(tokens)), SamplingParams(), Options(tenant=tenant))
    s.num_computed = computed
    return s


def rows_of(running: list[Sequence], served: ServiceCounts, prompt_rows: int = 8) -> list[int]:
    chunks = schedule(running, 256, prompt_rows, served)
    return [sum(c.count for c in chunks if c.sequence is s) for s in running]


def test_the_prompt_of_who_has_had_less_is_read_first_and_beside_texts_faster() -> None:
    text, old = a_sequence(9, 8, "a"), a_sequence(100, 0, "a")
    new = a_sequence(100, 0, "b")
    served = ServiceCounts()
    served.observe([Chunk(text, 8, 1)])
    # Texts wait for its beginning alone.
    assert rows_of([text, old, new], served) == [0, 0, 64]
    new.times.started = 1.0
    assert rows_of([text, old, new], served) == [1, 0, 64]
    # Until both have had the same; then all prompts share what texts leave, as ever.
    served.observe([Chunk(new, 0, 64)])
    assert rows_of([text, old, new], served) == [1, 8, 0]
    assert rows_of([old, new], served) == [100, 100]


def test_what_a_tenant_had_long_ago_is_forgotten() -> None:
    served = ServiceCounts()
    served.observe([Chunk(a_sequence(300, 0, "a"), 0, 256)])
    assert served.of("a") == 256
    for _ in range(1000):
        served.observe([])
    assert served.of("a") == 0


# The prefix cache


def test_a_salt_keeps_prefixes_apart(engine: Engine) -> None:
    def cached(**options: str) -> int:
        s = engine.submit(IDS, SHORT, Options(**options))
        while not s.finished:
            engine.step()
        return s.num_cached

    assert [cached(cache_salt="a"), cached(cache_salt="b"), cached()] == [0, 0, 0]
    assert [cached(cache_salt="a"), cached(cache_salt="b"), cached()] == [192, 192, 192]
    # It is the salt that counts, whose ever the request is.
    assert cached(cache_salt="a", tenant="x") == 192


def test_no_adapter_and_salt_are_taken_for_others() -> None:
    pairs = [("", "ab"), ("a", "b"), ("ab", ""), ("", "2:ab"), ("2:", "ab"), ("1:a", "b")]
    assert len({Options(adapter=a, cache_salt=s).cache_root for a, s in pairs}) == len(pairs)
