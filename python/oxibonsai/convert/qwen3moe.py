"""Qwen3 with experts: names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {**experts.LAYER, **decoder.HEAD_NORMS, **experts.ROUTER}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("use_sliding_window", False)
    folder.require("norm_topk_prob", True)
    folder.require("decoder_sparse_step", 1)
    folder.require("mlp_only_layers", [], None)
    return {
        **decoder.dimension_keys(folder, "qwen3moe"),
        **experts.expert_keys(folder, "qwen3moe"),
        **rope_keys("qwen3moe", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    count, ff = experts.count(folder), folder.count("moe_intermediate_size")
    return experts.shapes(folder, _LAYER.values(), experts=count, ff=ff)


QWEN3MOE = Recipe(
    "qwen3moe",
    metadata,
    decoder.namer("Qwen3 with experts", _LAYER),
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
)
