"""A whole run: each level after a warm-up of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from oxibonsai.loadtest.client import ChatClient, Sample
from oxibonsai.loadtest.prompts import Prompts
from oxibonsai.loadtest.report import Level
from oxibonsai.loadtest.schedule import ClosedLoop, Limit, OpenLoop
from oxibonsai.loadtest.statistics import Objectives, summarize


async def run_levels(
    client: ChatClient,
    loads: Sequence[ClosedLoop | OpenLoop],
    *,
    limit: Limit,
    prompts: Prompts,
    body: dict[str, Any],
    warmup: int,
    objectives: Objectives,
    answered: Callable[[ClosedLoop | OpenLoop, int], None] = lambda *_: None,
) -> list[Level]:
    """Run the levels one after another.

    Args:
        body: The request's fields beside the messages; ``model`` and ``max_tokens`` at least.
        warmup: Requests sent at once before each level, which no figure counts.
        answered: Told, with the level, how many requests of all levels have been answered.
    """
    sent = 0

    async def send(_: int) -> Sample:
        # Numbers go on over warm-ups and levels, so that no level repeats another's prompts.
        nonlocal sent
        sent += 1
        return await client.chat({**body, "messages": prompts(sent - 1)})

    levels: list[Level] = []
    done = 0
    for load in loads:
        answered(load, done)

        async def count(number: int, load: ClosedLoop | OpenLoop = load) -> Sample:
            nonlocal done
            sample = await send(number)
            done += 1
            answered(load, done)
            return sample

        await asyncio.gather(*(send(i) for i in range(warmup)))
        samples = await load.run(count, limit)
        levels.append(Level(load, summarize(samples, objectives), samples))
    return levels
