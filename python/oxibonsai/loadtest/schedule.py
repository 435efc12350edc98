"""When requests are sent: closed loops keep N under way, open loops follow a Poisson process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from oxibonsai.errors import RequestError
from oxibonsai.loadtest.client import Sample

Send = Callable[[int], Awaitable[Sample]]  # sends the request of that number


@dataclass(frozen=True)
class Limit:
    """How long a level lasts: a number of requests, or seconds in which requests are begun."""

    requests: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.requests is None) == (self.seconds is None):
            raise RequestError("a level ends after a number of requests or of seconds: give one")

    def allows(self, number: int, elapsed: float) -> bool:
        """Return whether the request of this number (from 0) is still sent."""
        if self.requests is not None:
            return number < self.requests
        return self.seconds is not None and elapsed < self.seconds


@dataclass(frozen=True)
class ClosedLoop:
    """`concurrency` clients, each of which sends again once it has its answer."""

    concurrency: int

    async def run(self, send: Send, limit: Limit) -> list[Sample]:
        """Sample in the order in which they ended."""
        samples: list[Sample] = []
        clock = asyncio.get_running_loop().time
        started = clock()
        following = 0

        async def client() -> None:
            nonlocal following
            while limit.allows(following, clock() - started):
                number, following = following, following + 1
                samples.append(await send(number))

        await asyncio.gather(*(client() for _ in range(self.concurrency)))
        return samples


@dataclass(frozen=True)
class OpenLoop:
    """`rate` requests a second on average, whether or not earlier ones were answered."""

    rate: float
    seed: int

    async def run(self, send: Send, limit: Limit) -> list[Sample]:
        """Sample in the order in which they were sent."""
        clock = asyncio.get_running_loop().time
        started = clock()
        tasks: list[asyncio.Future[Sample]] = []
        for arrival in poisson_arrivals(self.rate, self.seed):
            if not limit.allows(len(tasks), arrival):
                break
            await asyncio.sleep(max(0.0, started + arrival - clock()))
            tasks.append(asyncio.ensure_future(send(len(tasks))))
        return list(await asyncio.gather(*tasks))


def poisson_arrivals(rate: float, seed: int) -> Iterator[float]:
    """Yield seconds from the start at which requests arrive; the gaps are exponential, of mean 1/rate.

    The same seed gives the same arrivals.
    """
    if not rate > 0:
        raise RequestError(f"a rate is above 0 requests a second, not {rate:g}")
    draw = random.Random(seed)
    at = 0.0
    while True:
        at += draw.expovariate(rate)
        yield at
