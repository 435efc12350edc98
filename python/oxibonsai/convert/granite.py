"""Granite 3: names and keys; q and k are in the order of interleaved pairs."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output")
_MLP_BIASED = ("ffn_gate", "ffn_up", "ffn_down")
_SCALES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    keys = {
        **decoder.dimension_keys(folder, "granite"),
        "granite.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("granite", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }
    for key, name in _SCALES.items():
        keys |= decoder.scale_key(folder, f"granite.{key}", name)
    return keys


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    biased = [*_BIASED] if folder.config.get("attention_bias") is True else []
    biased += _MLP_BIASED if folder.config.get("mlp_bias") is True else ()
    return decoder.shapes(folder, decoder.LAYER.values(), biased)


GRANITE = Recipe(
    "granite",
    metadata,
    decoder.namer("Granite", decoder.LAYER, (*_BIASED, *_MLP_BIASED)),
    decoder.is_matrix,
    shapes=_shapes,
    row_order=row_order,
)
