"""Simulates replicas behind a router, and compares policies by which it chooses one.

    python bench/router_simulation.py --replicas 10 100 1000
    python bench/router_simulation.py --replicas 16 --trace conversation_trace.jsonl

Nothing here is measured: the speeds of a replica are arguments, and the figures are those of the
simulated machines. What it shows is how policies compare under the same traffic. The policy
``prefix_affinity`` is the router's own code.

A replica computes prompts one after the other, ``--prefill`` tokens a second, what its prefix cache
has excepted; up to ``--parallel`` requests then generate, each ``--decode`` tokens a second while it
is alone and ``--slowdown`` of that time more for each other one. The cache holds ``--cache`` tokens and
drops the least recently used. A recorded trace is JSON lines with ``timestamp`` (milliseconds),
``input_length``, ``output_length`` and ``hash_ids`` (one for each 512 tokens, equal for equal
beginnings), which is the format of the traces that Mooncake published.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from oxibonsai.ray_app.prefix_affinity import PrefixAffinity

_TRACE_BLOCK = 512
_BLOCK = 64
_CONVERSATION_SECONDS = 600.0  # nearly all are over after that


@dataclass(frozen=True)
class Speeds:
    """Of a replica."""

    prefill: float  # tokens a second
    decode: float  # tokens a second of a sequence that is alone
    slowdown: float  # share of a step's time that another sequence adds
    parallel: int
    cache: int  # tokens


@dataclass(frozen=True)
class Request:
    """A prompt as blocks, of which equal ones have equal beginnings."""

    arrival: float  # seconds
    blocks: tuple[int, ...]
    block_tokens: int
    prompt_tokens: int
    output_tokens: int
    conversation: int | None = None  # unknown in recorded traces


@dataclass
class Replica:
    """A simulated engine: its queue, what it runs, and its prefix cache."""

    speeds: Speeds
    waiting: deque[Request] = field(default_factory=deque)
    running: int = 0
    prompts_until: float = 0.0
    busy: float = 0.0
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)

    @property
    def load(self) -> int:
        return self.running + len(self.waiting)

    def start(self, request: Request, now: float) -> tuple[float, float, int]:
        """Begins a request: the times of its first and last token, and its cached tokens."""
        self.running += 1
        cached = self._cached(request)
        prefill = (request.prompt_tokens - cached) / self.speeds.prefill
        first = max(now, self.prompts_until) + prefill
        self.prompts_until = first
        step = (1 + self.speeds.slowdown * (self.running - 1)) / self.speeds.decode
        last = first + step * (request.output_tokens - 1)
        self.busy += last - now
        self._keep(request)
        return first, last, cached

    def _cached(self, request: Request) -> int:
        count = 0
        for block in request.blocks:
            if block not in self.cache:
                break
            count += 1
        # The last token is always computed.
        return min(count * request.block_tokens, request.prompt_tokens - 1)

    def _keep(self, request: Request) -> None:
        for block in reversed(request.blocks):
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) * request.block_tokens > self.speeds.cache:
            self.cache.popitem(last=False)


class Policy(Protocol):
    """Chooses a replica."""

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int: ...


class Anyone:
    """A random one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        return self._rng.randrange(len(replicas))


class RoundRobin:
    """One after the other."""

    def __init__(self, rng: random.Random) -> None:
        self._next = rng.randrange(1000)

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        self._next += 1
        return self._next % len(replicas)


class PowerOfTwo:
    """The less loaded one of two."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        two = self._rng.sample(range(len(replicas)), min(2, len(replicas)))
        return min(two, key=lambda i: replicas[i].load)


class LeastLoaded:
    """The least loaded of all, as if a router knew them at every moment."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        least = min(r.load for r in replicas)
        return self._rng.choice([i for i, r in enumerate(replicas) if r.load == least])


class HashOfBeginning:
    """The hash of the first block, whatever the load."""

    def __init__(self, rng: random.Random) -> None:
        self._salt = rng.random()

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        return hash((self._salt, request.blocks[:1])) % len(replicas)


class HashOfConversation:
    """The hash of a conversation's name, whatever the load: a proxy with a session header."""

    def __init__(self, rng: random.Random) -> None:
        self._salt = rng.random()

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        return hash((self._salt, request.conversation)) % len(replicas)


class Affinity:
    """The router's: the replica that was sent the longest beginning, else the less loaded of two."""

    def __init__(self, rng: random.Random, max_imbalance: int) -> None:
        self._affinity: PrefixAffinity[int] = PrefixAffinity(max_imbalance=max_imbalance)
        self._otherwise = PowerOfTwo(rng)

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        loads = {i: r.load for i, r in enumerate(replicas)}
        chosen = self._affinity.prefer(request.blocks, loads)
        if chosen is None:
            chosen = self._otherwise.choose(request, replicas)
        self._affinity.remember(request.blocks, chosen)
        return chosen


@dataclass(frozen=True)
class Figures:
    """Of one policy under one traffic."""

    median: float  # seconds to the first token
    p99: float
    hits: float  # share of all prompt tokens that a cache had
    imbalance: float  # the busiest replica's work over the mean


