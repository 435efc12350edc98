"""Qwen2 with experts: biases on q, k and v, and beside the experts a shared one with a gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.layers import experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Fixed, biased, count, field, fixed
from oxibonsai.architectures.schema.operations import Expect
from oxibonsai.architectures.schema.tensors import Entry, vector
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    shared_intermediate_size: int = count(
        "shared_expert_intermediate_size",
        "expert_shared_feed_forward_length",
        key_default=mixture.intermediate_size,
    )
    norm_topk_prob: bool = fixed(False, name="norm_topk_prob")
    decoder_sparse_step: int = fixed(1, name="decoder_sparse_step")
    mlp_only_layers: list[int] = field(Fixed([], (None,), name="mlp_only_layers"))
    use_sliding_window: bool = fixed(False, name="use_sliding_window")
    qkv_bias: bool = biased("qkv_bias", *decoder.QKV.values(), default=True)
    rope: RopeConfig = field(Rope(("default", "linear", "yarn")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    gate = Expect((1, c.hidden_size))
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.QKV, biased=c.qkv_bias)
        yield from decoder.matrices(i, {"self_attn.o_proj": "attn_output"})
        yield from mixture.router(i, "mlp.gate")
        yield from mixture.each_expert(c, i)
        yield from decoder.matrices(i, mixture.shared_names("mlp.shared_expert"))
        parameter = f"model.layers.{i}.mlp.shared_expert_gate.weight"
        yield vector(parameter, f"blk.{i}.ffn_gate_inp_shexp.weight", gate)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = mixture.add_attention(g, c, w, i, h)
    x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
    h = mixture.add_experts(g, c, w, x, i, h)
    (gate,) = g.linear(x, w.row(f"blk.{i}.ffn_gate_inp_shexp", c.hidden_size))
    return g.add(h, g.gate_rows(experts.shared_expert(g, c, w, x, i), gate))


FAMILY = Family(
    "qwen2moe", ("qwen2_moe",), "Qwen2Moe", "Qwen2 with experts", Config, tensors, layer
)
