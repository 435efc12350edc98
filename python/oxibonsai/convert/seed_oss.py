"""Seed-OSS: names and keys; q, k and v have biases."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {**decoder.LAYER, "post_attention_layernorm": "post_attention_norm"}
_BIASED = ("attn_q", "attn_k", "attn_v")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_out_bias", False)
    folder.require("mlp_bias", False)
    return {
        **decoder.dimension_keys(folder, "seed_oss"),
        **rope_keys("seed_oss", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    biased = _BIASED if folder.config.get("attention_bias", True) is True else ()
    return decoder.shapes(folder, LAYER.values(), biased)


SEED_OSS = Recipe(
    "seed_oss",
    metadata,
    decoder.namer("Seed-OSS", LAYER, _BIASED),
    decoder.is_matrix,
    shapes=_shapes,
)
