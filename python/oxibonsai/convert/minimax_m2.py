"""MiniMax M2: names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    **experts.LAYER,
    **decoder.HEAD_NORMS,
    "block_sparse_moe.gate": "ffn_gate_inp",
}
tensor_name = decoder.namer(
    "MiniMax M2", _LAYER, extra={"block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias"}
)


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("scoring_func", None, "sigmoid")
    rope = read_rope(folder, ("default",), also=(PARTIAL,))
    dims = rotary_dims(folder, decoder.head_dim(folder))
    folder.require("rotary_dim", None, dims)
    return {
        **decoder.dimension_keys(folder, "minimax-m2"),
        **experts.expert_keys(folder, "minimax-m2", ff="intermediate_size"),
        "minimax-m2.expert_gating_func": (experts.SIGMOID, "u32"),
        "minimax-m2.rope.dimension_count": (dims, "u32"),
        **rope_keys("minimax-m2", *rope),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    width, count = decoder.head_dim(folder), experts.count(folder)
    return experts.shapes(
        folder,
        _LAYER.values(),
        ("exp_probs_b",),
        experts=count,
        ff=folder.count("intermediate_size"),
        special={
            "attn_q_norm": (folder.count("num_attention_heads") * width,),
            "attn_k_norm": (decoder.kv_heads(folder) * width,),
            "exp_probs_b": (count,),
        },
    )


MINIMAX_M2 = Recipe(
    "minimax-m2",
    metadata,
    tensor_name,
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
)
