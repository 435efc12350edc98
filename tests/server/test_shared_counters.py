"""Counts of rates and budgets in memory, PostgreSQL and Redis: each counts alike, and none twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from databases import own_database, redis_server
from fake_backend import MakeApp
from running_server import wait_until

from oxibonsai.errors import RequestError
from oxibonsai.server.rate_limit import Buckets, Budgets, Rate, RateLimiter
from oxibonsai.server.stores import Store, StoreError
from oxibonsai.server.stores.redis_counters import RedisBuckets, RedisBudgets, RedisServer

SLOWLY = 0.0001  # tokens per second: no test is so long that it matters


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A Redis server of these tests."""
    with redis_server() as url:
        yield url


@pytest.fixture
def redis(redis_url: str) -> RedisServer:
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return RedisServer(redis_url)


@pytest.fixture(params=["memory", "redis", pytest.param("postgresql", marks=pytest.mark.slow)])
def counters(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Buckets, Budgets | None]]:
    """Buckets and budgets of each kind; those of budgets in SQLite are tested as a store."""
    if request.param == "memory":
        yield RateLimiter(), None
    elif request.param == "redis":
        server = request.getfixturevalue("redis")
        yield RedisBuckets(server), RedisBudgets(server)
    else:
        with own_database(request.getfixturevalue("postgresql"), "counters") as url:
            store = Store(url, tmp_path)
            yield store.rate_limits(), store.budgets()
            store.close()


def test_buckets_are_taken_from_charged_and_looked_at(
    counters: tuple[Buckets, Budgets | None],
) -> None:
    buckets, rate = counters[0], Rate(SLOWLY, capacity=10)

    def about(tokens: float) -> object:
        return pytest.approx(tokens, abs=0.1)

    assert buckets.look("a", rate).left == about(10)
    assert buckets.take("a", rate, 4).left == about(6)
    refused = buckets.take("a", rate, 7)
    assert refused.wait == pytest.approx(1 / SLOWLY, rel=0.05)
    assert refused.left == about(6)
    assert buckets.take("a", rate, 6).wait == 0
    assert buckets.charge("a", rate, 5).left == 0
    assert buckets.look("a", rate).until_full == pytest.approx(15 / SLOWLY, rel=0.05)
    assert buckets.take("a", rate).wait == pytest.approx(6 / SLOWLY, rel=0.05)
    assert buckets.charge("a", rate, -12).left == about(7)
    assert buckets.charge("a", rate, -12).left == about(10)
    assert buckets.look("b", rate).left == about(10)


def test_a_bucket_fills_by_itself(counters: tuple[Buckets, Budgets | None]) -> None:
    buckets, rate = counters[0], Rate(50, capacity=1)
    assert buckets.take("a", rate).wait == 0
    wait_until(lambda: buckets.take("a", rate).wait == 0)


def test_nothing_slips_through_where_many_count_at_once(
    counters: tuple[Buckets, Budgets | None],
) -> None:
    buckets, budgets = counters
    rate = Rate(SLOWLY, capacity=100)

    def take(_: int) -> tuple[bool, bool]:
        let_in = buckets.take("a", rate).wait == 0
        return let_in, budgets is not None and budgets.take("a", 1, 2, 100)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(take, range(200)))
    assert sum(let_in for let_in, _ in found) == 100
    assert sum(counted for _, counted in found) == (0 if budgets is None else 50)


def test_budgets_in_redis(redis: RedisServer, redis_url: str) -> None:
    budgets = RedisBudgets(redis)
    assert not budgets.take("a", 1, 11, 10)
    assert [budgets.take("a", 1, 4, 10) for _ in range(3)] == [True, True, False]
    assert budgets.take("a", 2, 10, 10)
    budgets.charge("a", 1, 100)
    assert not budgets.take("a", 1, 1, 100)
    budgets.charge("a", 1, -100)
    assert budgets.take("a", 1, 2, 10)
    RedisBuckets(redis).take("a", Rate(1, capacity=10), 5)
    import redis as client_package

    with client_package.Redis.from_url(redis_url) as client:
        names = [name for name in client.scan_iter()]
        assert len(names) == 3
        # Nothing is kept for ever: neither a day that is past, nor a bucket that is full.
        assert all(0 < client.pttl(name) <= 172_800_000 for name in names)


def test_servers_that_name_one_redis_count_together(
    make_app: MakeApp, redis: RedisServer, redis_url: str
) -> None:
    given = {"rate_limit": 0.01, "rate_burst": 5, "rate_limit_storage": redis_url}
    clients = [make_app(**given).test_client() for _ in range(2)]
    statuses = [clients[i % 2].get("/v1/models").status_code for i in range(6)]
    assert statuses == [200] * 5 + [429]
    alone = make_app(rate_limit=0.01, rate_burst=5).test_client()
    assert alone.get("/v1/models").status_code == 200


def test_a_redis_that_goes_away_refuses_with_503(make_app: MakeApp) -> None:
    with redis_server() as url:
        client = make_app(rate_limit=100, rate_limit_storage=url).test_client()
        assert client.get("/v1/models").status_code == 200
    answer = client.get("/v1/models")
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (503, "store")
    assert client.get("/health").status_code == 200
    with pytest.raises(StoreError, match="Redis, which has the counts of rates, can't be used"):
        make_app(rate_limit_storage=url)


def test_what_is_no_url_of_redis_is_refused(make_app: MakeApp) -> None:
    pytest.importorskip("redis", reason="Redis' client is not installed")
    with pytest.raises(RequestError, match="--rate-limit-storage is not a URL of Redis"):
        make_app(rate_limit_storage="memcached://secret@localhost")
