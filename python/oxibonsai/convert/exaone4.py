"""EXAONE 4: names and keys, and Llama 3's table of factors."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_factors, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    **{k: v for k, v in decoder.LAYER.items() if "norm" not in v},
    **decoder.HEAD_NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_ROPES = ("default", "linear", "llama3")


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    keys = {
        **decoder.dimension_keys(folder, "exaone4"),
        **rope_keys("exaone4", *read_rope(folder, _ROPES)),
        **tokenizer_keys(folder),
    }
    if folder.config.get("sliding_window") is not None:
        keys |= decoder.window_keys(folder, "exaone4", 4)
    return keys


EXAONE4 = Recipe(
    "exaone4",
    metadata,
    decoder.namer("EXAONE 4", LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values()),
    extra=lambda folder: rope_factors(folder, _ROPES, decoder.head_dim(folder)),
)
