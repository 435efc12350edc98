"""Rate limiting with token buckets: one for each caller, created on demand and limited in number.

The package ``limits`` (5.8) has no token bucket. Its windows are whole seconds, so that a rate of 100
with a burst of 20 can't be expressed; its exact strategy, the moving window, keeps every caller in memory
for ever, while callers can be arbitrary addresses; and it uses the wall clock, which can be set back.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass
class _Bucket:
    tokens: float
    updated: float  # clock seconds


class TakesTokens(Protocol):
    """A rate limiter, of this server alone or of all servers that share a store."""

    def take(self, owner: str) -> float:
        """Take a token; return 0 if there was one, else the seconds until there will be."""


class RateLimiter:
    """Allows ``burst`` requests at once and ``rate`` per second in the long run, for each owner.

    Args:
        rate: Tokens per second.
        burst: Capacity of a bucket in tokens.
        owners: Maximum number of buckets; the least recently used one is dropped.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        rate: float,
        burst: int,
        owners: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._owners = owners
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, owner: str) -> float:
        """Take a token.

        Returns:
            0 if there was one, else the seconds until there will be.
        """
        now = self._clock()
        with self._lock:
            bucket = self._buckets.pop(owner, None) or _Bucket(float(self._burst), now)
            self._buckets[owner] = bucket
            if len(self._buckets) > self._owners:
                self._buckets.popitem(last=False)
            gained = max(0.0, now - bucket.updated) * self._rate
            bucket.tokens = min(float(self._burst), bucket.tokens + gained)
            bucket.updated = now
            if bucket.tokens >= 1:
                bucket.tokens -= 1
                return 0.0
            return (1 - bucket.tokens) / self._rate
