"""Arcee AFM: names and keys; q and k are in the order of interleaved pairs."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import YARN_MORE, read_rope, rope_keys, yarn_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {k: v for k, v in decoder.LAYER.items() if v != "ffn_gate"}


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "relu2")
    folder.require("attention_bias", False)
    folder.require("mlp_bias", False)
    rope = read_rope(folder, ("default", "linear", "yarn"), also=YARN_MORE)
    return {
        **decoder.dimension_keys(folder, "arcee"),
        "arcee.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("arcee", *rope),
        **yarn_keys(folder, "arcee"),
        **tokenizer_keys(folder),
    }


ARCEE = Recipe(
    "arcee",
    metadata,
    decoder.namer("Arcee", LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values()),
    row_order=row_order,
)
