"""The types of cached keys and values, by their names; imported without the core."""

from __future__ import annotations

from oxibonsai.errors import RequestError

KV_TYPES = ("f32", "f16", "q8_0", "q4_0", "fp8_e4m3")
_ALIASES = {"fp8": "fp8_e4m3"}  # as in vLLM
# Further types of llama.cpp and vLLM, with the one here that comes closest.
_NEAREST = {
    "bf16": "f16",
    "q5_0": "q8_0",
    "q5_1": "q8_0",
    "q4_1": "q4_0",
    "iq4_nl": "q4_0",
    "fp8_e5m2": "fp8_e4m3",
}
# Models whose cache is small anyway keep full precision. A function of the model alone, never of the
# machine: the type decides the bytes of the text.
_F32_BYTES_PER_TOKEN = 64 * 1024


def suited_kv_type(f32_bytes_per_token: int) -> str:
    """Return the type for models of which nobody names one: f32 up to 64 KiB a token, else f16."""
    return "f32" if f32_bytes_per_token <= _F32_BYTES_PER_TOKEN else "f16"


def find_kv_type(name: str) -> str:
    """Return the type of a name in any case.

    Raises:
        RequestError: There is no such type; the message names the nearest, or all.
    """
    found = name.lower()
    found = _ALIASES.get(found, found)
    if found in KV_TYPES:
        return found
    if found in _NEAREST:
        raise RequestError(f"the cache has no type {name}; the nearest is {_NEAREST[found]}")
    raise RequestError(f"the cache has no type {name}; it is one of {', '.join(KV_TYPES)}")
