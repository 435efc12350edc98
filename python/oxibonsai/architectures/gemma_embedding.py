"""EmbeddingGemma: Gemma 3's layers as an encoder, whose tokens see both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import gemma3
from oxibonsai.architectures.encoder import EncoderFamily, Pooled
from oxibonsai.architectures.heads import Pooling, Projections
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.pooled import ClassifierConfig
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.fields import count, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry, norm, weight
from oxibonsai.graph import Builder, Value


@dataclass(frozen=True, kw_only=True)
class Config(Pooled, gemma3.Layers):
    """The fields of a model; the window counts the keys on both sides."""

    sliding_window: int = count("sliding_window", "attention.sliding_window")
    sees_both_sides: bool = fixed(True, name="use_bidirectional_attention")
    causal: bool = fixed(False, key="attention.causal", kind="bool")
    stated_pooling: str | None = field(Pooling(projects=True), compare=False)
    projections: None = field(Projections())

    @property
    def classifier(self) -> ClassifierConfig | None:
        """None: there is no head."""
        return None

    @property
    def block_size(self) -> int:
        """0: tokens form no blocks."""
        return 0

    @property
    def num_random_blocks(self) -> int:
        """0: tokens form no blocks."""
        return 0


def is_encoder(config: ConfigJson) -> bool:
    """Return whether a folder of Gemma 3 is one of EmbeddingGemma."""
    both_sides = config.fields.get("use_bidirectional_attention") is True
    return both_sides and config.fields.get("architectures") == ["Gemma3TextModel"]


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; norms hold 1 + w."""
    yield weight("embed_tokens", "token_embd")
    yield norm("norm", "output_norm", Add(1.0))
    yield from gemma3.tensors_of_layers(c, "layers")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""

    def attend(q: Value, k: Value, v: Value, window: int) -> Value:
        return blocks.local_attention(g, c, q, k, v, window=window // 2)

    return gemma3.attending_layer(g, c, w, i, h, attend)


FAMILY: EncoderFamily[Any] = EncoderFamily(
    "gemma-embedding", ("gemma3_text",), "Gemma3Text", "EmbeddingGemma", Config, tensors, layer,
    gemma3.embed, blocks.final_norm, ignored=("*.self_attn.rotary_emb.inv_freq",),
    owns_config_json=is_encoder, projects=True,
)  # fmt: skip
