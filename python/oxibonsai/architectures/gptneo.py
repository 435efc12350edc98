"""GPT-Neo: learned positions, scores without a factor, every other layer with a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, gpt2
from oxibonsai.architectures.decoder import HeadDim, LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    GgufKeys,
    Known,
    constant,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, vector
from oxibonsai.architectures.windows import window_of
from oxibonsai.graph import Builder, RopeConfig, Value

QKV = {
    "attn.attention.q_proj": "attn_q",
    "attn.attention.k_proj": "attn_k",
    "attn.attention.v_proj": "attn_v",
}
BIASED = {
    "attn.attention.out_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
MASKS = ("*.attn.attention.bias", "*.attn.attention.masked_bias")  # constants, in old checkpoints
KINDS = ["global", "local"]


@dataclass(frozen=True)
class AttentionTypes:
    """Whether each layer has a window: a folder lists patterns, and how often each is repeated."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[bool, ...]:
        """Return the value that ``config.json`` says."""
        layers = known["num_hidden_layers"]
        stated = config.fields.get("attention_types", [[KINDS, layers // 2]])
        kinds: list[Any] = []
        for part in stated if isinstance(stated, list) else [None]:
            if not isinstance(part, list) or [type(p) for p in part] != [list, int]:
                raise config.fail(f"attention_types is {stated!r}, no list of patterns and numbers")
            pattern, times = part
            kinds += pattern * min(times, layers)
        if len(kinds) != layers or any(kind not in KINDS for kind in kinds):
            raise config.fail(
                f"attention_types does not say of {layers} layers which of global, local they are"
            )
        return tuple(kind == "local" for kind in kinds)

    def write_config_json(self, value: tuple[bool, ...], c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        kinds = [KINDS[local] for local in value]
        return {"attention_types": [[kinds, 1]], "attention_layers": kinds}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[bool, ...]:
        """Return the value that a file says."""
        if keys.get("attention.sliding_window_pattern") is None:
            raise keys.fail("the key gptneo.attention.sliding_window_pattern is missing")
        return keys.local_layers(2)

    def write_gguf(self, value: tuple[bool, ...], c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.sliding_window_pattern": (list(value), "arr[bool]")}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    num_hidden_layers: int = decoder.layer_count(
        "num_layers", "num_hidden_layers", also_written=("num_hidden_layers",)
    )
    intermediate_size: int = count(
        "intermediate_size", "feed_forward_length", default=lambda known: 4 * known["hidden_size"]
    )
    num_attention_heads: int = count(
        ("num_heads", "num_attention_heads"), "attention.head_count",
        also_written=("num_attention_heads",),
    )  # fmt: skip
    num_key_value_heads: int = decoder.key_value_heads(also_written=("num_key_value_heads",))
    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = decoder.layer_norm_epsilon("layer_norm_epsilon")
    tie_word_embeddings: bool = decoder.tied(True)
    attention_scale: float = constant(1.0)
    activation: str = fixed("gelu_new", "gelu_pytorch_tanh", name="activation_function")
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))
    sliding_window: int = count("window_size", "attention.sliding_window", default=256)
    local_layers: tuple[bool, ...] = field(AttentionTypes())


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(
        c, embedding="transformer.wte", final="transformer.ln_f", biased=True
    )
    yield vector("transformer.wpe.weight", "position_embd.weight")
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, gpt2.NORMS, layers=gpt2.LAYERS, biased=True)
        yield from decoder.matrices(i, {**QKV, **BIASED}, layers=gpt2.LAYERS)
        yield from decoder.biases(i, BIASED, layers=gpt2.LAYERS)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i, window=window_of(c, i))
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.plain_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.gelu_tanh, add=h)


FAMILY = Family(
    "gptneo", ("gpt_neo",), "GPTNeo", "GPT-Neo", Config, tensors, layer, gpt2.embed, ignored=MASKS
)
