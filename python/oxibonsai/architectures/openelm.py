"""OpenELM: heads and widths that grow with the layers, q and k normalised per head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Constants, HeadDim
from oxibonsai.architectures.layer_sizes import Largest, LayerSizes, Sizes, Varied
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    Constant,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
    real,
    told_by_tensors,
)
from oxibonsai.architectures.schema.operations import Split
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry, Tensor, norm, weight
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "transformer.layers"
NORMS = {
    "attn_norm": "attn_norm",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "ffn_norm": "ffn_norm",
}
PARTS = {"attn.qkv_proj": "attn_qkv", "attn.out_proj": "attn_output", "ffn.proj_2": "ffn_down"}
LAYER_COUNT, SHARED = "num_transformer_layers", "share_input_output_layers"


class SizesOfElm(LayerSizes):
    """The sizes of all layers: lists of heads, and of the MLPs' shares of the hidden size."""

    def read_config_json(self, config: ConfigJson, known: Known) -> Sizes:
        """Return the sizes that ``config.json`` says."""
        layers = config.count(config.get(LAYER_COUNT), LAYER_COUNT)
        heads, groups = (
            self._counts(config, name, layers) for name in ("num_query_heads", "num_kv_heads")
        )
        return tuple(zip(heads, groups, self._widths(config, layers), strict=True))

    def write_config_json(self, value: Sizes, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        heads, groups, widths = zip(*value, strict=True)
        return {
            "num_query_heads": list(heads),
            "num_kv_heads": list(groups),
            "ffn_multipliers": [width / c.hidden_size for width in widths],
            "ffn_dim_divisor": 1,
        }

    @staticmethod
    def _counts(config: ConfigJson, name: str, layers: int) -> list[int]:
        value = config.get(name)
        whole = isinstance(value, list) and all(type(n) is int and 0 < n < 2**31 for n in value)
        if not whole or len(value) != layers:
            raise config.fail(f"{name} is {value!r}, no counts of {layers} layers")
        return list(value)

    @staticmethod
    def _widths(config: ConfigJson, layers: int) -> list[int]:
        """Return the MLPs' columns: multiples of the divisor next to their shares."""
        shares = config.get("ffn_multipliers")
        step = config.count(config.get("ffn_dim_divisor"), "ffn_dim_divisor")
        hidden = config.count(config.get("model_dim"), "model_dim")
        numbers = isinstance(shares, list) and all(
            isinstance(s, int | float) and not isinstance(s, bool) and 0 < s < 1e3 for s in shares
        )
        if not numbers or len(shares) != layers:
            raise config.fail(f"ffn_multipliers are not {layers} numbers")
        wanted = [share * hidden for share in shares]
        near = [max(step, int(w + step / 2) // step * step) for w in wanted]
        return [n + step if n < 0.9 * w else n for n, w in zip(near, wanted, strict=True)]


@dataclass(frozen=True)
class RotatedDims(Constant):
    """The dims of a head that are rotated, all of them, for which files have a key."""

    def write_gguf(self, value: None, c: Any) -> GgufKeys:
        """Return the key."""
        return {"rope.dimension_count": (c.head_dim, "u32")}


@dataclass(frozen=True)
class UnsaidVocabulary(Stated):
    """The rows of the token table, for which these files have no key."""

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True, kw_only=True)
class OwnSizes(Varied):
    """The sizes of a model, in the order of a file's keys."""

    layer_sizes: Sizes = field(SizesOfElm())
    num_hidden_layers: int = decoder.layer_count(LAYER_COUNT)
    max_position_embeddings: int = count("max_context_length", "context_length")
    hidden_size: int = count("model_dim", "embedding_length")
    rotated_dims: None = field(RotatedDims(None))
    intermediate_size: int = field(Largest(2, "intermediate_size"))
    num_attention_heads: int = field(Largest(0, "num_attention_heads"))
    num_key_value_heads: int = field(Largest(1, "num_key_value_heads"))
    head_dim: int = field(HeadDim(shared=False))
    vocab_size: int = field(UnsaidVocabulary(decoder.VOCABULARY, ("vocab_size",), "vocab_size"))
    rms_norm_eps: float = real(
        (), "attention.layer_norm_rms_epsilon", default=1e-6
    )  # which no folder says
    layer_norm_eps: float = constant(0.0)


@dataclass(frozen=True, kw_only=True)
class Config(Constants, OwnSizes):
    """The fields of a model."""

    tie_word_embeddings: bool = told_by_tensors(SHARED, "output.weight", absent=True, default=True)
    shares_table: bool = fixed(True, name=SHARED, written=False)
    activation: str = fixed("swish", name="activation_fn_name")
    normalization: str = fixed("rms_norm", name="normalization_layer_name")
    qk_norm: bool = fixed(True, name="normalize_qk_projections")
    gated: bool = fixed(True, name="ffn_with_glu")
    rope: RopeConfig = field(Rope(("default",), theta_name="rope_freq_constant"))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield weight("transformer.token_embeddings", "token_embd")
    yield norm("transformer.norm", "output_norm")
    for i, (_, _, width) in enumerate(c.layer_sizes):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, PARTS, layers=LAYERS)
        halves = (f"blk.{i}.ffn_gate.weight", f"blk.{i}.ffn_up.weight")
        yield Tensor((f"{LAYERS}.{i}.ffn.proj_1.weight",), halves, (Split((width, width)),))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b, own, eps = f"blk.{i}", c.of_layer(i), c.rms_norm_eps
    q, k, v = blocks.query_key_value(g, own, w, apply_norm(g, c, w, h, f"{b}.attn_norm"), i)
    q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), eps)
    k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), eps)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, own, q, k, v, i), i, add=h)
    return blocks.gated_mlp(g, own, w, apply_norm(g, c, w, h, f"{b}.ffn_norm"), i, g.swiglu, add=h)


FAMILY = Family("openelm", ("openelm",), "", "OpenELM", Config, tensors, layer)
