"""Apertus: names, keys, the constants of xIELU, and Llama 3's table of factors."""

from __future__ import annotations

import numpy as np

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_factors, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

LAYER = {
    **{k: v for k, v in decoder.LAYER.items() if "norm" not in v and v != "ffn_gate"},
    **decoder.HEAD_NORMS,
    "attention_layernorm": "attn_norm",
    "feedforward_layernorm": "ffn_norm",
}
_ROPES = ("default", "linear", "llama3")
_ACTIVATION = ("alpha_n", "alpha_p", "beta", "eps")


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "xielu")
    folder.require("attention_bias", False)
    return {
        **decoder.dimension_keys(folder, "apertus"),
        "apertus.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("apertus", *read_rope(folder, _ROPES)),
        **_activations(folder),
        **tokenizer_keys(folder),
    }


def _activations(folder: ModelFolder) -> Metadata:
    """Return each layer's activation parameters, which are metadata in GGUF."""
    keys: Metadata = {}
    for part in _ACTIVATION:
        numbers = []
        for i in range(folder.count("num_hidden_layers")):
            name = f"model.layers.{i}.mlp.act_fn.{part}"
            held = folder.parameters.get(name)
            if held is None or int(np.prod(held.shape)) != 1:
                raise FormatError(f"{folder.path} has no number {name}")
            numbers.append(float(held.values().reshape(-1)[0]))
        keys[f"xielu.{part}"] = (numbers, "arr[f32]")
    return keys


APERTUS = Recipe(
    "apertus",
    metadata,
    decoder.namer("Apertus", LAYER, left_out=[f".act_fn.{part}" for part in _ACTIVATION]),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values()),
    extra=lambda folder: rope_factors(folder, _ROPES, decoder.head_dim(folder)),
)
