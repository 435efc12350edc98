"""How many slots of recurrent state an engine has, and what they leave of a device's memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oxibonsai import CapacityError, _core
from oxibonsai.engine.memory import fit_ctx_size, plan_slots
from oxibonsai.engine.slot_cache import SlotPlan

# Floats of 157 MB in 48 layers.
LARGE = [157_000_000 // 4 // 48] * 48


@pytest.mark.parametrize(
    ("entries", "ctx_size", "given", "snapshots", "interval"),
    [
        ([1024], 512, None, 4 * 8, 256),  # no more than a context has pages
        ([1 << 20], 1 << 20, None, 256, 17_152),  # 4 MiB each: 1 GiB
        (LARGE, 32_768, None, 8, 32_768),  # at least two for each sequence
        (LARGE, 32_768, 10, 40, 4096),  # two for the ends, eight along the context
        (LARGE, 32_768, 0, 0, 32_768),
    ],
)
def test_snapshots_are_bounded_by_bytes_and_spread_over_a_context(
    entries: list[int], ctx_size: int, given: int | None, snapshots: int, interval: int
) -> None:
    plan = plan_slots(
        entries, ctx_size=ctx_size, parallel=4, ram_bytes=1 << 30, ctx_checkpoints=given
    )
    assert plan == SlotPlan(sequences=4, snapshots=snapshots, interval=interval)
    assert plan.slots == 8 + min(snapshots, 8)  # of the device: snapshots are in host memory


def model_on(free_bytes: int, *, attends: bool) -> Any:
    """What is asked of a model on a device with so much memory: 512 bytes a position, 4096 a slot."""
    layers = [_core.PagedLayer(1, 64, 64)] if attends else []
    graph = SimpleNamespace(paged_layers=layers, slot_entries=[1024])
    return SimpleNamespace(
        config=SimpleNamespace(max_position_embeddings=4096),
        weights=SimpleNamespace(checkpoint=SimpleNamespace(file={}, path=Path("model"))),
        graph=graph,
        stages=[(SimpleNamespace(free_bytes=free_bytes), graph)],
    )


def test_slots_take_their_part_of_a_device_s_memory_before_pages() -> None:
    plan = SlotPlan(sequences=10)  # 81,920 bytes
    model = model_on(1_000_000, attends=True)
    assert fit_ctx_size(model, "f32", None, 2) == 900_000 // 65_536 * 64
    assert fit_ctx_size(model, "f32", None, 2, plan) == (900_000 - 81_920) // 65_536 * 64
    assert fit_ctx_size(model_on(100_000, attends=False), "f32", None, 2, plan) == 4096


@pytest.mark.parametrize("attends", [True, False])
def test_slots_that_do_not_fit_are_an_error_with_numbers(attends: bool) -> None:
    plan = SlotPlan(sequences=5)
    with pytest.raises(CapacityError, match=r"10 slots of recurrent state, 4096 bytes each"):
        fit_ctx_size(model_on(40_000, attends=attends), "f32", None, 2, plan)
