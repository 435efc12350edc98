"""Ling 2 (BailingMoE 2): names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    "input_layernorm": "attn_norm",
    "attention.query_key_value": "attn_qkv",
    "attention.query_layernorm": "attn_q_norm",
    "attention.key_layernorm": "attn_k_norm",
    "attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    **experts.DENSE,
    **experts.ROUTER,
    **experts.shared_names("mlp.shared_experts"),
}
_FIXED = {**decoder.FIXED, "model.word_embeddings": "token_embd"}
_A = "bailingmoe2"
tensor_name = decoder.namer(
    "Ling 2", _LAYER, fixed=_FIXED, extra={"mlp.gate.expert_bias": "exp_probs_b.bias"}
)


def _shared_width(folder: ModelFolder) -> int:
    """Return the width of one shared expert."""
    key = "moe_shared_expert_intermediate_size"
    if folder.config.get(key) is not None:
        return folder.count(key)
    return folder.count("moe_intermediate_size") * folder.count("num_shared_experts")


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    for bias in ("use_bias", "use_qkv_bias"):
        folder.require(bias, False)
    folder.require("use_qk_norm", True)
    folder.require("score_function", "sigmoid")
    folder.require("num_shared_experts", 1)
    rope = read_rope(folder, ("default", "linear", "yarn"), also=(PARTIAL,))
    keys: Metadata = {
        f"{_A}.leading_dense_block_count": (folder.count_or_zero("first_k_dense_replace"), "u32"),
        f"{_A}.expert_shared_feed_forward_length": (_shared_width(folder), "u32"),
        f"{_A}.expert_shared_count": (folder.count("num_shared_experts"), "u32"),
        f"{_A}.expert_gating_func": (experts.SIGMOID, "u32"),
        f"{_A}.expert_weights_norm": (folder.config.get("norm_topk_prob") is True, "bool"),
        f"{_A}.rope.dimension_count": (
            rotary_dims(folder, decoder.head_dim(folder), share=0.5),
            "u32",
        ),
    }
    return {
        **decoder.dimension_keys(folder, _A),
        **experts.expert_keys(folder, _A, "num_experts"),
        **experts.group_keys(folder, _A),
        **decoder.scale_key(folder, f"{_A}.expert_weights_scale", "routed_scaling_factor"),
        **keys,
        **rope_keys(_A, *rope),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    return experts.shapes(
        folder,
        set(_LAYER.values()) - set(experts.DENSE.values()),
        experts=folder.count("num_experts"),
        ff=folder.count("moe_intermediate_size"),
        shared_ff=_shared_width(folder),
        dense=folder.count_or_zero("first_k_dense_replace"),
    )


BAILINGMOE2 = Recipe(
    _A,
    metadata,
    tensor_name,
    experts.is_matrix,
    shapes=_shapes,
    left_out=experts.is_drafting,
    pieces=expert_pieces,
)
