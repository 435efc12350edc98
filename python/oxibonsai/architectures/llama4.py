"""Llama 4: attention within chunks, every few layers over all without positions; experts between.

An expert reads its input times its score, so that the score acts before the activation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import (
    FACTOR,
    Fixed,
    GgufKeys,
    Implied,
    Kind,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import Split, Transpose
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.graph import Builder, RopeConfig, Value

# Where a file does not say: all published models have chunks of so many tokens, and queries that grow
# at multiples of it.
CHUNK, GROWTH = 8192, 0.1
PERIOD = 4  # the last layer of each sees all
# The model with so many experts has no norms of queries and keys; no key says it.
EXPERTS_WITHOUT_NORMS = 128
CHUNK_KEY = "attention.sliding_window"
DENSE = {f"feed_forward.{part}": tensor for part, tensor in mixture.PROJECTIONS.items()}
CHUNK_SIZE = Kind("u32", ConfigJson.count, lambda keys, key, default: keys.count(key, default))


@dataclass(frozen=True)
class Unwritten(Implied):
    """A field that follows from others; ``config.json`` may leave it out."""

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value; UnsupportedError where ``config.json`` says another one."""
        if config.fields.get(self.name) is None:
            return self.value(known)
        return super().read_config_json(config, known)

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}


@dataclass(frozen=True)
class ChunkedLayers:
    """Whether each layer attends within chunks, and has positions; a file without chunks has all so."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[bool, ...]:
        """Return the value; UnsupportedError where ``config.json`` says other layers."""
        usual = [int((i + 1) % PERIOD != 0) for i in range(known["num_hidden_layers"])]
        Fixed(usual, (None, []), name="no_rope_layers").read_config_json(config, known)
        kinds = ["chunked_attention" if local else "full_attention" for local in usual]
        Fixed(kinds, (None,), name="layer_types").read_config_json(config, known)
        return tuple(map(bool, usual))

    def write_config_json(self, value: tuple[bool, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"no_rope_layers": [int(local) for local in value]}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[bool, ...]:
        """Return the value that a file says."""
        if known["attention_chunk_size"] == 0:
            return (True,) * int(known["num_hidden_layers"])
        return keys.local_layers(PERIOD)

    def write_gguf(self, value: tuple[bool, ...], c: Any) -> GgufKeys:
        """Return no key."""
        return {}


def _expert_layers(known: Known) -> list[int]:
    step = known["layer_step"]
    return list(range(step - 1, known["num_hidden_layers"], step))


def _expert_width(known: Known) -> int:
    return int(known["moe_intermediate_size"])


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    intermediate_size: int = count("intermediate_size_mlp", "feed_forward_length")
    num_experts: int = count(("num_local_experts", "num_experts"), "expert_count")
    moe_intermediate_size: int = count("intermediate_size", "expert_feed_forward_length")
    shared_intermediate_size: int = count((), default=_expert_width, key_default=_expert_width)
    layer_step: int = count("interleave_moe_layer_step", "interleave_moe_layer_step")
    scoring: str = constant("sigmoid")
    norm_topk_prob: bool = constant(False)
    routed_scaling_factor: float = real(
        (), "expert_weights_scale", FACTOR, default=1.0, key_default=1.0, unsaid=True
    )
    rope: RopeConfig = field(Rope(("default", "llama3"), interleaved=True, counted=True))
    layers_with_experts: list[int] = field(Unwritten("moe_layers", _expert_layers))
    attention_bias: bool = fixed(False, name="attention_bias")
    attn_temperature_tuning: bool = fixed(True, 4, name="attn_temperature_tuning")
    use_qk_norm: bool = field(
        Implied("use_qk_norm", lambda known: known["num_experts"] != EXPERTS_WITHOUT_NORMS)
    )
    attention_chunk_size: int = field(
        Stated(
            CHUNK_SIZE, ("attention_chunk_size",), CHUNK_KEY, key_default=CHUNK, unsaid=True,
            none_is=0,
        )
    )  # fmt: skip
    local_layers: tuple[bool, ...] = field(ChunkedLayers())
    floor_scale: int = count(
        "floor_scale", "attention.temperature_length", default=CHUNK, key_default=CHUNK, unsaid=True
    )
    attn_scale: float = real(
        "attn_scale", "attention.temperature_scale", default=GROWTH, key_default=GROWTH, unsaid=True
    )

    @property
    def rope_query(self) -> RopeConfig:
        """Return how queries of layers without positions grow with their place in the text."""
        return replace(
            self.rope,
            temperature=self.attn_scale,
            temperature_step=self.floor_scale,
            temperature_offset=1,
        )


def has_experts(c: Config, i: int) -> bool:
    """Return whether layer i has experts."""
    return (i + 1) % c.layer_step == 0


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; a folder has all experts in one parameter, with columns for rows."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    ff = c.moe_intermediate_size
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION)
        if not has_experts(c, i):
            yield from decoder.matrices(i, DENSE)
            continue
        yield from mixture.router(i, "feed_forward.router")
        yield from decoder.matrices(i, mixture.shared_names("feed_forward.shared_expert"))
        stem, b = f"model.layers.{i}.feed_forward.experts", f"blk.{i}.ffn"
        both = (f"{b}_gate_exps.weight", f"{b}_up_exps.weight")
        yield Tensor((f"{stem}.gate_up_proj",), both, (Transpose(), Split((ff, ff), axis=1)))
        yield Tensor((f"{stem}.down_proj",), (f"{b}_down_exps.weight",), (Transpose(),))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = _add_attention(g, c, w, i, h)
    x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
    if not has_experts(c, i):
        return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    routing = experts.route(g, c, w, x, i)
    mixed = experts.gated_experts(g, c, w, x, i, routing, g.swiglu, weigh_inputs=True)
    return experts.shared_expert(g, c, w, x, i, add=g.add(h, mixed))


def _add_attention(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    local, dim = c.local_layers[i], c.head_dim
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    if local:
        q, k = g.rope(q, c.rope, dim), g.rope(k, c.rope, dim)
    else:
        q = g.temper(q, c.rope_query, dim)
    if local and c.use_qk_norm:
        ones = np.ones(dim, dtype=np.float32)
        q, k = g.head_norm(q, ones, c.rms_norm_eps), g.head_norm(k, ones, c.rms_norm_eps)
    chunk = c.attention_chunk_size if local else 0
    a = g.attention(q, k, v, layer=i, head_dim=dim, scale=c.attention_scale, chunk=chunk)
    return blocks.attention_output(g, c, w, a, i, add=h)


FAMILY = Family(
    "llama4", ("llama4_text",), "Llama4", "Llama 4", Config, tensors, layer,
    embed_tokens_and_images, wrapper=Wrapper(("llama4",)),
)  # fmt: skip
