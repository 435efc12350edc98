"""Measured times against known delays, on a clock that only sleeps move: figures are exact."""

from __future__ import annotations

import pytest

from loadtest import virtual_time
from loadtest.fake_server import FakeServer, InProcess
from oxibonsai.loadtest.client import ChatClient
from oxibonsai.loadtest.prompts import made_up
from oxibonsai.loadtest.report import Level
from oxibonsai.loadtest.run import run_levels
from oxibonsai.loadtest.schedule import ClosedLoop, Limit, OpenLoop, poisson_arrivals
from oxibonsai.loadtest.statistics import Objectives


def measure(
    server: FakeServer,
    load: ClosedLoop | OpenLoop,
    limit: Limit,
    *,
    warmup: int = 0,
    objectives: Objectives | None = None,
) -> Level:
    async def go() -> list[Level]:
        async with ChatClient("http://server/v1", transport=InProcess(server)) as client:
            return await run_levels(
                client,
                [load],
                limit=limit,
                prompts=made_up(8, 0),
                body={"model": "m", "max_tokens": 8},
                warmup=warmup,
                objectives=objectives or Objectives(),
            )

    return virtual_time.run(go())[0]


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.mark.parametrize(("ttft", "gap"), [(0.2, 0.05), (0.05, 0.1), (30.0, 4.0)])
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
    for percentile in ("p50", "p99"):
        assert getattr(figures.ttft_ms, percentile) == pytest.approx(1e3 * ttft)
        assert getattr(figures.itl_ms, percentile) == pytest.approx(1e3 * gap)
        # Six tokens in five chunks.
        assert getattr(figures.tpot_ms, percentile) == pytest.approx(1e3 * 4 * gap / 5)
        assert getattr(figures.e2e_ms, percentile) == pytest.approx(1e3 * whole)
    assert figures.wall_s == pytest.approx(2 * whole)  # two rounds of requests
    assert figures.output_tokens == 6 * 2 * concurrency
    assert figures.output_tokens_per_s == pytest.approx(6 * concurrency / whole)
    assert server.most_under_way == concurrency


def test_an_open_loop_does_not_wait_for_answers(server: FakeServer) -> None:
    server.ttft, server.tokens = 1.0, 1
    level = measure(server, OpenLoop(rate=20, seed=3), Limit(requests=8))
    arrivals = [at for at, _ in zip(poisson_arrivals(20, 3), range(8), strict=False)]
    assert [sample.sent for sample in level.samples] == pytest.approx(arrivals)
    assert server.most_under_way == 8


def test_goodput_counts_only_requests_within_the_objectives(server: FakeServer) -> None:
    server.ttft = 0.1
    one = Limit(requests=4)
    met = measure(server, ClosedLoop(2), one, objectives=Objectives(ttft=0.11)).figures
    missed = measure(server, ClosedLoop(2), one, objectives=Objectives(ttft=0.09)).figures
    assert met.goodput_per_s == met.requests_per_s == pytest.approx(20)
    assert missed.goodput_per_s == 0


def test_a_duration_bounds_when_requests_begin(server: FakeServer) -> None:
    server.ttft, server.tokens = 0.1, 1
    level = measure(server, ClosedLoop(2), Limit(seconds=0.35))
    starts = [sample.sent for sample in level.samples]
    assert starts == pytest.approx([0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3])


def test_warm_up_requests_are_sent_but_not_counted(server: FakeServer) -> None:
    server.gap = 0.1
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
    assert figures.ttft_ms.p50 == pytest.approx(100)


def test_an_answer_after_the_time_limit_is_an_error_of_that_length(server: FakeServer) -> None:
    server.ttft = 30

    async def go() -> None:
        transport = InProcess(server)
        async with ChatClient("http://server/v1", timeout=20, transport=transport) as client:
            sample = await client.chat({"model": "m", "messages": []})
            assert sample.error == "no whole answer in 20 s"
            assert sample.duration == pytest.approx(20)

    virtual_time.run(go())
