"""Qwen, the first: q, k and v in one tensor with a bias; gate and up are counted together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    EPSILON,
    GgufKeys,
    Known,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

LAYERS = "transformer.h"
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}
QKV = {"attn.c_attn": "attn_qkv"}
PARTS = {
    "attn.c_proj": "attn_output",
    "mlp.w1": "ffn_up",
    "mlp.w2": "ffn_gate",
    "mlp.c_proj": "ffn_down",
}


@dataclass(frozen=True)
class HalfOfWidth:
    """The MLP's columns, of which both sides count gate and up together."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        both = config.count(config.get("intermediate_size"), "intermediate_size")
        if both % 2 != 0:
            raise config.fail(f"intermediate_size is {both}: odd, and gate and up share it")
        return both // 2

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"intermediate_size": 2 * value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        both = keys.integer("feed_forward_length")
        if both % 2 != 0:
            raise keys.fail("qwen.feed_forward_length is odd, and gate and up share it")
        return both // 2

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"feed_forward_length": (2 * value, "u32")}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    max_position_embeddings: int = count(
        ("max_position_embeddings", "seq_length"), "context_length"
    )
    intermediate_size: int = field(HalfOfWidth())
    rms_norm_eps: float = real(
        "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-6
    )
    no_bias: bool = fixed(True, name="no_bias")
    rotary_share: float = fixed(1.0, 1, name="rotary_pct")
    scaled: bool = fixed(True, name="scale_attn_weights")
    rope: RopeConfig = field(Rope(("default",), theta=10000.0, theta_name="rotary_emb_base"))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="transformer.wte", final="transformer.ln_f")
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, QKV, biased=True, layers=LAYERS)
        yield from decoder.matrices(i, PARTS, layers=LAYERS)


FAMILY = Family("qwen", ("qwen",), "", "Qwen", Config, tensors, decoder.layer)
