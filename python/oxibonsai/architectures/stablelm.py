"""StableLM: LayerNorm, a part of each head rotated; in the 12B model halves side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Fixed, GgufKeys, Known, biased, field, fixed
from oxibonsai.architectures.schema.sources import Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

OUTPUT = {"self_attn.o_proj": "attn_output"}
PARALLEL = "use_parallel_residual"


@dataclass(frozen=True)
class HalvesSideBySide(Fixed):
    """Whether both halves of a layer read one norm: not in a folder; a file shows it by its tensors.

    Converters write the key as true for models that are not, so that the tensors decide.
    """

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {PARALLEL: value}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return whether the file lacks the second norm of a layer."""
        keys.flag(PARALLEL, True)
        return "blk.0.ffn_norm.weight" not in keys.tensor_names

    def write_gguf(self, value: bool, c: Any) -> GgufKeys:
        """Return the key."""
        return {PARALLEL: (value, "bool")}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    head_dim: int = field(HeadDim(written=False))
    activation: str = fixed("silu", name="hidden_act")
    qk_layernorm: bool = fixed(False, name="qk_layernorm")
    use_qkv_bias: bool = biased("use_qkv_bias", *decoder.QKV.values())
    parallel_residual: bool = field(HalvesSideBySide(False, name=PARALLEL))
    rope: RopeConfig = field(
        Rope(("default", "linear"), counted=True, share=0.25, share_names=("rope_pct",))
    )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model, whose halves follow each other."""
    yield from decoder.outside(c, biased=True)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, biased=True)
        yield from decoder.matrices(i, decoder.QKV, biased=c.use_qkv_bias)
        yield from decoder.matrices(i, {**OUTPUT, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    x = norm(g, c, w, h, f"{b}.attn_norm")
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    if w.has(f"{b}.attn_q_norm.weight"):
        q, k = blocks.head_norms(g, c, w, q, k, i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    if not c.parallel_residual:
        x = norm(g, c, w, h, f"{b}.ffn_norm")
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


FAMILY = Family("stablelm", ("stablelm",), "StableLm", "StableLM", Config, tensors, layer)
