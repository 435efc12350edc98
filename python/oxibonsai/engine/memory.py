"""How much context a machine can hold."""

from __future__ import annotations

import os

from oxibonsai import _core
from oxibonsai.models.config import ModelConfig

# Largest context by physical memory in GiB: a model's own maximum would fill a small machine.
_CONTEXT_BY_GIB = ((11, 8192), (23, 16384), (35, 32768), (71, 65536))
_LARGEST_DEFAULT = 131072
# Models whose cache is small anyway keep full precision. A function of the model alone, never of the
# machine: the type decides the bytes of the text.
_F32_BYTES_PER_TOKEN = 64 * 1024


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


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
