"""Nemotron and Minitron: names and keys; norms hold 1 + w."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {k: v for k, v in decoder.LAYER.items() if v != "ffn_gate"}
_NORMS = ("attn_norm", "ffn_norm")
_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "relu2")
    width = decoder.head_dim(folder)
    return {
        **decoder.dimension_keys(folder, "nemotron", "norm_eps"),
        "nemotron.rope.dimension_count": (rotary_dims(folder, width, share=0.5), "u32"),
        "nemotron.rope.scaling.type": ("none", "str"),
        **rope_keys("nemotron", *read_rope(folder, ("default", "linear"), also=(PARTIAL,))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    biased = list(_NORMS)
    biased += _BIASED[:4] if folder.config.get("attention_bias") is True else ()
    biased += _BIASED[4:] if folder.config.get("mlp_bias") is True else ()
    return decoder.shapes(folder, LAYER.values(), biased)


NEMOTRON = Recipe(
    "nemotron",
    metadata,
    decoder.namer("Nemotron", LAYER, (*_BIASED, *_NORMS, "output_norm")),
    decoder.is_matrix,
    shapes=_shapes,
    offset=lambda tensor: 1.0 if tensor.endswith("norm.weight") else 0.0,
)
