"""Orion: names and keys; norms are LayerNorms."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_NORMS = ("attn_norm", "ffn_norm")


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration with the epsilon under the name of what it belongs to."""
    found = folder.config
    context = found.get("max_sequence_length", found.get("max_position_embeddings"))
    return {
        "rope_theta": 10000.0,
        **found,
        "layer_norm_eps": found.get("rms_norm_eps"),
        "max_position_embeddings": context,
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    return {
        **decoder.dimension_keys(folder, "orion", "layer_norm_eps"),
        "orion.tensor_data_layout": ("Meta AI original pth", "str"),
        **rope_keys("orion", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


ORION = Recipe(
    "orion",
    metadata,
    decoder.namer("Orion", decoder.LAYER, (*_NORMS, "output_norm")),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values(), _NORMS),
    config=config,
)
