"""The field of a rotary embedding: ``rope_theta`` and ``rope_parameters`` here, keys ``rope.`` there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.architectures.schema.fields import GgufKeys, Known
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.windows import FULL
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import RopeConfig

PARTIAL = "partial_rotary_factor"
ORIGINAL = "original_max_position_embeddings"
# A key of ours: llama.cpp has none for dynamic NTK scaling and runs such a model within its original
# context, where nothing is scaled.
DYNAMIC_FACTOR = "rope.scaling.dynamic_factor"
# What each kind needs beside rope_theta.
_NUMBERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "mrope": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", ORIGINAL),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL),
}


@dataclass(frozen=True)
class Rope:
    """The rotary embedding that all layers share.

    Attributes:
        kinds: Of scaling that the family has, by their names in ``config.json``.
        interleaved: Whether neighbours are rotated; else the halves of a head.
        counted: Whether a file states how many dims of a head are rotated.
        share: Of a head's dims that is rotated, where ``config.json`` does not say.
        share_names: What older configurations call the share.
        theta: The base of frequencies where ``config.json`` does not say; None: it must.
        theta_name: What older configurations call it.
        also: Names in the object ``rope_parameters`` that other fields read.
    """

    kinds: tuple[str, ...]
    interleaved: bool = False
    counted: bool = False
    share: float = 1.0
    share_names: tuple[str, ...] = ()
    theta: float | None = None
    theta_name: str = "rope_theta"
    also: tuple[str, ...] = ()

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes: that of layers that see all."""
        return self.read_object(config, known, rope_of_kind(config, FULL))

    def read_object(self, config: ConfigJson, known: Known, rope: Any) -> RopeConfig:
        """Return the embedding that an object describes; None: the only one of ``config.json``."""
        theta = config.get("rope_theta", self.theta_name)
        base = self.theta if theta is None else theta
        plain = replace(config, fields={**config.fields, "rope_theta": base})
        kind, numbers = read_rope(plain, self.kinds, rope, also=(*self.also, PARTIAL))
        dims = rotary_dims(config, known["head_dim"], *self.share_names, share=self.share)
        if dims != known["head_dim"] and self.share == 1.0 and not self.share_names:
            raise config.unsupported(f"{PARTIAL} is not 1, which this family's files cannot say")
        scaled = kind in ("linear", "yarn", "dynamic") and numbers["factor"] != 1.0
        if kind == "dynamic" and (numbers["factor"] < 1.0 or dims < 4):
            raise config.fail(
                f"rope_type dynamic with a factor of {numbers['factor']} for {dims} dims: the factor is 1 "
                "or more, and 4 dims or more are rotated"
            )
        original = {"yarn": numbers.get(ORIGINAL), "dynamic": known["max_position_embeddings"]}
        factors = llama3_factors(config, numbers, dims) if kind == "llama3" else ()
        return RopeConfig(
            dims,
            numbers["rope_theta"],
            scaling=kind if scaled else "none",
            factor=numbers["factor"] if scaled else 1.0,
            original_context=int(original.get(kind) or 0) if scaled else 0,
            frequency_factors=tuple(float(f) for f in factors),
            interleaved=self.interleaved,
        )

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``; UnsupportedError if nothing is rotated."""
        if value.rotary_dim == 0:
            raise UnsupportedError("its heads are not rotated; save it as gguf")
        found = {"rope_theta": value.theta, "rope_scaling": scaling_fields(value)}
        if value.rotary_dim != c.head_dim:
            found[PARTIAL] = value.rotary_dim / c.head_dim
        return found

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys, and its table of factors, describe."""
        return keys.rope(known["head_dim"], interleaved=self.interleaved)

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys that describe the embedding, but for Llama 3's table of factors."""
        found: GgufKeys = {}
        if self.counted:
            found["rope.dimension_count"] = (value.rotary_dim, "u32")
        found["rope.freq_base"] = (value.theta, "f32")
        if value.scaling == "dynamic":
            found[DYNAMIC_FACTOR] = (value.factor, "f32")
        elif value.scaling != "none":
            found["rope.scaling.type"] = (value.scaling, "str")
            found["rope.scaling.factor"] = (value.factor, "f32")
        if value.scaling == "yarn":
            found["rope.scaling.original_context_length"] = (value.original_context, "u32")
        return found


