"""EXAONE 3 and 3.5: Qwen2's layers under GPT's names; transformers has no class for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import EPSILON, field, fixed, real
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

LAYERS = "transformer.h"
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}
PARTS = {
    "attn.attention.q_proj": "attn_q",
    "attn.attention.k_proj": "attn_k",
    "attn.attention.v_proj": "attn_v",
    "attn.attention.out_proj": "attn_output",
    "mlp.c_fc_0": "ffn_gate",
    "mlp.c_fc_1": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    num_hidden_layers: int = decoder.layer_count("num_layers", "num_hidden_layers")
    rms_norm_eps: float = real(
        "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-5
    )
    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("silu", name="activation_function")
    rope: RopeConfig = field(Rope(("default", "linear", "llama3"), counted=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="transformer.wte", final="transformer.ln_f")
    yield from decoder.rope_factors(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, PARTS, layers=LAYERS)


FAMILY = Family(
    "exaone", ("exaone",), "", "EXAONE", Config, tensors, decoder.layer, embed_tokens_and_images
)
