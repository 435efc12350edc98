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
    began: Callable[[ClosedLoop | OpenLoop], None] = lambda _: None,
) -> list[Level]:
    """Run the levels one after another.

    Args:
        body: The request's fields beside the messages; ``model`` and ``max_tokens`` at least.
        warmup: Requests sent at once before each level, which no figure counts.
        began: Told of each level as it begins.
    """
    sent = 0

    async def send(_: int) -> Sample:
        # Numbers go on over warm-ups and levels, so that no level repeats another's prompts.
        nonlocal sent
        sent += 1
        return await client.chat({**body, "messages": prompts(sent - 1)})

    levels = []
    for load in loads:
        began(load)
        await asyncio.gather(*(send(i) for i in range(warmup)))
        samples = await load.run(send, limit)
        levels.append(Level(load, summarize(samples, objectives), samples))
    return levels
