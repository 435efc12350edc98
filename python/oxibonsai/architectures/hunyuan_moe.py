"""Hunyuan with experts (A13B): q and k normalised after rope, a shared expert beside the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture, SharedExperts
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Checked,
    Field,
    GgufKeys,
    Known,
    Stated,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

HEAD_NORMS = {
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
}


@dataclass(frozen=True)
class Alike:
    """A field of which ``config.json`` may list the same number for each layer."""

    name: str
    described: Field

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value that ``config.json`` says."""
        stated = config.fields.get(self.name)
        if isinstance(stated, list) and stated and all(v == stated[0] for v in stated):
            config = replace(config, fields={**config.fields, self.name: stated[0]})
        return self.described.read_config_json(config, known)

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return self.described.write_config_json(value, c)

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value that a file says."""
        return self.described.read_gguf(keys, known)

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return the keys."""
        return self.described.write_gguf(value, c)


def alike(name: str, described: Field) -> Any:
    """Return such a field."""
    return field(Alike(name, described))


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    num_experts_per_tok: int = alike("moe_topk", mixture.used_experts("moe_topk"))
    # Neither transformers nor llama.cpp takes the width that folders and files state.
    moe_intermediate_size: int = count(
        (), default=mixture.intermediate_size, key_default=mixture.intermediate_size
    )
    stated_intermediate_size: int = alike(
        "moe_intermediate_size",
        Stated(
            COUNT, ("moe_intermediate_size",), "expert_feed_forward_length",
            key_default=mixture.intermediate_size,
        ),
    )  # fmt: skip
    shared_intermediate_size: int = alike(
        "num_shared_expert",
        Checked(
            SharedExperts("num_shared_expert", "intermediate_size", default=1),
            lambda known, width: "" if width else "it has no shared expert, as every layer must",
        ),
    )
    attention_bias: bool = fixed(False, name="attention_bias")
    rope: RopeConfig = field(Rope(("default",)))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **HEAD_NORMS})
        yield from decoder.matrices(i, decoder.ATTENTION)
        yield from mixture.router(i, "mlp.gate.wg")
        yield from mixture.each_expert(c, i)
        yield from decoder.matrices(i, mixture.shared_names("mlp.shared_mlp"))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b, eps = f"blk.{i}", c.rms_norm_eps
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), eps)
    k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), eps)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    return mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"{b}.ffn_norm"), i, add=h)


FAMILY = Family(
    "hunyuan-moe", ("hunyuan_v1_moe",), "HunYuanMoEV1", "Hunyuan with experts", Config, tensors,
    layer,
)  # fmt: skip
