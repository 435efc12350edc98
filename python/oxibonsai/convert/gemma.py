"""Gemma: names and keys; norms hold 1 + w."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu_pytorch_tanh", "gelu")
    folder.require("hidden_activation", None, "gelu_pytorch_tanh")
    folder.require("attention_bias", False)
    return {
        **decoder.dimension_keys(folder, "gemma"),
        **rope_keys("gemma", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


GEMMA = Recipe(
    "gemma",
    metadata,
    decoder.namer("Gemma", decoder.LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values(), tied=True),
    offset=lambda tensor: 1.0 if "norm" in tensor else 0.0,
)
