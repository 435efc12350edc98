"""Token buckets and daily budgets in Redis, those of all servers that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oxibonsai.errors import RequestError
from oxibonsai.server.rate_limit import Balance, Rate
from oxibonsai.server.stores.errors import StoreError

_SECONDS = 5.0  # for a connection and for an answer
_ALWAYS = 1e300

# Lets a bucket be full ARGV[1] seconds later, unless that is in more than ARGV[2] seconds already. A full
# bucket is one that is not there. The clock is the server's.
_MOVE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
if full_at - now > tonumber(ARGV[2]) then
  return {0, string.format('%.17g', full_at - now)}
end
full_at = full_at + tonumber(ARGV[1])
if full_at > now then
  local kept = string.format('%.0f', math.ceil((full_at - now) * 1000))
  redis.call('SET', KEYS[1], string.format('%.17g', full_at), 'PX', kept)
else
  redis.call('DEL', KEYS[1])
end
return {1, string.format('%.17g', full_at - now)}
"""

# Adds ARGV[1] to what was used, unless that is then more than ARGV[2]; an empty text is no limit.
_SPEND = """
local used = tonumber(redis.call('GET', KEYS[1]) or '0') + tonumber(ARGV[1])
if ARGV[2] ~= '' and used > tonumber(ARGV[2]) then
  return 0
end
redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], 172800)
return 1
"""


class RedisServer:
    """A connection to a Redis server, and scripts that run on it.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, as the package ``redis`` reads it.

    Raises:
        RequestError: The URL is invalid, or the package is not installed.
        StoreError: The server can't be reached.
    """

    def __init__(self, url: str) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ModuleNotFoundError as e:
            raise RequestError(
                "--rate-limit-storage names Redis: install its client with pip install 'oxibonsai[redis]'"
            ) from e
        self._errors = redis.RedisError
        try:
            # Once more, since a server that was started again has closed the connections.
            self._client = redis.Redis.from_url(
                url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS,
                retry=Retry(NoBackoff(), 1),
            )  # fmt: skip
        except ValueError as e:
            raise RequestError(f"--rate-limit-storage is not a URL of Redis: {e}") from e
        self._noted(self._client.ping)

    def script(self, text: str) -> Callable[[str, float | int | str, float | int | str], Any]:
        """Return a function that runs a script with a key and two arguments.

        Raises:
            StoreError: By the function: the server can't be reached.
        """
        made = self._client.register_script(text)

        def run(key: str, first: float | int | str, second: float | int | str) -> Any:
            return self._noted(lambda: made(keys=[f"oxibonsai:{key}"], args=[first, second]))

        return run

    def _noted(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._errors as e:
            reason = " ".join(str(e).split())
            raise StoreError(
                f"Redis, which has the counts of rates, can't be used: {reason}"
            ) from e


class RedisBuckets:
    """Buckets of :class:`~oxibonsai.server.rate_limit.Buckets` in Redis; each call is one script."""

    def __init__(self, server: RedisServer) -> None:
        self._run = server.script(_MOVE)

    def take(self, name: str, rate: Rate, tokens: float = 1) -> Balance:
        """See :class:`~oxibonsai.server.rate_limit.Buckets`.

        Raises:
            StoreError: Redis can't be used.
        """
        assert rate.capacity is not None
        most = (rate.capacity - tokens) / rate.per_second
        taken, until_full = self._move(name, tokens / rate.per_second, most)
        return Balance.of(rate, until_full, 0.0 if taken else max(until_full - most, 0.001))

    def charge(self, name: str, rate: Rate, tokens: float) -> Balance:
        """See :class:`~oxibonsai.server.rate_limit.Buckets`.

        Raises:
            StoreError: Redis can't be used.
        """
        _, until_full = self._move(name, tokens / rate.per_second, _ALWAYS)
        return Balance.of(rate, until_full)

    def look(self, name: str, rate: Rate) -> Balance:
        """See :class:`~oxibonsai.server.rate_limit.Buckets`.

        Raises:
            StoreError: Redis can't be used.
        """
        return self.charge(name, rate, 0)

    def _move(self, name: str, seconds: float, most: float) -> tuple[bool, float]:
        taken, until_full = cast(tuple[int, bytes], self._run(f"bucket:{name}", seconds, most))
        return bool(taken), float(until_full)


class RedisBudgets:
    """Use of :class:`~oxibonsai.server.rate_limit.Budgets` in Redis; forgotten after two days."""

    def __init__(self, server: RedisServer) -> None:
        self._run = server.script(_SPEND)

    def take(self, name: str, day: int, tokens: int, most: int) -> bool:
        """See :class:`~oxibonsai.server.rate_limit.Budgets`.

        Raises:
            StoreError: Redis can't be used.
        """
        return bool(self._run(f"budget:{day}:{name}", tokens, most))

    def charge(self, name: str, day: int, tokens: int) -> None:
        """See :class:`~oxibonsai.server.rate_limit.Budgets`.

        Raises:
            StoreError: Redis can't be used.
        """
        self._run(f"budget:{day}:{name}", tokens, "")
