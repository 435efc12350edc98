"""GPT-J: both halves of a layer read one norm, neighbouring dims of a part of each head rotated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.gpt2 import LAYERS, MASKS, Gpt
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, bias
from oxibonsai.graph import RopeConfig

ATTENTION = {
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "attn.out_proj": "attn_output",
}
BIASED = {"mlp.fc_in": "ffn_up", "mlp.fc_out": "ffn_down"}
NORMS = {"ln_1": "attn_norm"}


@dataclass(frozen=True)
class RotaryDims:
    """A rotary embedding of which all models differ in the rotated dims alone."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        dims = config.count(config.get("rotary_dim"), "rotary_dim")
        return RopeConfig(dims, 10000.0, interleaved=True)

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"rotary_dim": value.rotary_dim}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file describes."""
        return keys.rope(known["head_dim"], interleaved=True)

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the key of the rotated dims."""
        return {"rope.dimension_count": (value.rotary_dim, "u32")}


@dataclass(frozen=True, kw_only=True)
class Config(Gpt):
    """The fields of a model."""

    tie_word_embeddings: bool = fixed(False, name="tie_word_embeddings")
    activation: str = fixed("gelu_new", name="activation_function")
    rope: RopeConfig = field(RotaryDims())


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(
        c, embedding="transformer.wte", final="transformer.ln_f", biased=True
    )
    yield bias("lm_head", "output", optional=True)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, {**ATTENTION, **BIASED}, layers=LAYERS)
        yield from decoder.biases(i, {**NORMS, **BIASED}, layers=LAYERS)


FAMILY = Family(
    "gptj", ("gptj",), "GPTJ", "GPT-J", Config, tensors, decoder.parallel_layer, ignored=MASKS
)
