"""Phi-3-small: most layers see a window of blocks and, before it, every so many-th block, head by head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, LayerNormDecoder
from oxibonsai.architectures.granite import Divisor
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    FACTOR,
    Checked,
    GgufKeys,
    Known,
    Stated,
    count,
    count_or_zero,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import (
    MergeAxes,
    PermuteGrid,
    Split,
    SplitAxis,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, FromConfig, Tensor
from oxibonsai.graph import Builder, KeyPattern, RopeConfig, Value

OUTPUT = {"self_attn.dense": "attn_output"}
DOWN = {"mlp.down_proj": "ffn_down"}
# The logit of a token that the vocabulary has no text for.
NEVER = -1e30


@dataclass(frozen=True)
class Scale:
    """The factor of scores: a folder states its product with the columns of a head."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says."""
        stated = config.fields.get("mup_attn_multiplier", 1.0)
        return float(config.number(stated, "mup_attn_multiplier", 1e6) / known["head_dim"])

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"mup_attn_multiplier": value * c.head_dim}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        return keys.positive("attention.scale")

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.scale": (value, "f32")}


class NamedRope(Rope):
    """The rotary embedding, whose base a folder calls as it always has."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.theta_name: value.theta}


@dataclass(frozen=True)
class HeadStep:
    """By how many blocks those that a head sees lie before those of the head before it."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that follows from ``config.json``."""
        stated = config.fields.get("blocksparse_homo_head_pattern", False)
        same = config.flag(stated, "blocksparse_homo_head_pattern")
        return 0 if same else max(1, known["block_stride"] // known["num_attention_heads"])

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"blocksparse_homo_head_pattern": value == 0}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.count("attention.block_head_step")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.block_head_step": (value, "u32")}


