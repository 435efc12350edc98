"""Qwen2 with experts: names and keys; q, k and v have biases."""

from __future__ import annotations

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    **experts.LAYER,
    **experts.ROUTER,
    **experts.shared_names("mlp.shared_expert"),
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_BIASED = ("attn_q", "attn_k", "attn_v")


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("use_sliding_window", False)
    folder.require("norm_topk_prob", False)
    folder.require("decoder_sparse_step", 1)
    folder.require("mlp_only_layers", [], None)
    shared = folder.count("shared_expert_intermediate_size")
    return {
        **decoder.dimension_keys(folder, "qwen2moe"),
        **experts.expert_keys(folder, "qwen2moe"),
        "qwen2moe.expert_shared_feed_forward_length": (shared, "u32"),
        **rope_keys("qwen2moe", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    return experts.shapes(
        folder,
        _LAYER.values(),
        _BIASED if folder.config.get("qkv_bias", True) is True else (),
        experts=experts.count(folder),
        ff=folder.count("moe_intermediate_size"),
        shared_ff=folder.count("shared_expert_intermediate_size"),
        special={"ffn_gate_inp_shexp": (1, folder.count("hidden_size"))},
    )


QWEN2MOE = Recipe(
    "qwen2moe",
    metadata,
    decoder.namer("Qwen2 with experts", _LAYER, _BIASED),
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
)
