"""Measured times against known delays: the one place where tests look at a clock.

The delays are 50 to 200 ms because a busy two-core machine wakes a sleeper some milliseconds late:
beside such delays that is a few per cent. A sleep never ends early, so a figure below its delay is
wrong by any measure. It may end late, so the bound above is what the server really waited, by its
own clock, plus 5 % and 25 ms for the client to be woken. Medians are judged, since one late
wake-up must not fail a test.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterable
from itertools import pairwise

import pytest

from loadtest.fake_server import FakeServer
from oxibonsai.loadtest.client import ChatClient
from oxibonsai.loadtest.prompts import made_up
from oxibonsai.loadtest.report import Level
from oxibonsai.loadtest.run import run_levels
from oxibonsai.loadtest.schedule import ClosedLoop, Limit, OpenLoop
from oxibonsai.loadtest.statistics import Objectives

_EARLY_MS = 1.0  # the two ends read different clocks of the event loop
_LATE_MS = 25.0


def measure(
    server: FakeServer,
    load: ClosedLoop | OpenLoop,
    limit: Limit,
    *,
    warmup: int = 0,
    objectives: Objectives | None = None,
) -> Level:
    async def go() -> list[Level]:
        async with ChatClient(server.url) as client:
            return await run_levels(
                client,
                [load],
                limit=limit,
                prompts=made_up(8, 0),
                body={"model": "m", "max_tokens": 8},
                warmup=warmup,
                objectives=objectives or Objectives(),
            )

    return asyncio.run(go())[0]


def assert_near(measured_ms: float, delay: float, waited: Iterable[float]) -> None:
    """Between the delay that was asked for and the median of those that came of it, in seconds."""
    latest = max(delay, statistics.median(waited)) * 1e3
    assert delay * 1e3 - _EARLY_MS <= measured_ms <= latest * 1.05 + _LATE_MS


@pytest.mark.parametrize(("ttft", "gap"), [(0.2, 0.05), (0.05, 0.1)])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_figures_are_the_servers_delays(
    server: FakeServer, concurrency: int, ttft: float, gap: float
) -> None:
    server.ttft, server.gap = ttft, gap
    figures = measure(server, ClosedLoop(concurrency), Limit(requests=2 * concurrency)).figures
    assert figures.ttft_ms is not None
    assert figures.itl_ms is not None
    assert figures.tpot_ms is not None
    assert figures.e2e_ms is not None
    whole = ttft + 4 * gap
    written = server.written
    assert_near(figures.ttft_ms.p50, ttft, (at[0] for at in written))
    gaps = (later - earlier for at in written for earlier, later in pairwise(at))
    assert_near(figures.itl_ms.p50, gap, gaps)
    # Six tokens in five chunks.
    assert_near(figures.tpot_ms.p50, 4 * gap / 5, ((at[-1] - at[0]) / 5 for at in written))
    assert_near(figures.e2e_ms.p50, whole, (at[-1] for at in written))
    # Two rounds of requests, one after another, each as long as its slowest.
    assert_near(figures.wall_s * 1e3 / 2, whole, [max(at[-1] for at in written)])
    assert figures.output_tokens == 6 * 2 * concurrency
    assert figures.output_tokens_per_s == pytest.approx(figures.output_tokens / figures.wall_s)
    assert server.most_under_way == concurrency


def test_an_open_loop_does_not_wait_for_answers(server: FakeServer) -> None:
    server.ttft, server.tokens = 1.0, 1
    level = measure(server, OpenLoop(rate=20, seed=3), Limit(requests=8))
    from oxibonsai.loadtest.schedule import poisson_arrivals

    arrivals = [at for at, _ in zip(poisson_arrivals(20, 3), range(8), strict=False)]
    lateness = [
        (sample.sent - level.samples[0].sent) - (at - arrivals[0])
        for sample, at in zip(level.samples, arrivals, strict=True)
    ]
    assert abs(statistics.median(lateness)) * 1e3 <= _LATE_MS
    assert server.most_under_way > 1


def test_goodput_counts_only_requests_within_the_objectives(server: FakeServer) -> None:
    server.ttft = 0.1
    one = Limit(requests=4)
    met = measure(server, ClosedLoop(2), one, objectives=Objectives(ttft=10)).figures
    missed = measure(server, ClosedLoop(2), one, objectives=Objectives(ttft=0.05)).figures
    assert met.goodput_per_s == met.requests_per_s
    assert missed.goodput_per_s == 0


def test_a_duration_bounds_when_requests_begin(server: FakeServer) -> None:
    server.ttft, server.tokens = 0.1, 1
    level = measure(server, ClosedLoop(2), Limit(seconds=0.35))
    starts = [sample.sent - level.samples[0].sent for sample in level.samples]
    assert max(starts) <= 0.35 + _LATE_MS / 1e3
    # A round takes at least 0.1 s, so at most four begin in 0.35 s.
    assert 2 <= len(level.samples) <= 8


def test_warm_up_requests_are_sent_but_not_counted(server: FakeServer) -> None:
    level = measure(server, ClosedLoop(1), Limit(requests=3), warmup=2)
    assert (len(server.requests), level.figures.requests) == (5, 3)
    asked = [request["messages"][0]["content"] for request in server.requests]
    assert len(set(asked)) == 5


def test_errors_are_counted_and_leave_the_latencies_alone(server: FakeServer) -> None:
    server.ttft, server.failing = 0.1, frozenset({1, 2})
    figures = measure(server, ClosedLoop(1), Limit(requests=5)).figures
    assert figures.errors == {"HTTP 503: queue is full": 2}
    assert (figures.requests, figures.output_tokens) == (5, 18)
    assert figures.ttft_ms is not None
    assert figures.ttft_ms.p50 >= 100 - _EARLY_MS
