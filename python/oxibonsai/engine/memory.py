"""Plan the memory of sequences' state, and the context that it leaves room for."""

from __future__ import annotations

import sys
from pathlib import Path

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PAGE_POSITIONS
from oxibonsai.engine.slot_cache import SlotCache, SlotPlan
from oxibonsai.engine.state_store import StateFolder, StateStore
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.files.machine import physical_memory
from oxibonsai.known_models import recommend
from oxibonsai.kv_types import suited_kv_type
from oxibonsai.models import Model, ModelConfig

# Host memory for snapshots of recurrent state, where nothing else is asked for: llama.cpp's, or a share.
_RAM_MIB = 8192
_RAM_SHARE = 8
# Of one sequence: at the end of its prompt and of its text.
_LEAST_SNAPSHOTS = 2
# Of one sequence, beside its own: one for each token of a long draft.
_MOST_SPARE, _SPARE_SHARE = 12, 0.125
# A chunk of a prompt ends at a snapshot; shorter ones would read the weights more often.
_LEAST_INTERVAL = 256

# Of a device's free memory that is left for the values of a step.
_WORKING_SHARE = 0.1


def kv_bytes_per_token(layers: list[_core.PagedLayer], kv_type: str) -> int:
    """Return the bytes of the cache that one position takes in all layers, exactly; 0 where there are none.

    Args:
        layers: Of the cache.
        kv_type: Of the keys and values.

    Raises:
        RequestError: No such type; ``_core.KV_TYPES`` lists them.
    """
    return _core.kv_page_bytes(layers, kv_type) // PAGE_POSITIONS if layers else 0


def default_kv_type(layers: list[_core.PagedLayer]) -> str:
    """Return ``"f32"`` for models that need at most 64 KiB a position with it, else ``"f16"``."""
    return suited_kv_type(kv_bytes_per_token(layers, "f32"))


