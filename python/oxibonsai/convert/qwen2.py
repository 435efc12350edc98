"""Qwen2 and Qwen2.5: names and keys; q, k and v have biases."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_BIASED = ("attn_q", "attn_k", "attn_v")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("use_sliding_window", False)
    return {
        **decoder.dimension_keys(folder, "qwen2"),
        **rope_keys("qwen2", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }


QWEN2 = Recipe(
    "qwen2",
    metadata,
    decoder.namer("Qwen2", decoder.LAYER, _BIASED),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values(), _BIASED),
)
