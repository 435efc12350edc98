"""Plan the memory of sequences' state, and the context that it leaves room for."""

from __future__ import annotations

import os

from oxibonsai import _core
from oxibonsai.engine.kv_cache import PAGE_POSITIONS, KvCache
from oxibonsai.engine.slot_cache import SlotCache, SlotPlan
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.models import Model, ModelConfig

# Largest context by physical memory in GiB: a model's own maximum would fill a small machine.
_CONTEXT_BY_GIB = ((11, 8192), (23, 16384), (35, 32768), (71, 65536))
_LARGEST_DEFAULT = 131072
# Models whose cache is small anyway keep full precision. A function of the model alone, never of the
# machine: the type decides the bytes of the text.
_F32_BYTES_PER_TOKEN = 64 * 1024
# Snapshots of recurrent state, where nothing else is asked for.
_SNAPSHOT_BYTES = 1 << 30
# Of one sequence: at the end of its prompt and of its text.
_LEAST_SNAPSHOTS = 2
# A chunk of a prompt ends at a snapshot; shorter ones would read the weights more often.
_LEAST_INTERVAL = 256

# Of a device's free memory that is left for the values of a step.
_WORKING_SHARE = 0.1


def kv_bytes_per_token(layers: list[_core.PagedLayer], kv_type: str) -> int:
    """Bytes of the cache that one position takes in all layers, exactly; 0 where there are none.

    Args:
        layers: Of the cache.
        kv_type: Of the keys and values.

    Raises:
        RequestError: No such type; ``_core.KV_TYPES`` lists them.
    """
    return _core.kv_page_bytes(layers, kv_type) // PAGE_POSITIONS if layers else 0


def default_kv_type(layers: list[_core.PagedLayer]) -> str:
    """``"f32"`` for models that need at most 64 KiB a position with it, else ``"f16"``."""
    return "f32" if kv_bytes_per_token(layers, "f32") <= _F32_BYTES_PER_TOKEN else "f16"


def plan_slots(
    entries: list[int], *, ctx_size: int, parallel: int, ctx_checkpoints: int | None
) -> SlotPlan | None:
    """How many slots of recurrent state an engine has; None for a model without such state.

    Args:
        entries: Floats of each entry of a slot.
        ctx_size: Positions of a sequence.
        parallel: Sequences that run at once.
        ctx_checkpoints: Snapshots for each of them; None: those that fit in 1 GiB, but at least 2, and
            no more than a context has pages.

    Raises:
        RequestError: ``ctx_checkpoints`` is negative, or the model has no recurrent state.
    """
    if ctx_checkpoints is not None and ctx_checkpoints < 0:
        raise RequestError(f"ctx_checkpoints is {ctx_checkpoints}; it must be 0 or more")
    if not entries:
        if ctx_checkpoints is not None:
            raise RequestError(
                "ctx_checkpoints is given, but this model keeps no recurrent state: leave it out"
            )
        return None
    borders = -(-ctx_size // PAGE_POSITIONS)
    if ctx_checkpoints is None:
        fitting = _SNAPSHOT_BYTES // _core.slot_bytes(entries) // parallel
        ctx_checkpoints = min(max(fitting, _LEAST_SNAPSHOTS), borders)
    # Those of a prompt cover a whole context beside the last two.
    spread = max(ctx_checkpoints - _LEAST_SNAPSHOTS, 1)
    interval = -(-borders // spread) * PAGE_POSITIONS
    interval = -(-interval // _LEAST_INTERVAL) * _LEAST_INTERVAL
    return SlotPlan(parallel, parallel * ctx_checkpoints, interval)


def make_cache(
    model: Model, types: tuple[str, ...], positions: int, *, keep: bool, plan: SlotPlan | None
) -> KvCache:
    """Return the state that an engine hands out.

    Args:
        model: Whose state it is. That of an encoder has neither pages nor slots.
        types: Of keys and values.
        positions: There is room for so many of the first type, whatever types take the room.
        keep: Whether computed state is kept for equal beginnings.
        plan: Of the slots; None where the model has no recurrent state.
    """
    slots = None
    if plan is not None:
        slots = SlotCache(model.new_slots(plan.slots), plan)
    layers = model.graph.paged_layers
    if not layers:
        return KvCache([], 0, keep=keep, slots=slots)
    budget = positions * kv_bytes_per_token(layers, types[0])
    pools = []
    for kv_type in types:
        page = kv_bytes_per_token(layers, kv_type) * PAGE_POSITIONS
        pools.append(model.new_pages(kv_type, budget // page))
    return KvCache(pools, budget, keep=keep, slots=slots)


def default_ctx_size(config: ModelConfig) -> int:
    """Return the model's own context, cut to what the machine's memory suits."""
    gib = physical_memory() / (1 << 30)
    suited = next((size for limit, size in _CONTEXT_BY_GIB if gib <= limit), _LARGEST_DEFAULT)
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
    wanted = default_ctx_size(model.config) if ctx_size is None else ctx_size
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
    """Bytes of all slots; CapacityError where they are more than the room."""
    slot = _core.slot_bytes(entries)
    if plan.slots * slot > room:
        raise CapacityError(
            f"{plan.slots} slots of recurrent state, {slot} bytes each, take "
            f"{plan.slots * slot / 1e9:.2f} GB of the {room / 1e9:.2f} GB of the device that may be "
            "used: choose fewer sequences (parallel) or fewer snapshots (ctx_checkpoints)"
        )
    return plan.slots * slot


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