def plan_slots(
    entries: list[int],
    *,
    ctx_size: int,
    parallel: int,
    ram_bytes: int,
    ctx_checkpoints: int | None = None,
    checkpoint_min_step: int | None = None,
) -> SlotPlan | None:
    """Return how many slots of recurrent state an engine has; None for a model without such state.

    Args:
        entries: Floats of each entry of a slot.
        ctx_size: Positions of a sequence.
        parallel: Sequences that run at once.
        ram_bytes: Host memory for snapshots; 0: none are kept.
        ctx_checkpoints: Snapshots for each of them; None: those that fit in the memory, but at least 2,
            and no more than a context has pages.
        checkpoint_min_step: Tokens from one snapshot to the next within a turn, 0 for 64; None: so many
            that those of one sequence cover a context.

    Raises:
        RequestError: A number is out of range, or the model has no recurrent state.
    """
    given = {"ctx_checkpoints": ctx_checkpoints, "checkpoint_min_step": checkpoint_min_step}
    for name, value in given.items():
        if value is not None and value < 0:
            raise RequestError(f"{name} is {value}; it must be 0 or more")
        if value is not None and not entries:
            raise RequestError(
                f"{name} is given, but this model keeps no recurrent state: leave it out"
            )
    if not entries:
        return None
    borders = -(-ctx_size // PAGE_POSITIONS)
    if ctx_checkpoints is None:
        fitting = ram_bytes // _core.slot_bytes(entries) // parallel
        ctx_checkpoints = min(max(fitting, _LEAST_SNAPSHOTS), borders)
    if ram_bytes == 0:
        ctx_checkpoints = 0
    # Those of a prompt cover a whole context beside the last two.
    spread = max(ctx_checkpoints - _LEAST_SNAPSHOTS, 1)
    interval = -(-borders // spread) * PAGE_POSITIONS
    interval = -(-interval // _LEAST_INTERVAL) * _LEAST_INTERVAL
    if checkpoint_min_step is not None:
        interval = checkpoint_min_step or PAGE_POSITIONS
    return SlotPlan(parallel, parallel * ctx_checkpoints, interval)


def spare_slots(entries: list[int], parallel: int) -> int:
    """Return how many slots a sequence may have beside its own where memory is taken as they are used.

    One for each token of a long draft, but no more than a share of the machine's memory.

    Args:
        entries: Floats of each entry of a slot.
        parallel: Sequences that run at once.
    """
    slots = int(physical_memory() * _SPARE_SHARE) // _core.slot_bytes(entries)
    return max(1, min(_MOST_SPARE, slots // parallel))


def cache_ram_bytes(cache_ram: int | None, *, recurrent: bool) -> int:
    """Return the host memory for state beside the pools.

    Args:
        cache_ram: In MiB, as llama.cpp's: -1 for no limit, 0 for none; None: 8192 but at most an eighth of
            the machine's memory for a model with recurrent state, none for others.
        recurrent: Whether the model has recurrent state.

    Raises:
        RequestError: It is below -1.
    """
    if cache_ram is None:
        return min(_RAM_MIB << 20, physical_memory() // _RAM_SHARE) if recurrent else 0
    if cache_ram < -1:
        raise RequestError(f"cache_ram is {cache_ram}; it must be -1 or more")
    return sys.maxsize if cache_ram == -1 else cache_ram << 20


def make_store(
    model: Model,
    plan: SlotPlan | None,
    *,
    ram_bytes: int,
    folder: Path | None,
    disk_bytes: int,
) -> StateStore | None:
    """Return what keeps state beside the pools; None where nothing is kept.

    Args:
        model: Whose state it is.
        plan: Of the slots; None where the model has no recurrent state.
        ram_bytes: Host memory that it may take.
        folder: Where it keeps what memory has no room for; None: nowhere.
        disk_bytes: Disk that it may take there, with the state of other models.
    """
    if ram_bytes == 0 or (plan is not None and plan.snapshots == 0):
        return None
    on_disk = None if folder is None else StateFolder(folder, model.fingerprint(), disk_bytes)
    return StateStore(ram_bytes, 0 if plan is None else plan.snapshots, on_disk)


def make_cache(
    model: Model,
    types: tuple[str, ...],
    positions: int,
    *,
    keep: bool,
    plan: SlotPlan | None,
    store: StateStore | None = None,
) -> KvCache:
    """Return the state that an engine hands out.

    Args:
        model: Whose state it is. That of an encoder has neither pages nor slots.
        types: Of keys and values.
        positions: There is room for so many of the first type, whatever types take the room.
        keep: Whether computed state is kept for equal beginnings.
        plan: Of the slots; None where the model has no recurrent state.
        store: Keeps snapshots, and pages that the pools have no room for; None: nothing does.
    """
    slots = None
    if plan is not None:
        slots = SlotCache(model.new_slots(plan.slots), plan)
    layers = model.graph.paged_layers
    if not layers:
        return KvCache([], 0, keep=keep, slots=slots, store=store)
    budget = positions * kv_bytes_per_token(layers, types[0])
    pools = []
    for kv_type in types:
        page = kv_bytes_per_token(layers, kv_type) * PAGE_POSITIONS
        pools.append(model.new_pages(kv_type, budget // page))
    return KvCache(pools, budget, keep=keep, slots=slots, store=store)


def default_ctx_size(config: ModelConfig, checkpoint: Checkpoint) -> int:
    """Return the model's own context, cut to what the machine's memory suits."""
    suited = recommend(checkpoint.file, checkpoint.path).context(physical_memory() / (1 << 30))
    return min(config.max_position_embeddings, suited)


def fit_ctx_size(
    model: Model,
    kv_type: str,
    ctx_size: int | None,
    parallel: int,
    plan: SlotPlan | None = None,
) -> int:
    """Return the context of each sequence on the model's devices.

    Args:
        model: With its weights on the device.
        kv_type: Of the cache.
        ctx_size: What the user asks for; None: as much as suits, up to the default.
        parallel: Sequences that the cache holds at full length.
        plan: Of the slots of recurrent state, which take their memory first; None: there are none.

    Raises:
        CapacityError: A device's memory is too small.
    """
    wanted = ctx_size
    if wanted is None:
        wanted = default_ctx_size(model.config, model.weights.checkpoint)
    fitting = wanted
    for device, graph in model.stages:
        free_bytes = device.free_bytes
        if free_bytes is None:  # the machine's memory, taken as pages and slots are written
            continue
        room = int(free_bytes * (1.0 - _WORKING_SHARE))
        if plan is not None and graph.slot_entries:
            room -= _checked_slots(graph.slot_entries, plan, room)
        page = PAGE_POSITIONS * kv_bytes_per_token(graph.paged_layers, kv_type) * parallel
        if page == 0 or room // page * PAGE_POSITIONS >= wanted:
            continue
        here = room // page * PAGE_POSITIONS
        if ctx_size is not None or here == 0:
            needed = -(-wanted // PAGE_POSITIONS) * page
            raise CapacityError(
                f"{parallel} sequences of {wanted} positions with {kv_type} keys and values take "
                f"{needed / 1e9:.2f} GB; of the device's {free_bytes / 1e9:.2f} GB that are free behind "
                f"the weights, {room / 1e9:.2f} GB may be used, which is {here} positions: choose a "
                "smaller ctx_size, fewer sequences (parallel) or another kv_type"
            )
        fitting = min(fitting, here)
    return fitting


def _checked_slots(entries: list[int], plan: SlotPlan, room: int) -> int:
    """Return the bytes of all slots; CapacityError where they are more than the room."""
    slot = _core.slot_bytes(entries)
    if plan.slots * slot > room:
        raise CapacityError(
            f"{plan.slots} slots of recurrent state, {slot} bytes each, take "
            f"{plan.slots * slot / 1e9:.2f} GB of the {room / 1e9:.2f} GB of the device that may be "
            "used: choose fewer sequences (parallel)"
        )
    return plan.slots * slot
