"""MiniCPM 1 and 2: names and keys; q and k are in the order of interleaved pairs."""

from __future__ import annotations

import math

from oxibonsai.convert import decoder
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    depth = _factor(folder, "scale_depth") / math.sqrt(folder.count("num_hidden_layers"))
    width = folder.count("hidden_size") / folder.count("dim_model_base")
    return {
        **decoder.dimension_keys(folder, "minicpm"),
        "minicpm.embedding_scale": (_factor(folder, "scale_emb"), "f32"),
        "minicpm.residual_scale": (depth, "f32"),
        "minicpm.logit_scale": (width, "f32"),
        **rope_keys("minicpm", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


def _factor(folder: ModelFolder, name: str) -> float:
    value = folder.config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise FormatError(f"{folder.path / 'config.json'}: {name} is {value!r}, not above zero")
    return float(value)


MINICPM = Recipe(
    "minicpm",
    metadata,
    decoder.namer("MiniCPM", decoder.LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values(), tied=True),
    row_order=row_order,
    config=lambda folder: {"rope_theta": 10000.0, **folder.config},  # of most models
)