# What newer configurations say of YaRN besides, with GGUF's names.
YARN_NUMBERS = {
    "attention_factor": "yarn_attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}


@dataclass(frozen=True)
class YarnNumbers:
    """Numbers of YaRN that ``config.json`` may state: a file gets those that it does."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[tuple[str, float], ...]:
        """Return the numbers that ``config.json`` says, by GGUF's names."""
        rope = rope_of_kind(config, FULL) or config.get("rope_parameters", "rope_scaling")
        return yarn_numbers(config, rope if isinstance(rope, dict) else {})

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return no field: :class:`Rope` refuses numbers that are not the usual ones."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[tuple[str, float], ...]:
        """Return the numbers that a file says."""
        stated = ((name, keys.get(f"rope.scaling.{name}")) for name in YARN_NUMBERS.values())
        return tuple((name, value) for name, value in stated if value is not None)

    def write_gguf(self, value: tuple[tuple[str, float], ...], c: Any) -> GgufKeys:
        """Return the keys of the numbers."""
        return {f"rope.scaling.{name}": (number, "f32") for name, number in value}


def rope_of_kind(config: ConfigJson, kind: str) -> Any:
    """Return the object that describes the embedding of one kind of layers; None: there is one for all."""
    rope = config.fields.get("rope_parameters")
    return rope.get(kind) if isinstance(rope, dict) and FULL in rope else None


def yarn_numbers(config: ConfigJson, rope: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    """Return the numbers of YaRN that an object states, by GGUF's names."""
    return tuple(
        (key, config.number(rope[name], name, 1e6))
        for name, key in YARN_NUMBERS.items()
        if rope.get(name) is not None
    )


def read_rope(
    config: ConfigJson, kinds: Collection[str], rope: Any = None, *, also: Collection[str] = ()
) -> tuple[str, dict[str, float]]:
    """Return the kind of scaling and its numbers, ``rope_theta`` among them.

    Older configurations hold ``rope_theta`` and ``rope_scaling``, newer ones ``rope_parameters``.

    Args:
        config: ``config.json``.
        kinds: Those that the family has.
        rope: The object to read; None: the only one of ``config.json``.
        also: Names in it that something else reads.
    """
    if rope is None:
        rope = config.fields.get("rope_parameters") or config.fields.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise config.fail(f"the rotary embedding is {rope!r}, no object")
    rope = {"rope_theta": config.fields.get("rope_theta"), **rope}
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    rope.pop("type", None)
    if kind not in kinds:
        known = ", ".join(map(repr, kinds))
        raise config.unsupported(f"rope_type is {kind!r}; convert knows {known}")
    numbers = ("rope_theta", *_NUMBERS[kind])
    if kind == "yarn" and rope.get(ORIGINAL) is None:
        rope[ORIGINAL] = config.get(ORIGINAL, "max_position_embeddings")
    for name in rope:
        if name not in numbers and name not in also:
            raise config.unsupported(f"the rotary embedding has {name}, which convert lacks")
    found = {name: config.number(rope.get(name), name, 2**31) for name in numbers}
    if found["rope_theta"] <= 1.0:
        raise config.fail(f"rope_theta is {found['rope_theta']}, not above 1")
    return kind, found


def rotary_dims(config: ConfigJson, width: int, *names: str, share: float = 1.0) -> int:
    """Return the rotated dims of a head of ``width``, from the share that ``config.json`` states.

    Args:
        config: ``config.json``.
        width: Dims of a head.
        names: What older configurations call the share.
        share: Where none says.
    """
    rope = config.fields.get("rope_parameters") or {}
    stated = rope.get(PARTIAL) if isinstance(rope, dict) else None
    if stated is None:
        stated = config.get(PARTIAL, *names)
    value = share if stated is None else stated
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 < value <= 1.0 or int(value * width) % 2 != 0:
        raise config.fail(f"{value!r} of a head of {width} dims is to be rotated, no even part")
    return int(value * width)


def llama3_factors(
    config: ConfigJson, numbers: dict[str, float], dims: int
) -> npt.NDArray[np.float32]:
    """Return the divisors of the frequencies, one a pair, as Llama 3.1 defines them.

    Wavelengths above ``original / low`` are stretched by the factor, those below
    ``original / high`` are kept, and between them the frequencies are mixed linearly in the number of
    turns over the original context.

    Args:
        config: For errors.
        numbers: Those of the kind ``llama3``.
        dims: Rotated dims of a head.
    """
    low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
    if high <= low:
        raise config.fail(f"high_freq_factor {high} is not above low_freq_factor {low}")
    return _factors(numbers, numbers["rope_theta"], dims)


def _factors(numbers: dict[str, float], theta: float, dims: int) -> npt.NDArray[np.float32]:
    low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
    pairs = np.arange(dims // 2, dtype=np.float64)
    turns = numbers[ORIGINAL] * theta ** (-2 * pairs / dims) / (2 * np.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - share) / numbers["factor"] + share)).astype(np.float32)


def scaling_fields(rope: RopeConfig) -> dict[str, Any] | None:
    """Return what stretches the positions, under Hugging Face's names; None: nothing does.

    Raises:
        UnsupportedError: No field has a place for it.
    """
    usual = (rope.beta_fast, rope.beta_slow, rope.attention_factor) == (32.0, 1.0, 1.0)
    if not usual or (rope.frequency_factors and rope.scaling != "none"):
        raise UnsupportedError("its rope scaling can be saved as gguf only")
    if rope.frequency_factors:
        return {"rope_type": "llama3", **_llama3_numbers(rope)}
    if rope.scaling == "none":
        return None
    found: dict[str, Any] = {"rope_type": rope.scaling, "factor": rope.factor}
    if rope.scaling == "yarn":
        found[ORIGINAL] = rope.original_context
        if not rope.ramp_of_pairs:
            found |= {"truncate": False, "beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
    return found


def _llama3_numbers(rope: RopeConfig) -> dict[str, float]:
    """Return the constants that a table of factors was made from: a file has the table alone."""
    stored = np.array(rope.frequency_factors, dtype=np.float32)
    for power in range(4, 24):
        numbers = {
            "factor": float(round(stored.max())),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            ORIGINAL: 2**power,
        }
        trial = _factors(numbers, rope.theta, rope.rotary_dim)
        if np.allclose(trial, stored, rtol=1e-5, atol=0.0):
            return numbers
    raise UnsupportedError(
        "rope_freqs.weight is not what Llama 3's constants give; save it as gguf"
    )
