"""How much context a machine can hold."""

from __future__ import annotations

import os

from oxibonsai import _core
from oxibonsai.errors import CapacityError
from oxibonsai.models.config import ModelConfig

# Largest context by physical memory in GiB: a model's own maximum would fill a small machine.
_CONTEXT_BY_GIB = ((11, 8192), (23, 16384), (35, 32768), (71, 65536))
_LARGEST_DEFAULT = 131072
# Models whose cache is small anyway keep full precision. A function of the model alone, never of the
# machine: the type decides the bytes of the text.
_F32_BYTES_PER_TOKEN = 64 * 1024

# Of a device's free memory that is left for the values of a step.
_WORKING_SHARE = 0.1


def kv_bytes_per_token(config: ModelConfig, kv_type: str) -> int:
    """Bytes of the cache that one position takes in all layers, exactly; 0 for an encoder.

    Raises:
        RequestError: No such type; ``_core.KV_TYPES`` lists them.
    """
    layers = config.paged_layers
    return _core.kv_page_bytes(layers, kv_type) // _core.PAGE_POSITIONS if layers else 0


def default_kv_type(config: ModelConfig) -> str:
    """``"f32"`` for models that need at most 64 KiB a position with it, else ``"f16"``."""
    return "f32" if kv_bytes_per_token(config, "f32") <= _F32_BYTES_PER_TOKEN else "f16"


def default_ctx_size(config: ModelConfig) -> int:
    """The model's own context, cut to what the machine's memory suits."""
    gib = physical_memory() / (1 << 30)
    suited = next((size for limit, size in _CONTEXT_BY_GIB if gib <= limit), _LARGEST_DEFAULT)
    return min(config.max_position_embeddings, suited)


def fit_ctx_size(
    config: ModelConfig,
    kv_type: str,
    ctx_size: int | None,
    parallel: int,
    free_bytes: int | None,
) -> int:
    """The context of each sequence on a device.

    Args:
        config: Of a model whose weights lie on the device already.
        kv_type: Of the cache.
        ctx_size: What the user asks for; None: as much as suits, up to the default.
        parallel: Sequences that the cache holds at full length.
        free_bytes: Of the device's own memory; None where it uses the machine's, whose pages are
            taken as they are written.

    Raises:
        CapacityError: The device's memory is too small.
    """
    wanted = default_ctx_size(config) if ctx_size is None else ctx_size
    page = _core.PAGE_POSITIONS * kv_bytes_per_token(config, kv_type) * parallel
    if free_bytes is None or page == 0:
        return wanted
    room = int(free_bytes * (1.0 - _WORKING_SHARE))
    fitting = room // page * _core.PAGE_POSITIONS
    if fitting >= wanted:
        return wanted
    if ctx_size is None and fitting > 0:
        return fitting
    needed = -(-wanted // _core.PAGE_POSITIONS) * page
    raise CapacityError(
        f"{parallel} sequences of {wanted} positions with {kv_type} keys and values take "
        f"{needed / 1e9:.2f} GB; of the device's {free_bytes / 1e9:.2f} GB that are free behind the "
        f"weights, {room / 1e9:.2f} GB may be used, which is {fitting} positions: choose a smaller "
        "ctx_size, fewer sequences (parallel) or another kv_type"
    )


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
