"""AFMoE (Arcee's Trinity): gated attention, norms around each half, sigmoid routing beside shared experts.

Every fourth layer sees all keys and rotates nothing; the others are rotated and see a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, gemma, mixture
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import GroupedExperts, Mixture, Scoring, SharedExperts
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    FACTOR,
    count,
    count_or_zero,
    field,
    fixed,
    flag,
    real,
)
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.windows import LocalLayers, window_of
from oxibonsai.graph import Builder, RopeConfig, Value

_PERIOD = 4
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_mlp_layernorm": "ffn_norm",
    "post_mlp_layernorm": "post_ffw_norm",
}
GATE = {"self_attn.gate_proj": "attn_gate"}


@dataclass(frozen=True, kw_only=True)
class Config(GroupedExperts, Mixture):
    """The fields of a model."""

    attention_bias: bool = fixed(False, name="attention_bias")
    mup_enabled: bool = fixed(True, name="mup_enabled", required=True)  # GGUF has no key for it
    shared_intermediate_size: int = field(SharedExperts("num_shared_experts", told=False))
    first_dense_layers: int = count_or_zero(
        "num_dense_layers", "leading_dense_block_count", default=1
    )
    scoring: str = field(Scoring("sigmoid", "score_func"))
    norm_topk_prob: bool = flag(
        "route_norm", "expert_weights_norm", default=True, key_default=False
    )
    routed_scaling_factor: float = real(
        "route_scale", "expert_weights_scale", FACTOR, default=1.0, key_default=1.0
    )
    global_attn_every_n_layers: int = fixed(_PERIOD, name="global_attn_every_n_layers")
    sliding_window: int = count("sliding_window", "attention.sliding_window")
    local_layers: tuple[bool, ...] = field(LocalLayers(_PERIOD, keyed=False))
    rope: RopeConfig = field(Rope(("default", "linear", "yarn"), counted=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**NORMS, **decoder.HEAD_NORMS})
        yield from decoder.matrices(i, {**decoder.ATTENTION, **GATE})
        if i < c.first_dense_layers:
            yield from decoder.matrices(i, decoder.MLP)
            continue
        yield from mixture.router(i, "mlp.router.gate")
        yield from mixture.selection_bias(i, "mlp.expert_bias", optional=False)
        yield from mixture.each_expert(c, i)
        if c.shared_intermediate_size:
            yield from decoder.matrices(i, mixture.shared_names("mlp.shared_experts"))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b, window = f"blk.{i}", window_of(c, i)
    x = norm(g, c, w, h, f"{b}.attn_norm")
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    (gate,) = g.linear(x, w.matrix(f"{b}.attn_gate", q.cols, c.hidden_size))
    q, k = blocks.head_norms(g, c, w, q, k, i)
    if window:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = g.sigmoid_gate(gate, blocks.attention(g, c, q, k, v, i, window=window))
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
    x = mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"{b}.ffn_norm"), i)
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


FAMILY = Family("afmoe", ("afmoe",), "Afmoe", "AFMoE", Config, tensors, layer, gemma.embed)
