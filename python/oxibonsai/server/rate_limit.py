"""Rate limiting with token buckets: one for each caller, created on demand and limited in number.

The package ``limits`` (5.8) has no token bucket. Its windows are whole seconds, so that a rate of 100
with a burst of 20 can't be expressed; its exact strategy, the moving window, keeps every caller in memory
for ever, while callers can be arbitrary addresses; and it uses the wall clock, which can be set back.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_TEXT = re.compile(rf"\s*([0-9.e+]+)\s*/\s*({'|'.join(_SECONDS)})\s*")


@dataclass(frozen=True)
class Rate:
    """How fast a bucket fills, and how much it holds.

    Attributes:
        per_second: Tokens per second.
        capacity: Tokens of a full bucket, which can be taken at once; None: a default of the server.
        unit: Seconds of the unit that it was written with.
    """

    per_second: float
    capacity: float | None = None
    unit: float = field(default=1, compare=False)

    def __post_init__(self) -> None:
        if not (0 < self.per_second < math.inf):
            raise ValueError("a rate must be a number above 0")
        if self.capacity is not None and not (1 <= self.capacity < math.inf):
            raise ValueError("the capacity of a rate must be a number from 1 on")

    @classmethod
    def parse(cls, value: Any) -> Rate:
        """Return the rate that a setting says.

        Args:
            value: A number per second, also as text; ``"60/minute"``, with second, minute, hour or
                day; or ``{"capacity": 20, "rate": ...}`` with one of both as the rate.

        Raises:
            ValueError: It is none of these, or out of range.
        """
        if isinstance(value, Rate):
            return value
        if isinstance(value, Mapping):
            if set(value) != {"capacity", "rate"}:
                raise ValueError("a table of a rate has the keys capacity and rate, and no others")
            return replace(cls.parse(value["rate"]), capacity=_number(value["capacity"]))
        found = _TEXT.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return cls(_number(value))
        unit = _SECONDS[found[2]]
        return cls(_number(found[1]) / unit, unit=unit)

    def holding_a_unit(self) -> Rate:
        """Return the rate with a capacity where it has none: ``600/minute`` holds 600."""
        return self.holding(max(1.0, self.per_second * self.unit))

    def holding(self, capacity: float) -> Rate:
        """Return the rate with a capacity where it has none."""
        return self if self.capacity is not None else replace(self, capacity=capacity)


def _number(value: Any) -> float:
    try:
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        "it is no rate: give requests per second, 60/minute or a table of capacity and rate"
    )


@dataclass(frozen=True)
class Balance:
    """A bucket after something was asked of it.

    Attributes:
        wait: Seconds until it has what was asked; 0: it was taken.
        capacity: Tokens of a full bucket.
        left: Tokens in it.
        until_full: Seconds until it is full.
    """

    wait: float
    capacity: float
    left: float
    until_full: float

    @classmethod
    def of(cls, rate: Rate, until_full: float, wait: float = 0.0) -> Balance:
        """Return the balance of a bucket that is full in ``until_full`` seconds."""
        assert rate.capacity is not None
        until_full = max(until_full, 0.0)
        # Rounding must not hide a whole token.
        left = max(0.0, rate.capacity - until_full * rate.per_second + 1e-6)
        return cls(wait, rate.capacity, left, until_full)


class Buckets(Protocol):
    """Buckets of this server alone, or of all servers that share a store.

    Names and rates are the caller's; every rate has a capacity.
    """

    def take(self, name: str, rate: Rate, tokens: float = 1) -> Balance:
        """Take tokens from a bucket if it has so many.

        Args:
            name: Of the bucket.
            rate: With a capacity.
            tokens: Number of tokens, at most the capacity.
        """

    def charge(self, name: str, rate: Rate, tokens: float) -> Balance:
        """Take tokens whether the bucket has them or not: a debt is repaid at its rate.

        Args:
            name: Of the bucket.
            rate: With a capacity.
            tokens: Number of tokens; negative to give some back.
        """

    def look(self, name: str, rate: Rate) -> Balance:
        """Return the balance of a bucket."""


class Budgets(Protocol):
    """Tokens that callers have used on a day."""

    def take(self, name: str, day: int, tokens: int, most: int) -> bool:
        """Count tokens unless they would be more than ``most`` that day; return whether it did."""

    def charge(self, name: str, day: int, tokens: int) -> None:
        """Count tokens, however many there are; negative ones are given back."""


class RateLimiter:
    """Buckets in memory.

    A bucket is one number, the time at which it will be full again: n tokens that are taken move it by
    ``n / rate``, and there are so many as long as it is at most ``(capacity - n) / rate`` away.

    Args:
        buckets: Maximum number of buckets; the least recently used one is dropped.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, buckets: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = buckets
        self._clock = clock
        self._now = -math.inf
        self._lock = threading.Lock()
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, name: str, rate: Rate, tokens: float = 1) -> Balance:
        """See :class:`Buckets`."""
        assert rate.capacity is not None
        return self._move(name, rate, tokens, most=(rate.capacity - tokens) / rate.per_second)

    def charge(self, name: str, rate: Rate, tokens: float) -> Balance:
        """See :class:`Buckets`."""
        return self._move(name, rate, tokens, most=math.inf)

    def look(self, name: str, rate: Rate) -> Balance:
        """See :class:`Buckets`."""
        with self._lock:
            return Balance.of(
                rate, self._full_at.get(name, -math.inf) - max(self._now, self._clock())
            )

    def _move(self, name: str, rate: Rate, tokens: float, most: float) -> Balance:
        """Take tokens if the bucket is full again in at most ``most`` seconds."""
        with self._lock:
            # A clock that goes back neither fills a bucket nor empties it.
            now = self._now = max(self._now, self._clock())
            begun = max(self._full_at.pop(name, now), now)
            wait = begun - now - most
            # Rounding must not make a caller wait who waited as long as it was told.
            taken = wait <= 1e-9
            if taken:
                begun += tokens / rate.per_second
            self._full_at[name] = begun
            if len(self._full_at) > self._most:
                self._full_at.popitem(last=False)
            return Balance.of(rate, begun - now, 0.0 if taken else wait)
