"""SmolLM3: names and keys; q and k are in the order of interleaved pairs."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("mlp_bias", False)
    folder.require("use_sliding_window", False, None)
    layers = folder.count("num_hidden_layers")
    rotated = [int((i + 1) % 4 != 0) for i in range(layers)]
    if folder.config.get("no_rope_layers", rotated) != rotated:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: no_rope_layers is not every fourth layer, and files have "
            "no key for others"
        )
    return {
        **decoder.dimension_keys(folder, "smollm3"),
        "smollm3.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("smollm3", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }


SMOLLM3 = Recipe(
    "smollm3",
    metadata,
    decoder.namer("SmolLM3", decoder.LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values(), tied=True),
    row_order=row_order,
)
