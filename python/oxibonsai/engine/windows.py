"""Run a pass over windows of a text, each from an empty context, beside an engine's own sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine.batching import add_span, reserve
from oxibonsai.engine.memory import make_cache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.slot_cache import SlotPlan
from oxibonsai.models import Model

_STEP_ROWS = 256

Result = TypeVar("Result")


def read_windows(
    model: Model,
    kv_type: str | None,
    windows: Sequence[Sequence[int]],
    run: Callable[[_core.Batch, Sequence[KvPages], Slots | None], Result],
    *,
    outputs: bool,
) -> Iterator[list[Result]]:
    """Run a pass of a model over windows.

    Args:
        model: Its state is made anew.
        kv_type: Of keys and values; None: the model keeps none.
        windows: Token ids.
        run: The pass.
        outputs: Whether all rows want an output, or none.

    Yields:
        After each window, the results of its steps.
    """
    longest = max(len(window) for window in windows)
    types = () if kv_type is None else (kv_type,)
    plan = SlotPlan(sequences=1) if model.graph.slot_entries else None
    cache = make_cache(model, types, longest + _core.PAGE_POSITIONS, keep=False, plan=plan)
    for window in windows:
        table, results = PageTable(), []
        for first in range(0, len(window), _STEP_ROWS):
            tokens = list(window[first : first + _STEP_ROWS])
            batch = _core.Batch()
            reserve(cache, table, first, len(tokens))
            add_span(batch, table, tokens, first, len(tokens) if outputs else 0)
            results.append(run(batch, cache.pools, cache.slot_memory))
        cache.release(table)
        yield results
