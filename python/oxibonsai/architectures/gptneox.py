"""GPT-NeoX and Pythia: LayerNorm, a part of each head rotated, halves side by side or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import field, fixed, flag
from oxibonsai.architectures.schema.operations import Operation, PermuteGrid
from oxibonsai.architectures.schema.tensors import Entry, bias, norm, weight
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "gpt_neox.layers"
PARTS = {
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}


@dataclass(frozen=True)
class NeoxRope(Rope):
    """A rotary embedding whose share of a head older configurations say."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the embedding."""
        share = value.rotary_dim / c.head_dim
        return {**super().write_config_json(value, c), "rotary_pct": share}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    num_key_value_heads: int = decoder.key_value_heads(also_written=("num_key_value_heads",))
    head_dim: int = field(HeadDim(written=False))
    activation: str = fixed("gelu", name="hidden_act")
    attention_bias: bool = fixed(True, name="attention_bias")
    parallel_residual: bool = flag(
        "use_parallel_residual", "use_parallel_residual", default=True, key_default=True
    )
    rope: RopeConfig = field(
        NeoxRope(
            ("default", "linear"), counted=True, share=0.25, share_names=("rotary_pct",),
            theta=10000.0, theta_name="rotary_emb_base",
        )
    )  # fmt: skip


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield weight("gpt_neox.embed_in", "token_embd")
    yield norm("gpt_neox.final_layer_norm", "output_norm")
    yield bias("gpt_neox.final_layer_norm", "output_norm")
    yield weight("embed_out", "output", optional=c.tie_word_embeddings)
    # A folder has the q, k and v of a head together.
    by_head: tuple[Operation, ...] = (
        PermuteGrid((c.num_attention_heads, 3, c.head_dim), (1, 0, 2)),
    )
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, layers=LAYERS, biased=True)
        yield from decoder.matrices(i, PARTS, {"attn_qkv": by_head}, biased=True, layers=LAYERS)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    a = blocks.rotated_attention(g, c, w, apply_norm(g, c, w, h, f"{b}.attn_norm"), i)
    after = blocks.attention_output(g, c, w, a, i, add=h)
    x = apply_norm(g, c, w, h if c.parallel_residual else after, f"{b}.ffn_norm")
    return blocks.plain_mlp(g, c, w, x, i, g.gelu, add=after)


def spelled(parameter: str) -> str:
    """Return the name of a parameter, for which some folders have the usual one."""
    return parameter.replace("lm_head.", "embed_out.")


FAMILY = Family(
    "gptneox", ("gpt_neox",), "GPTNeoX", "GPT-NeoX", Config, tensors, layer,
    ignored=("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq"),
    spelled=spelled,
)  # fmt: skip
