"""GLM 4.5 to 4.7: names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    **experts.LAYER,
    "post_attention_layernorm": "post_attention_norm",
    **decoder.HEAD_NORMS,
    **experts.DENSE,
    **experts.ROUTER,
    **experts.shared_names("mlp.shared_experts"),
    **experts.DRAFTING,
}
_BIASED = ("attn_q", "attn_k", "attn_v")
tensor_name = decoder.namer("GLM 4.5", _LAYER, _BIASED, extra=experts.SELECTION_BIAS)


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    a = "glm4moe"
    rope = read_rope(folder, ("default", "linear", "yarn"), also=(PARTIAL,))
    dims = rotary_dims(folder, decoder.head_dim(folder), share=0.5)
    dense = folder.count_or_zero("first_k_dense_replace")
    keys: Metadata = {
        f"{a}.leading_dense_block_count": (dense, "u32"),
        f"{a}.rope.dimension_count": (dims, "u32"),
        f"{a}.expert_gating_func": (experts.SIGMOID, "u32"),
        f"{a}.expert_weights_norm": (folder.config.get("norm_topk_prob", True) is True, "bool"),
    }
    return {
        **decoder.dimension_keys(folder, a),
        **experts.expert_keys(folder, a, "n_routed_experts"),
        **experts.shared_keys(folder, a),
        **experts.group_keys(folder, a),
        **decoder.scale_key(folder, f"{a}.expert_weights_scale", "routed_scaling_factor"),
        **keys,
        **experts.drafting_keys(folder, a),
        **rope_keys(a, *rope),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    left = {*experts.DENSE.values(), *experts.DRAFTING.values()}
    names = set(_LAYER.values()) - left
    if folder.config.get("use_qk_norm") is not True:
        names -= set(decoder.HEAD_NORMS.values())
    return experts.shapes(
        folder,
        names,
        _BIASED if folder.config.get("attention_bias") is True else (),
        experts=folder.count("n_routed_experts"),
        ff=folder.count("moe_intermediate_size"),
        shared_ff=experts.shared_width(folder),
        dense=folder.count_or_zero("first_k_dense_replace"),
    )


GLM4MOE = Recipe(
    "glm4moe",
    metadata,
    tensor_name,
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
)