@dataclass(frozen=True)
class UnusedTokens:
    """The tokens that the model never writes."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[int, ...]:
        """Return the ids that ``config.json`` lists."""
        return self._checked(config, config.fields.get("dummy_token_indices") or [], known)

    def write_config_json(self, value: tuple[int, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"dummy_token_indices": list(value)}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[int, ...]:
        """Return the ids that a file lists."""
        listed = keys.get("unused_token_ids", [])
        return self._checked(keys, getattr(listed, "tolist", lambda: listed)(), known)

    def write_gguf(self, value: tuple[int, ...], c: Any) -> GgufKeys:
        """Return the key, if there are any."""
        return {"unused_token_ids": (list(value), "arr[u32]")} if value else {}

    @staticmethod
    def _checked(source: ConfigJson | Keys, listed: Any, known: Known) -> tuple[int, ...]:
        ids = range(known["vocab_size"])
        if not isinstance(listed, list) or any(type(n) is not int or n not in ids for n in listed):
            raise source.fail(
                f"the tokens that are never written are no list of ids below {len(ids)}"
            )
        return tuple(listed)


def _span_problem(known: Known, blocks: int) -> str:
    """Return what is wrong with a window or a stride of so many blocks; empty: nothing is."""
    if blocks * known["block_size"] < 2**31:
        return ""
    return f"{blocks} blocks of {known['block_size']} positions are more than 2^31 positions"


def _step_problem(known: Known, blocks: int) -> str:
    """Return what is wrong with the step from head to head; empty: nothing is."""
    stride = known["block_stride"]
    if blocks <= stride:
        return ""
    return f"heads lie {blocks} blocks apart, which is more than the stride of {stride} blocks"


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    intermediate_size: int = count(
        ("ff_intermediate_size", "intermediate_size"), "feed_forward_length"
    )
    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = decoder.layer_norm_epsilon("layer_norm_epsilon")
    tie_word_embeddings: bool = decoder.tied(True)
    attention_scale: float = field(Scale())
    logit_scale: float = field(
        Divisor(FACTOR, ("mup_width_multiplier",), "logit_scale", default=8.0)
    )
    embedding_scale: float = real(
        "mup_embedding_multiplier", "embedding_scale", FACTOR, default=10.0, key_default=1.0
    )
    scaled: bool = fixed(True, name="mup_use_scaling")
    activation: str = fixed("gegelu", name="hidden_act")
    activation_limit: float = real("gegelu_limit", "activation_limit", FACTOR, default=20.0)
    width_multiplier: None = fixed(None, name="ff_dim_multiplier")
    stretch: float = fixed(1.0, name="rope_position_scale")
    scaling: None = fixed(None, name="rope_scaling", written=False)
    rope: RopeConfig = field(NamedRope(("default",), theta=1e6, theta_name="rope_embedding_base"))
    block_size: int = count("blocksparse_block_size", "attention.block_size", default=64)
    local_blocks: int = field(
        Checked(
            Stated(
                COUNT, ("blocksparse_num_local_blocks",), "attention.local_block_count", default=16
            ),
            _span_problem,
        )
    )
    block_stride: int = field(
        Checked(
            Stated(COUNT, ("blocksparse_vert_stride",), "attention.block_stride", default=8),
            _span_problem,
        )
    )
    head_step: int = field(Checked(HeadStep(), _step_problem))
    full_interval: int = count_or_zero(
        "dense_attention_every_n_layers", "full_attention_interval", default=0, none_is=0
    )
    unused_tokens: tuple[int, ...] = field(UnusedTokens())

    def sees_all(self, layer: int) -> bool:
        """Return whether the tokens of a layer see all before them."""
        return self.full_interval > 0 and (layer + 1) % self.full_interval == 0


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, final="model.final_layernorm", biased=True)
    if c.unused_tokens:
        values = np.zeros(c.vocab_size, dtype=np.float32)
        values[list(c.unused_tokens)] = NEVER
        yield FromConfig("output.bias", values)
    groups, width = c.num_key_value_heads, c.head_dim
    queries = c.num_attention_heads // groups * width
    apart = SplitAxis(groups), Split((queries, width, width), axis=1), MergeAxes(groups)
    halves = (PermuteGrid((c.intermediate_size, 2), (1, 0)),)  # a folder has gate and up in turn
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, biased=True)
        for kind in ("weight", "bias"):
            parts = tuple(f"blk.{i}.{part}.{kind}" for part in decoder.QKV.values())
            whole = f"{decoder.LAYERS}.{i}.self_attn.query_key_value.{kind}"
            yield Tensor((whole,), parts, apart, kind == "weight")
        yield from decoder.matrices(i, OUTPUT, biased=True)
        yield from decoder.matrices(i, {"mlp.up_proj": "ffn_up"}, {"ffn_up": halves}, biased=True)
        yield from decoder.matrices(i, DOWN, biased=True)


def embed(g: Builder, c: Config, w: Weights) -> Value:
    """Return the rows of the token table, scaled."""
    return g.scale(g.embed(w.embedding(c)), c.embedding_scale)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    if c.sees_all(i):
        a = blocks.rotated_attention(g, c, w, x, i)
    else:
        pattern = KeyPattern(
            block_size=c.block_size, block_stride=c.block_stride, head_step=c.head_step
        )
        window = c.local_blocks * c.block_size
        a = blocks.rotated_attention(g, c, w, x, i, window=window, pattern=pattern)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
    return blocks.gated_mlp(g, c, w, x, i, lambda gate, up: gegelu(g, c, gate, up), add=h)


def gegelu(g: Builder, c: Config, gate: Value, up: Value) -> Value:
    """Return gate * sigmoid(1.702 * gate) * (up + 1), where the gate is bounded above, up on both sides."""
    limit = np.full(gate.cols, c.activation_limit, dtype=np.float32)
    below = g.relu(g.add_vector(g.scale(gate, -1.0), limit))  # how far it is below the limit
    gate = g.scale(g.add_vector(below, -limit), -1.0)
    gate = g.scale(g.silu(g.scale(gate, 1.702)), 1 / 1.702)
    return g.add(g.multiply(gate, g.clamp(up, c.activation_limit)), gate)


FAMILY = Family(
    "phi3small", ("phi3small",), "Phi3Small", "Phi-3-small", Config, tensors, layer, embed
)
