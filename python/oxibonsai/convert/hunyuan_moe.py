"""Hunyuan with experts: names and keys."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    **experts.LAYER,
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "mlp.gate.wg": "ffn_gate_inp",
    **experts.shared_names("mlp.shared_mlp"),
}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    shared = folder.count("num_shared_expert") * folder.count("intermediate_size")
    return {
        **decoder.dimension_keys(folder, "hunyuan-moe"),
        **experts.expert_keys(folder, "hunyuan-moe", used="moe_topk"),
        "hunyuan-moe.expert_shared_count": (folder.count("num_shared_expert"), "u32"),
        "hunyuan-moe.expert_shared_feed_forward_length": (shared, "u32"),
        **rope_keys("hunyuan-moe", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


def _alike(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration, with one number where it lists the same for each layer."""
    config = dict(folder.config)
    for name in ("moe_topk", "num_shared_expert", "moe_intermediate_size"):
        value = config.get(name)
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            config[name] = value[0]
    return config


def _shapes(folder: ModelFolder) -> Shapes:
    return experts.shapes(
        folder,
        _LAYER.values(),
        experts=experts.count(folder),
        ff=folder.count("intermediate_size"),  # transformers reads moe_intermediate_size nowhere
        shared_ff=folder.count("num_shared_expert") * folder.count("intermediate_size"),
    )


HUNYUAN_MOE = Recipe(
    "hunyuan-moe",
    metadata,
    decoder.namer("Hunyuan with experts", _LAYER),
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
    config=_alike,
)
