"""Rotary embeddings: ``config.json`` to ``*.rope.*`` and Llama 3's table of factors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.errors import FormatError, UnsupportedError

PARTIAL = "partial_rotary_factor"
_ORIGINAL = "original_max_position_embeddings"
# What each kind needs beside rope_theta.
_NUMBERS = {
    "default": [],
    "mrope": [],
    "linear": ["factor"],
    "dynamic": ["factor"],
    "yarn": ["factor", _ORIGINAL],
    "llama3": ["factor", "low_freq_factor", "high_freq_factor", _ORIGINAL],
}


def read_rope(
    folder: ModelFolder, kinds: tuple[str, ...], rope: Any = None, *, also: Collection[str] = ()
) -> tuple[str, dict[str, float]]:
    """The kind of scaling and its numbers, ``rope_theta`` among them.

    Older configurations hold ``rope_theta`` and ``rope_scaling``, newer ones ``rope_parameters``.

    Args:
        folder: With ``config.json``.
        kinds: Those that the architecture has.
        rope: The object to read; None: the configuration's only one.
        also: Names in it that the architecture reads elsewhere.
    """
    config, where = folder.config, folder.path / "config.json"
    if rope is None:
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise FormatError(f"{where}: the rotary embedding is {rope!r}, no object")
    rope = {"rope_theta": config.get("rope_theta"), **rope}
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    rope.pop("type", None)
    if kind not in kinds:
        raise UnsupportedError(
            f"{where}: rope_type is {kind!r}; convert knows {', '.join(map(repr, kinds))}"
        )
    numbers = ["rope_theta", *_NUMBERS[kind]]
    if kind == "yarn" and rope.get(_ORIGINAL) is None:
        rope[_ORIGINAL] = config.get(_ORIGINAL) or config.get("max_position_embeddings")
    for name in rope:
        if name not in numbers and name not in also:
            raise UnsupportedError(f"{where}: the rotary embedding has {name}, which convert lacks")
    for name in numbers:
        value = rope.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
            raise FormatError(f"{where}: {name} is {value!r}, not a positive number")
    return kind, {n: float(rope[n]) for n in numbers}


def rotary_dims(folder: ModelFolder, width: int, *names: str, share: float = 1.0) -> int:
    """Rotated dims of a head of ``width``, from the share that the configuration states.

    Args:
        folder: With ``config.json``.
        width: Dims of a head.
        names: What older configurations call the share.
        share: Where none says.
    """
    rope = folder.config.get("rope_parameters") or {}
    stated = rope.get(PARTIAL) if isinstance(rope, dict) else None
    for name in (PARTIAL, *names):
        stated = folder.config.get(name) if stated is None else stated
    value = share if stated is None else stated
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 < value <= 1.0 or int(value * width) % 2 != 0:
        raise FormatError(
            f"{folder.path / 'config.json'}: {value!r} of a head of {width} dims is to be rotated, "
            "no even part"
        )
    return int(value * width)


def rope_keys(architecture: str, kind: str, numbers: dict[str, float]) -> Metadata:
    """GGUF's keys of what ``read_rope`` found; Llama 3's scaling is in ``llama3_factors``."""
    prefix = f"{architecture}.rope"
    keys: Metadata = {f"{prefix}.freq_base": (numbers["rope_theta"], "f32")}
    if kind in ("linear", "yarn"):
        keys[f"{prefix}.scaling.type"] = (kind, "str")
        keys[f"{prefix}.scaling.factor"] = (numbers["factor"], "f32")
    if kind == "yarn":
        keys[f"{prefix}.scaling.original_context_length"] = (int(numbers[_ORIGINAL]), "u32")
    return keys


# What newer configurations say of YaRN besides, with GGUF's names.
YARN_MORE = {
    "attention_factor": "yarn_attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}


def yarn_keys(folder: ModelFolder, architecture: str, rope: Any = None) -> Metadata:
    """GGUF's keys of ``YARN_MORE``, where the rotary embedding has them; arguments as of ``read_rope``."""
    if rope is None:
        rope = folder.config.get("rope_parameters") or folder.config.get("rope_scaling") or {}
    found: Metadata = {}
    for name, key in YARN_MORE.items():
        value = rope.get(name) if isinstance(rope, dict) else None
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise FormatError(f"{folder.path / 'config.json'}: {name} is {value!r}, not above zero")
        found[f"{architecture}.rope.scaling.{key}"] = (float(value), "f32")
    return found


def llama3_factors(numbers: dict[str, float], head_dim: int) -> npt.NDArray[np.float32]:
    """Divisors of the frequencies, one a pair, as Llama 3.1 defines them.

    Wavelengths above ``original / low`` are stretched by the factor, those below
    ``original / high`` are kept, and between them the frequencies are mixed linearly in the number of
    turns over the original context.
    """
    low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
    if high <= low:
        raise FormatError(f"high_freq_factor {high} is not above low_freq_factor {low}")
    pairs = np.arange(head_dim // 2, dtype=np.float64)
    turns = numbers[_ORIGINAL] * numbers["rope_theta"] ** (-2 * pairs / head_dim) / (2 * np.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - share) / numbers["factor"] + share)).astype(np.float32)
