"""ERNIE 4.5 with experts: names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    **experts.LAYER,
    **experts.DENSE,
    **experts.ROUTER,
    **experts.shared_names("mlp.shared_experts"),
}
_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
tensor_name = decoder.namer(
    "ERNIE 4.5 with experts",
    _LAYER,
    _BIASED,
    left_out=("mtp",),
    extra={"mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias"},
)


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("use_bias", False)
    folder.require("moe_layer_interval", 1)
    folder.require("moe_layer_end_index", None, -1, folder.count("num_hidden_layers") - 1)
    shared = folder.count_or_zero("moe_num_shared_experts")
    keys = {
        "interleave_moe_layer_step": 1,
        "leading_dense_block_count": folder.count_or_zero("moe_layer_start_index"),
        "expert_shared_count": shared,
    }
    if shared:
        keys["expert_shared_feed_forward_length"] = _shared_width(folder)
    a = "ernie4_5-moe"
    return {
        **decoder.dimension_keys(folder, a),
        **experts.expert_keys(folder, a, "moe_num_experts", "moe_k"),
        **{f"{a}.{k}": (v, "u32") for k, v in keys.items()},
        **rope_keys(a, *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


def _shared_width(folder: ModelFolder) -> int:
    return folder.count_or_zero("moe_num_shared_experts") * folder.count("moe_intermediate_size")


def _shapes(folder: ModelFolder) -> Shapes:
    return experts.shapes(
        folder,
        experts.LAYER.values(),
        experts=folder.count("moe_num_experts"),
        ff=folder.count("moe_intermediate_size"),
        shared_ff=_shared_width(folder),
        dense=folder.count_or_zero("moe_layer_start_index"),
        tied=True,
    )


ERNIE4_5_MOE = Recipe(
    "ernie4_5-moe",
    metadata,
    tensor_name,
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
)
