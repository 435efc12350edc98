"""Jais 2: names and keys; biases where the configuration says."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {k: v for k, v in decoder.LAYER.items() if v != "ffn_gate"}
_NORMS = ("attn_norm", "ffn_norm")
_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
_MLP = ("ffn_up", "ffn_down")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "relu2")
    return {
        **decoder.dimension_keys(folder, "jais2", "layer_norm_eps"),
        "jais2.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("jais2", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    biased = list(_NORMS)
    biased += _ATTENTION if folder.config.get("attention_bias", True) is True else ()
    biased += _MLP if folder.config.get("mlp_bias", True) is True else ()
    return decoder.shapes(folder, LAYER.values(), biased)


JAIS2 = Recipe(
    "jais2",
    metadata,
    decoder.namer("Jais 2", LAYER, (*_NORMS, *_ATTENTION, *_MLP, "output_norm")),
    decoder.is_matrix,
    shapes=_shapes,
)
