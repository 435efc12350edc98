"""The simulation of routers keeps its own laws, and shows what it is for."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from router_simulation import (
    Affinity,
    Anyone,
    Replica,
    Request,
    Speeds,
    poisson,
    policies,
    recorded,
    simulate,
)

SPEEDS = Speeds(prefill=100, decode=10, slowdown=0.5, parallel=2, cache=640)


def request(at: float, *blocks: int, output: int = 11) -> Request:
    return Request(at, blocks, 64, 64 * len(blocks) + 36, output)


def test_times_of_a_replica() -> None:
    replica = Replica(SPEEDS)
    # 100 prompt tokens in 1 s, then ten tokens after the first, each 0.1 s.
    assert replica.start(request(0, 1), 0.0) == pytest.approx((1.0, 2.0, 0))
    # 64 of 100 are cached; it waits for the first prompt; two sequences: steps take half as long more.
    assert replica.start(request(0, 1), 0.0) == pytest.approx((1.36, 2.86, 64))


def test_the_cache_drops_what_was_used_least_lately() -> None:
    replica = Replica(SPEEDS)
    replica.start(request(0, *range(10)), 0.0)
    replica.start(request(0, 100), 0.0)
    assert replica.start(request(0, *range(10)), 0.0)[2] == 9 * 64


def test_requests_wait_for_a_place() -> None:
    got = simulate([request(0, i) for i in range(3)], 1, SPEEDS, Anyone(random.Random(0)))
    # The first ends at 2 s; then the third's prompt takes 1 s.
    assert got.p99 == pytest.approx(3.0)
    assert got.hits == 0
    assert got.imbalance == 1


def test_one_replica_is_the_same_under_every_policy() -> None:
    requests = poisson(random.Random(0), 50, 1.0)
    speeds = Speeds(1500, 60, 0.15, 8, 100_000)
    assert len({simulate(requests, 1, speeds, make()) for _, make in policies(0, 4)}) == 1


def test_affinity_finds_more_in_caches_than_chance() -> None:
    requests = poisson(random.Random(0), 400, 4.0)
    speeds = Speeds(1500, 60, 0.15, 8, 100_000)
    by_chance = simulate(requests, 8, speeds, Anyone(random.Random(0)))
    by_affinity = simulate(requests, 8, speeds, Affinity(random.Random(0), 4))
    assert by_affinity.hits > by_chance.hits + 0.1


def test_poisson_traffic_has_its_rate_and_shares_beginnings() -> None:
    requests = poisson(random.Random(0), 2000, 10.0)
    assert len(requests) == 2000
    assert requests[-1].arrival == pytest.approx(200, rel=0.2)
    assert len({r.blocks[0] for r in requests}) <= 200


def test_a_recorded_trace_is_stretched_to_the_rate(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1000 * i, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2 + i]}
        for i in range(11)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    requests = recorded(path, rate=2.2)
    assert [r.arrival for r in requests] == pytest.approx([i * 0.5 for i in range(11)])
    assert requests[3] == Request(1.5, (0, 1), 512, 1100, 5)  # the third block is not full
