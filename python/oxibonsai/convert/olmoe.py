"""OLMoE: names and keys."""

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
    folder.require("clip_qkv", None)
    folder.require("norm_topk_prob", False)
    return {
        **decoder.dimension_keys(folder, "olmoe"),
        **experts.expert_keys(folder, "olmoe", ff=None),
        **rope_keys("olmoe", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    width = decoder.head_dim(folder)
    return experts.shapes(
        folder,
        _LAYER.values(),
        experts=experts.count(folder),
        ff=folder.count("intermediate_size"),
        special={
            "attn_q_norm": (folder.count("num_attention_heads") * width,),
            "attn_k_norm": (decoder.kv_heads(folder) * width,),
        },
    )


OLMOE = Recipe(
    "olmoe",
    metadata,
    decoder.namer("OLMoE", _LAYER),
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
)
