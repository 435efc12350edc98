"""GPT-2 and StarCoder: learned positions, LayerNorm, GELU without a gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import constant, count, field, fixed
from oxibonsai.architectures.schema.operations import Operation, Transpose
from oxibonsai.architectures.schema.tensors import Entry, vector
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "transformer.h"
MASKS = ("*.attn.bias", "*.attn.masked_bias")  # constants, in old checkpoints
PARTS = {
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}
TURNED: dict[str, tuple[Operation, ...]] = dict.fromkeys(PARTS.values(), (Transpose(),))


@dataclass(frozen=True, kw_only=True)
class Gpt(LayerNormDecoder):
    """The sizes under GPT's names, which are written beside the usual ones."""

    num_hidden_layers: int = decoder.layer_count("n_layer", also_written=("num_hidden_layers",))
    max_position_embeddings: int = count(
        "n_positions", "context_length", also_written=("max_position_embeddings",)
    )
    hidden_size: int = count("n_embd", "embedding_length", also_written=("hidden_size",))
    intermediate_size: int = count(
        "n_inner", "feed_forward_length", also_written=("intermediate_size",),
        default=lambda known: 4 * known["hidden_size"],
    )  # fmt: skip
    num_attention_heads: int = count(
        "n_head", "attention.head_count", also_written=("num_attention_heads",)
    )
    num_key_value_heads: int = decoder.key_value_heads(also_written=("num_key_value_heads",))
    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = decoder.layer_norm_epsilon("layer_norm_epsilon")


@dataclass(frozen=True, kw_only=True)
class Config(Gpt):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("gelu_new", "gelu_pytorch_tanh", name="activation_function")
    scaled: bool = fixed(True, name="scale_attn_weights", written=False)
    scaled_by_layer: bool = fixed(False, name="scale_attn_by_inverse_layer_idx", written=False)
    add_cross_attention: bool = fixed(False, name="add_cross_attention", written=False)
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))


@dataclass(frozen=True, kw_only=True)
class StarCoderConfig(Config):
    """The fields of a StarCoder, whose heads share one key and value."""

    num_key_value_heads: int = decoder.key_value_heads(
        also_written=("num_key_value_heads",), default=1
    )
    activation: str = fixed("gelu_pytorch_tanh", "gelu_new", name="activation_function")
    multi_query: bool = fixed(True, name="multi_query")


def tensors(c: Config, operations: dict[str, tuple[Operation, ...]] = TURNED) -> Iterator[Entry]:
    """Yield all tensors of a model, whose matrices have columns for rows."""
    yield from decoder.outside(
        c, embedding="transformer.wte", final="transformer.ln_f", biased=True
    )
    yield vector("transformer.wpe.weight", "position_embd.weight")  # stays as it is
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS, biased=True)
        yield from decoder.matrices(i, PARTS, layers=LAYERS, operations=operations)
        yield from decoder.biases(i, PARTS, layers=LAYERS)


def starcoder_tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a StarCoder, whose matrices are as in most models."""
    return tensors(c, {})


def embed(g: Builder, c: LayerNormDecoder, w: Weights) -> Value:
    """Return the rows of the token table, plus those of the positions."""
    positions = w.matrix("position_embd", c.max_position_embeddings, c.hidden_size)
    return g.add(g.embed(w.embedding(c)), g.embed_positions(positions))


def layer(g: Builder, c: LayerNormDecoder, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.plain_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.gelu_tanh, add=h)


GPT2 = Family("gpt2", ("gpt2",), "GPT2", "GPT-2", Config, tensors, layer, embed, ignored=MASKS)
STARCODER = Family(
    "starcoder", ("gpt_bigcode",), "GPTBigCode", "StarCoder", StarCoderConfig, starcoder_tensors,
    layer, embed, ignored=MASKS,
)  # fmt: skip
