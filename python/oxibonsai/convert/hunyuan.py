"""Hunyuan, without experts: names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

LAYER = {
    **decoder.LAYER,
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    return {
        **decoder.dimension_keys(folder, "hunyuan-dense"),
        "hunyuan-dense.rope.freq_base": (_theta(folder), "f32"),
        **tokenizer_keys(folder),
    }


def _theta(folder: ModelFolder) -> float:
    """Return the base of the frequencies; where it is stretched by ``alpha``, for the whole context.

    theta * alpha ** (dims / (dims - 2)) is the model's own rule at every length of a text.
    """
    rope = folder.config.get("rope_parameters") or folder.config.get("rope_scaling") or {}
    stretched = isinstance(rope, dict) and rope.get("alpha") is not None
    kinds = ("default", "dynamic") if stretched else ("default",)
    _, numbers = read_rope(folder, kinds, also=_STRETCH)
    if not stretched:
        return numbers["rope_theta"]
    alpha, width = rope["alpha"], decoder.head_dim(folder)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 2**31:
        raise FormatError(f"{folder.path / 'config.json'}: alpha is {alpha!r}, not above zero")
    return float(numbers["rope_theta"] * alpha ** (width / (width - 2)))


# What is beside alpha in published configurations, and without effect next to it.
_STRETCH = ("alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "factor")

HUNYUAN = Recipe(
    "hunyuan-dense",
    metadata,
    decoder.namer("Hunyuan", LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), tied=True),
)
