"""What one request costs the others, and what a prompt costs the second time; on a running server."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from oxibonsai.loadtest.client import ChatClient, Sample
from oxibonsai.loadtest.prompts import made_up
from served import ALIAS, Served

_RUNNING = 4
_TOKENS = 400


def long_prompt(server: Served, tokens: int) -> dict[str, Any]:
    """Gaps between tokens of running streams while a long prompt is read.

    They are compared with the gaps at the same places of such streams that run without it: a gap grows
    with the text before it, too.

    Args:
        server: Has room for five streams.
        tokens: Length of the prompt that arrives.
    """
    return asyncio.run(_long_prompt(server, tokens))


async def _long_prompt(server: Served, tokens: int) -> dict[str, Any]:
    base = {"model": ALIAS, "temperature": 0, **server.body}
    short, long = made_up(32, 77), made_up(tokens, 78)
    async with ChatClient(server.url) as client:

        async def begin(first: int) -> list[asyncio.Task[Sample]]:
            body = {**base, "max_tokens": _TOKENS}
            chats = [client.chat({**body, "messages": short(first + i)}) for i in range(_RUNNING)]
            running = [asyncio.create_task(chat) for chat in chats]
            await asyncio.sleep(1.0)
            return running

        await client.chat({**base, "max_tokens": 4, "messages": short(0)})
        alone = await asyncio.gather(*await begin(1))
        running = await begin(1 + _RUNNING)
        arrived = await client.chat({**base, "max_tokens": 1, "messages": long(0)})
        beside = await asyncio.gather(*running)
    for sample in (arrived, *alone, *beside):
        if sample.error is not None:
            raise RuntimeError(f"a measurement failed: {sample.error}")
    begun, ended = arrived.sent, arrived.sent + (arrived.ttft or arrived.duration)
    during, usual = [], []
    for sample, other in zip(beside, alone, strict=True):
        for at, gap, gap_alone in zip(sample.arrivals, sample.gaps, other.gaps, strict=False):
            if begun <= sample.sent + at < ended:
                during.append(gap)
                usual.append(gap_alone)
    if not during:
        raise RuntimeError("the streams were over before the long prompt was read: raise _TOKENS")
    return {
        "prompt_tokens": arrived.prompt_tokens,
        "ttft_s": round(ended - begun, 3),
        "itl_alone_ms": _spread(usual),
        "itl_beside_ms": _spread(during),
        "times": round(statistics.median(during) / statistics.median(usual), 3),
        "times_of_mean": round(statistics.fmean(during) / statistics.fmean(usual), 3),
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    values = sorted(seconds)
    return {
        "p50": round(statistics.median(values) * 1e3, 2),
        "p99": round(values[int(0.99 * (len(values) - 1))] * 1e3, 2),
        "max": round(values[-1] * 1e3, 2),
    }


def system_prompt(server: Served, tokens: int, rounds: int = 5) -> dict[str, Any]:
    """Time to the first token with a new system prompt, and with the same one and another question."""
    return asyncio.run(_system_prompt(server, tokens, rounds))


async def _system_prompt(server: Served, tokens: int, rounds: int) -> dict[str, Any]:
    base = {"model": ALIAS, "temperature": 0, "max_tokens": 8, **server.body}
    times: dict[str, list[float]] = {"first": [], "second": []}
    cached = []
    async with ChatClient(server.url) as client:
        for i in range(rounds + 1):  # the first one warms up
            (message,) = made_up(tokens, 500 + i)(0)
            system = {"role": "system", "content": message["content"]}
            for name, question in (("first", "Who?"), ("second", "What?")):
                messages = [system, {"role": "user", "content": question}]
                sample = await client.chat({**base, "messages": messages})
                if sample.error is not None or sample.ttft is None:
                    raise RuntimeError(f"a measurement failed: {sample.error}")
                if i > 0:
                    times[name].append(sample.ttft)
            cached.append(sample.cached_tokens)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "prompt_tokens": sample.prompt_tokens,
        "cached_tokens": cached[-1],
        "ttft_ms": {name: round(value * 1e3, 2) for name, value in medians.items()},
        "times": round(medians["first"] / medians["second"], 2),
    }
