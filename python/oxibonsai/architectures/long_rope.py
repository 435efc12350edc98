"""LongRoPE: two tables of divisors of the frequencies, for short and for long texts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures.rotary import ORIGINAL, rotary_dims, scaling_fields
from oxibonsai.architectures.schema.fields import GgufKeys, Known
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import FromConfig
from oxibonsai.graph import RopeConfig

SHORT, LONG = "rope_factors_short.weight", "rope_factors_long.weight"
_KINDS = ("default", "longrope", "su")


@dataclass(frozen=True)
class LongRope:
    """The tables of a model.

    Attributes:
        original: Positions of the model before its context was extended.
        short, long: Divisors of the frequencies, one a pair.
        magnitude: The factor of cos and sin.
    """

    original: int
    short: tuple[float, ...]
    long: tuple[float, ...]
    magnitude: float


@dataclass(frozen=True)
class ScaledRope:
    """The rotary embedding of a model that may have such tables."""

    def dims(self, config: ConfigJson, known: Known) -> int:
        """Return the rotated dims that ``config.json`` says."""
        return rotary_dims(config, known["head_dim"])

    def head_dim(self, keys: Keys, known: Known) -> int:
        """Return the dims of a head of which a file says how many are rotated."""
        width: int = known["head_dim"]
        return width

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding for texts as long as the model's context."""
        theta = _object(config).get("rope_theta", config.fields.get("rope_theta", 10000.0))
        number = isinstance(theta, int | float) and not isinstance(theta, bool)
        if not number or not 1 < theta < 2**31:
            raise config.fail(f"rope_theta is {theta!r}, not above one")
        dims, tables = self.dims(config, known), self.read_tables(config, known)
        if tables is None:
            return RopeConfig(dims, float(theta))
        extended = known["max_position_embeddings"] > tables.original
        return RopeConfig(
            dims,
            float(theta),
            attention_factor=tables.magnitude,
            frequency_factors=tables.long if extended else tables.short,
        )

    def read_tables(self, config: ConfigJson, known: Known) -> LongRope | None:
        """Return the tables that ``config.json`` has; None: there are none."""
        rope, found = _object(config), dict[str, tuple[float, ...]]()
        for length in ("short", "long"):
            values = rope.get(f"{length}_factor")
            if values is None:
                continue
            pairs = self.dims(config, known) // 2
            numbers = isinstance(values, list) and all(
                isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < 1e6
                for v in values
            )
            if not numbers or len(values) != pairs:
                raise config.fail(f"{length}_factor does not list {pairs} numbers above 0")
            found[length] = tuple(float(np.float32(v)) for v in values)
        if not found:
            return None
        if len(found) == 1:
            raise config.fail("has one of long_factor and short_factor")
        original = original_context(config, known)
        return LongRope(original, found["short"], found["long"], _magnitude(config, known))

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the embedding."""
        tables: LongRope | None = c.long_rope
        if tables is None:
            return {"rope_theta": value.theta, "rope_scaling": scaling_fields(value)}
        scaling = {
            "rope_type": "longrope",
            "short_factor": _as_meant(tables.short),
            "long_factor": _as_meant(tables.long),
            ORIGINAL: tables.original,
        }
        return {"rope_theta": value.theta, "rope_scaling": scaling}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys and tables describe."""
        return keys.rope(self.head_dim(keys, known))

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the key of the base."""
        return {"rope.freq_base": (value.theta, "f32")}


@dataclass(frozen=True)
class Tables:
    """The tables of LongRoPE.

    Attributes:
        rope: The field of the embedding that has them.
    """

    rope: ScaledRope

    def read_config_json(self, config: ConfigJson, known: Known) -> LongRope | None:
        """Return the tables that ``config.json`` has."""
        return self.rope.read_tables(config, known)

    def write_config_json(self, value: LongRope | None, c: Any) -> dict[str, Any]:
        """Return no field: the embedding writes them."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> LongRope | None:
        """Return the tables that a file has."""
        if LONG not in keys.tensor_names:
            return None
        short, long = (tuple(float(v) for v in keys.tensor_values(n)) for n in (SHORT, LONG))
        whole: int = known["max_position_embeddings"]
        original = keys.integer("rope.scaling.original_context_length", whole)
        return LongRope(original, short, long, keys.positive("rope.scaling.attn_factor", 1.0))

    def write_gguf(self, value: LongRope | None, c: Any) -> GgufKeys:
        """Return the keys beside the tables."""
        if value is None:
            return {}
        return {
            "rope.scaling.original_context_length": (value.original, "u32"),
            "rope.scaling.attn_factor": (value.magnitude, "f32"),
        }


def table_tensors(tables: LongRope | None) -> Iterator[FromConfig]:
    """Yield the tables of a model that has them."""
    if tables is not None:
        yield FromConfig(SHORT, np.array(tables.short, np.float32))
        yield FromConfig(LONG, np.array(tables.long, np.float32))


def original_context(config: ConfigJson, known: Known) -> int:
    """Return the positions of the model before its context was extended."""
    found = _object(config).get(ORIGINAL, config.fields.get(ORIGINAL))
    if found is None:
        whole: int = known["max_position_embeddings"]
        return whole
    if isinstance(found, bool) or not isinstance(found, int) or not 1 < found < 2**31:
        raise config.fail(f"{ORIGINAL} is {found!r}, not a count")
    return found


def _magnitude(config: ConfigJson, known: Known) -> float:
    """Return the magnitude of cos and sin, stated or from the extension."""
    original = original_context(config, known)
    times = known["max_position_embeddings"] / original
    stated = _object(config).get("long_mscale" if times > 1.0 else "short_mscale")
    if stated is None:
        return math.sqrt(1.0 + math.log(times) / math.log(original)) if times > 1.0 else 1.0
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 < stated < 100:
        raise config.fail(f"mscale is {stated!r}, not above zero")
    return float(stated)


def _object(config: ConfigJson) -> dict[str, Any]:
    """Return the object of ``config.json`` that describes the embedding."""
    rope = config.fields.get("rope_parameters") or config.fields.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise config.fail(f"the rotary embedding is {rope!r}, no object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in _KINDS:
        raise config.unsupported(f"rope_type is {kind!r}; convert knows default and longrope")
    return rope


def _as_meant(values: tuple[float, ...]) -> list[float]:
    """Return the decimals that were meant by float32 values of a file."""
    return [float(str(np.float32(value))) for value in values]
