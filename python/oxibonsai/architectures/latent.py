"""Fields of latent attention.

The cache holds one vector for all heads, ``kv_lora_rank`` values and the rotated part of the keys. Files
that have the matrices of keys and of values apart state the dims of a head under keys ``_mla``, and those
in the cache under the plain ones; files that have one matrix state the dims of a head there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures.layers.latent import LatentConfig
from oxibonsai.architectures.schema.fields import (
    GgufKeys,
    Known,
    constant,
    count,
    count_or_zero,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Tensor, norm, weight
from oxibonsai.graph import RopeConfig

NOPE, ROPE, RANK, VALUE = "qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank", "v_head_dim"


def _apart(keys: Keys) -> bool:
    return keys.has("attention.key_length_mla")


def _head(keys: Keys) -> int:
    """Return the dims of a head's query, and check what else a file says of heads."""
    rope, rank = keys.integer("rope.dimension_count"), keys.integer("attention.kv_lora_rank")
    heads = keys.integer("attention.head_count")
    apart = _apart(keys)
    head = keys.integer("attention.key_length_mla" if apart else "attention.key_length")
    if apart:
        cached = (rank + rope, rank)
        stated = tuple(keys.integer(f"attention.{part}_length") for part in ("key", "value"))
        if stated != cached:
            raise keys.fail(f"keys and values of {stated} dims in the cache, where {cached} follow")
    kv_heads = keys.integer("attention.head_count_kv", 1 if apart else heads)
    if kv_heads != (1 if apart else heads) or head <= rope:
        raise keys.fail(f"heads of {head} dims, {rope} of them rotated, are no latent attention")
    return head


def _stated(config: ConfigJson, name: str) -> int:
    return config.count(config.get(name), name)


@dataclass(frozen=True)
class CachedHeads:
    """The heads of keys and values in the cache: one for all queries.

    Attributes:
        apart: Whether files have the matrices of keys and of values apart.
    """

    apart: bool

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return 1; where keys and values are one matrix, each head must have its own."""
        name = "num_key_value_heads"
        heads = known["num_attention_heads"]
        stated = heads if config.get(name) is None else _stated(config, name)
        if not self.apart and stated != heads:
            raise config.fail(f"{stated} key-value heads of {heads} heads are no latent attention")
        return 1

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, which counts them before the cache."""
        return {"num_key_value_heads": c.num_attention_heads}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return 1; the dims of a head are checked with what the file says."""
        return 1

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.head_count_kv": (1 if self.apart else c.num_attention_heads, "u32")}


@dataclass(frozen=True)
class CachedDim:
    """The values that a token has in the cache of a layer.

    Attributes:
        apart: Whether files have the matrices of keys and of values apart.
    """

    apart: bool

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return _stated(config, RANK) + _stated(config, ROPE)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("attention.kv_lora_rank") + keys.integer("rope.dimension_count")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys of both lengths."""
        head = c.qk_nope_head_dim + c.qk_rope_head_dim
        key, held = (value, c.kv_lora_rank) if self.apart else (head, c.v_head_dim)
        return {"attention.key_length": (key, "u32"), "attention.value_length": (held, "u32")}


@dataclass(frozen=True)
class PlainDim:
    """The dims of a head's query that are not rotated.

    Attributes:
        apart: Whether files have the matrices of keys and of values apart.
    """

    apart: bool

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return _stated(config, NOPE)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {NOPE: value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return _head(keys) - keys.integer("rope.dimension_count")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key of a head before the cache, if files have one."""
        head = (value + c.qk_rope_head_dim, "u32")
        return {"attention.key_length_mla": head} if self.apart else {}


@dataclass(frozen=True)
class ValueDim:
    """The dims of a head's value.

    Attributes:
        apart: Whether files have the matrices of keys and of values apart.
    """

    apart: bool

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says; the hidden size is shared out among the heads."""
        if config.get(VALUE) is None and not self.apart:
            return int(known["hidden_size"] // known["num_attention_heads"])
        return _stated(config, VALUE)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {VALUE: value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        if _apart(keys):
            return keys.integer("attention.value_length_mla")
        hidden, heads = known["hidden_size"], known["num_attention_heads"]
        usual = hidden // heads if hidden % heads == 0 else None
        return keys.integer("attention.value_length", usual)

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key of a head before the cache, if files have one."""
        return {"attention.value_length_mla": (value, "u32")} if self.apart else {}


@dataclass(frozen=True)
class HeadScale:
    """The factor of the scores, by the dims of a head before the cache."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` implies."""
        return float((_stated(config, NOPE) + _stated(config, ROPE)) ** -0.5)

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        return keys.real("attention.scale", _head(keys) ** -0.5)

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return no key: a folder cannot state another value."""
        return {}


def query_rank(**more: Any) -> Any:
    """Return the field of the width of the queries' latent vector; 0: there is none."""
    key = "attention.q_lora_rank"
    return count_or_zero("q_lora_rank", key, default=0, none_is=0, unsaid=True, **more)


def value_rank() -> Any:
    """Return the field of the width of the latent vector of keys and values."""
    return count(RANK, "attention.kv_lora_rank")


def rotated_dim() -> Any:
    """Return the field of the rotated dims of a head."""
    return count(ROPE, "rope.dimension_count")


@dataclass(frozen=True, kw_only=True)
class LatentSizes:
    """Properties that shared passes read of a config with these fields, whatever their order."""

    rope_query: RopeConfig | None = constant(None)

    @property
    def latent(self) -> LatentConfig:
        """Sizes of the latent vectors and of the heads."""
        return latent_of(self)


def latent_of(c: Any, norm_eps: float = 0.0) -> LatentConfig:
    """Return the sizes that a config has in its fields.

    Args:
        c: The config.
        norm_eps: Of the norms of latent vectors; 0: that of the other norms.
    """
    return LatentConfig(
        c.q_lora_rank, c.kv_lora_rank, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim,
        norm_eps,
    )  # fmt: skip


def latent_tensors(c: Any, i: int) -> Iterator[Tensor]:
    """Yield what a layer has beside the matrices of keys and values."""
    p, b = f"model.layers.{i}.self_attn", f"blk.{i}"
    if c.q_lora_rank:
        yield weight(f"{p}.q_a_proj", f"{b}.attn_q_a")
        yield norm(f"{p}.q_a_layernorm", f"{b}.attn_q_a_norm")
        yield weight(f"{p}.q_b_proj", f"{b}.attn_q_b")
    else:
        yield weight(f"{p}.q_proj", f"{b}.attn_q")
    yield weight(f"{p}.kv_a_proj_with_mqa", f"{b}.attn_kv_a_mqa")
    yield norm(f"{p}.kv_a_layernorm", f"{b}.attn_kv_a_norm")
    yield weight(f"{p}.o_proj", f"{b}.attn_output")
