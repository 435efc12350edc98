"""BLOOM: linear biases for positions, a norm after the embedding, GELU without a gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, LayerNormDecoder
from oxibonsai.architectures.gpt2 import layer
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import constant, count, field, fixed
from oxibonsai.architectures.schema.operations import Operation, PermuteGrid
from oxibonsai.architectures.schema.tensors import Entry, bias, norm
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "transformer.h"
PARTS = {
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
EMBEDDING_NORM = ("transformer.word_embeddings_layernorm", "token_embd_norm")


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    num_hidden_layers: int = decoder.layer_count(
        "n_layer", "num_hidden_layers", also_written=("num_hidden_layers",)
    )
    max_position_embeddings: int = count(
        ("seq_length", "hidden_size", "n_embed"),  # as many as columns where nothing says
        "context_length", also_written=("max_position_embeddings",),
    )  # fmt: skip
    hidden_size: int = count(("hidden_size", "n_embed"), "embedding_length")
    intermediate_size: int = count(
        (), "feed_forward_length", default=lambda known: 4 * known["hidden_size"],
        also_written=("intermediate_size",),
    )  # fmt: skip
    num_attention_heads: int = count(
        ("n_head", "num_attention_heads"), "attention.head_count",
        also_written=("num_attention_heads",),
    )  # fmt: skip
    num_key_value_heads: int = decoder.key_value_heads(also_written=("num_key_value_heads",))
    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = decoder.layer_norm_epsilon("layer_norm_epsilon")
    tie_word_embeddings: bool = decoder.tied(True)
    alibi_max_bias: float = constant(8.0)
    normed_residual: bool = fixed(False, name="apply_residual_connection_post_layernorm")
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(
        c, embedding="transformer.word_embeddings", final="transformer.ln_f", biased=True
    )
    yield norm(*EMBEDDING_NORM)
    yield bias(*EMBEDDING_NORM)
    # A folder has the q, k and v of a head together.
    by_head: tuple[Operation, ...] = (
        PermuteGrid((c.num_attention_heads, 3, c.head_dim), (1, 0, 2)),
    )
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, layers=LAYERS, biased=True)
        yield from decoder.matrices(i, PARTS, {"attn_qkv": by_head}, biased=True, layers=LAYERS)


def embed(g: Builder, c: Config, w: Weights) -> Value:
    """Return the normalised rows of the token table."""
    return apply_norm(g, c, w, g.embed(w.embedding(c)), "token_embd_norm")


def spelled(parameter: str) -> str:
    """Return transformers' name of a parameter: published checkpoints have no prefix."""
    known = parameter.startswith(("transformer.", "lm_head."))
    return parameter if known else f"transformer.{parameter}"


FAMILY = Family(
    "bloom", ("bloom",), "Bloom", "BLOOM", Config, tensors, layer, embed, spelled=spelled
)