def simulate(requests: Sequence[Request], count: int, speeds: Speeds, policy: Policy) -> Figures:
    """Runs all requests to their ends.

    Args:
        requests: In the order of their arrival.
        count: Of replicas.
        speeds: Of each of them.
        policy: Chooses a replica for each request when it arrives.
    """
    replicas = [Replica(speeds) for _ in range(count)]
    ends: list[tuple[float, int]] = []
    waits: list[float] = []
    cached = 0

    def start(index: int, request: Request, now: float) -> None:
        nonlocal cached
        first, last, found = replicas[index].start(request, now)
        waits.append(first - request.arrival)
        cached += found
        heapq.heappush(ends, (last, index))

    def end(now: float) -> None:
        while ends and ends[0][0] <= now:
            time, index = heapq.heappop(ends)
            replicas[index].running -= 1
            if replicas[index].waiting:
                start(index, replicas[index].waiting.popleft(), time)

    for request in requests:
        end(request.arrival)
        index = policy.choose(request, replicas)
        if replicas[index].running < speeds.parallel:
            start(index, request, request.arrival)
        else:
            replicas[index].waiting.append(request)
    end(float("inf"))
    waits.sort()
    busy = [r.busy for r in replicas]
    return Figures(
        median=waits[len(waits) // 2],
        p99=waits[int(len(waits) * 0.99)],
        hits=cached / sum(r.prompt_tokens for r in requests),
        imbalance=max(busy) * count / sum(busy),
    )


def poisson(rng: random.Random, count: int, rate: float) -> list[Request]:
    """Conversations that begin as a Poisson process and share system prompts, popular ones more often.

    Args:
        rng: Of all draws.
        count: Requests in all.
        rate: Requests a second.
    """
    prompts = [rng.randrange(8, 64) for _ in range(200)]  # blocks of each system prompt
    weights = [1 / (i + 1) for i in range(len(prompts))]
    new = iter(range(10**9))
    mean_turns = 4
    requests: list[Request] = []
    # Conversations last a while: as many go on at the beginning and at the end as in between.
    now, last = -_CONVERSATION_SECONDS, 1.5 * count / rate
    while now < last:
        now += rng.expovariate(rate / mean_turns)
        chosen = rng.choices(range(len(prompts)), weights)[0]
        conversation = next(new)
        blocks = [-1 - chosen * 64 - i for i in range(prompts[chosen])]
        at = now
        while True:
            blocks += [next(new) for _ in range(rng.randrange(1, 9))]
            output = 1 + int(rng.expovariate(1 / 150))
            tokens = len(blocks) * _BLOCK + rng.randrange(_BLOCK)
            requests.append(Request(at, tuple(blocks), _BLOCK, tokens, output, conversation))
            if rng.random() < 1 / mean_turns:
                break
            blocks += [next(new) for _ in range(output // _BLOCK)]
            at += 5 + rng.expovariate(1 / 20)
    requests = [r for r in requests if r.arrival >= 0]
    return sorted(requests, key=lambda r: r.arrival)[:count]


def recorded(path: Path, rate: float) -> list[Request]:
    """A recorded trace, its times stretched to a rate of requests a second."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    rows.sort(key=lambda row: row["timestamp"])
    seconds = (rows[-1]["timestamp"] - rows[0]["timestamp"]) / 1000
    stretch = len(rows) / rate / seconds
    begin = rows[0]["timestamp"]
    return [
        Request(
            arrival=(row["timestamp"] - begin) / 1000 * stretch,
            blocks=tuple(row["hash_ids"][: row["input_length"] // _TRACE_BLOCK]),
            block_tokens=_TRACE_BLOCK,
            prompt_tokens=max(row["input_length"], 1),
            output_tokens=max(row["output_length"], 1),
        )
        for row in rows
    ]


def policies(seed: int, max_imbalance: int) -> Iterator[tuple[str, Callable[[], Policy]]]:
    """Each policy's name and what makes it."""
    yield "random", lambda: Anyone(random.Random(seed))
    yield "round_robin", lambda: RoundRobin(random.Random(seed))
    yield "hash_of_beginning", lambda: HashOfBeginning(random.Random(seed))
    yield "hash_of_conversation", lambda: HashOfConversation(random.Random(seed))
    yield "power_of_two", lambda: PowerOfTwo(random.Random(seed))
    yield "least_loaded", lambda: LeastLoaded(random.Random(seed))
    yield "prefix_affinity", lambda: Affinity(random.Random(seed), max_imbalance)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--replicas", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second of a replica")
    parser.add_argument("--requests", type=int, default=200, help="of Poisson traffic, a replica")
    parser.add_argument("--trace", type=Path, help="a recorded trace instead of Poisson traffic")
    parser.add_argument("--prefill", type=float, default=1500.0)
    parser.add_argument("--decode", type=float, default=60.0)
    parser.add_argument("--slowdown", type=float, default=0.15)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--cache", type=int, default=100_000)
    parser.add_argument("--max-imbalance", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    speeds = Speeds(given.prefill, given.decode, given.slowdown, given.parallel, given.cache)
    print("| replicas | policy | TTFT p50 s | TTFT p99 s | cached tokens | busiest / mean |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for count in given.replicas:
        rate = given.rate * count
        if given.trace:
            requests = recorded(given.trace, rate)
        else:
            requests = poisson(random.Random(given.seed), given.requests * count, rate)
        for name, make in policies(given.seed, given.max_imbalance):
            if name == "hash_of_conversation" and requests[0].conversation is None:
                continue
            got = simulate(requests, count, speeds, make())
            print(
                f"| {count} | {name} | {got.median:.2f} | {got.p99:.2f} | {got.hits:.0%} "
                f"| {got.imbalance:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
