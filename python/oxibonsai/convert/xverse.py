"""XVERSE: Llama's names, with queries and keys in the order of interleaved pairs."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    return {
        **decoder.dimension_keys(folder, "xverse"),
        "xverse.tensor_data_layout": ("Meta AI original pth", "str"),
        "xverse.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("xverse", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


XVERSE = Recipe(
    "xverse",
    metadata,
    decoder.namer("XVERSE", decoder.LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values()),
    row_order=decoder.row_order,
)
