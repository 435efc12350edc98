"""Refact: Llama's layers with linear biases for positions; heads share one key and value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import EPSILON, Known, constant, count, real
from oxibonsai.architectures.schema.operations import Split
from oxibonsai.architectures.schema.tensors import Entry, Tensor
from oxibonsai.graph import RopeConfig

LAYERS = "transformer.h"
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}
PARTS = {"attn.q": "attn_q", "attn.c_proj": "attn_output", "mlp.c_proj": "ffn_down"}
MULTIPLE = 256  # of the width of the MLP


def width_of_mlp(known: Known) -> int:
    """Return the multiple next above two thirds of four times the hidden size."""
    return -(-int(2 * 4 * known["hidden_size"] / 3) // MULTIPLE) * MULTIPLE


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    num_hidden_layers: int = decoder.layer_count("n_layer")
    max_position_embeddings: int = count("n_positions", "context_length")
    hidden_size: int = count("n_embd", "embedding_length")
    intermediate_size: int = count((), "feed_forward_length", default=width_of_mlp)
    num_attention_heads: int = count("n_head", "attention.head_count")
    num_key_value_heads: int = decoder.key_value_heads(default=1)
    rms_norm_eps: float = real(
        "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-5
    )
    alibi_max_bias: float = constant(8.0)
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="transformer.wte", final="transformer.ln_f")
    kv, ff = c.num_key_value_heads * c.head_dim, c.intermediate_size
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, PARTS, layers=LAYERS)
        for whole, (first, second), size in (
            ("attn.kv", ("attn_k", "attn_v"), kv),
            ("mlp.gate_up_proj", ("ffn_gate", "ffn_up"), ff),
        ):
            parts = (f"blk.{i}.{first}.weight", f"blk.{i}.{second}.weight")
            yield Tensor((f"{LAYERS}.{i}.{whole}.weight",), parts, (Split((size, size)),))


FAMILY = Family("refact", ("gpt_refact",), "", "Refact", Config, tensors, decoder.layer)
