"""The types of cached keys and values, by their names; imported without the core."""

from __future__ import annotations

from oxibonsai.errors import RequestError

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
# llama.cpp's further types, with the one here that comes closest.
_NEAREST = {"bf16": "f16", "q5_0": "q8_0", "q5_1": "q8_0", "q4_1": "q4_0", "iq4_nl": "q4_0"}


def find_kv_type(name: str) -> str:
    """Return the type of a name in any case.

    Raises:
        RequestError: There is no such type; the message names the nearest, or all.
    """
    found = name.lower()
    if found in KV_TYPES:
        return found
    if found in _NEAREST:
        raise RequestError(f"the cache has no type {name}; the nearest is {_NEAREST[found]}")
    raise RequestError(f"the cache has no type {name}; it is one of {', '.join(KV_TYPES)}")
