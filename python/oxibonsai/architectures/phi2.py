"""Phi-1.5 and Phi-2: both halves of a layer read one norm, a part of each head is rotated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import field, fixed
from oxibonsai.architectures.schema.tensors import Entry, bias, norm, weight
from oxibonsai.graph import RopeConfig

PARTS = {
    **decoder.QKV,
    "self_attn.dense": "attn_output",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    activation: str = fixed("gelu_new", name="hidden_act")
    qk_layernorm: bool = fixed(False, name="qk_layernorm", written=False)
    rope: RopeConfig = field(Rope(("default",), counted=True, share=0.5))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield weight("model.embed_tokens", "token_embd")
    yield norm("model.final_layernorm", "output_norm")
    yield bias("model.final_layernorm", "output_norm")
    yield weight("lm_head", "output", optional=c.tie_word_embeddings)
    yield bias("lm_head", "output", optional=True)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {"input_layernorm": "attn_norm"}, biased=True)
        yield from decoder.matrices(i, PARTS, biased=True)


FAMILY = Family("phi2", ("phi",), "Phi", "Phi", Config, tensors, decoder.parallel_layer)
