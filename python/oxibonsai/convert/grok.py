"""Grok 1, as transformers' remote code saves it: names and keys.

Grok 2 is published in pieces for eight devices, under equal names, which no folder of safetensors has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    "rms_norm": "attn_norm",
    "multi_head_attention.query": "attn_q",
    "multi_head_attention.key": "attn_k",
    "multi_head_attention.value": "attn_v",
    "multi_head_attention.linear": "attn_output",
    "rms_norm_1": "attn_output_norm",
    "rms_norm_2": "ffn_norm",
    "router": "ffn_gate_inp",
    "rms_norm_3": "layer_output_norm",
}
_FIXED = {
    "transformer.in_out_embed": "token_embd",
    "transformer.rms_norm": "output_norm",
    "lm_head": "output",
}
_EXPERT = re.compile(
    r"transformer\.decoder_layer\.([0-9]{1,4})\.moe\.([0-9]{1,5})\.(linear|linear_v|linear_1)\.weight"
)
_PROJECTIONS = {"linear": "gate", "linear_v": "up", "linear_1": "down"}
_CAP, _THETA = 30.0, 10000.0


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration, and whether the table is the output matrix too."""
    tied = "lm_head.weight" not in folder.parameters
    return {"tie_word_embeddings": tied, "num_experts_per_tok": 2, **folder.config}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("rope_theta", _THETA)
    folder.require("rope_type", None, "default")
    folder.require("attn_logit_softcapping", _CAP)
    folder.require("router_logit_softcapping", _CAP)
    folder.require("final_logit_softcapping", None)
    folder.require("moe_intermediate_size", None)  # of Grok 2
    return {
        **decoder.dimension_keys(folder, "grok"),
        **experts.expert_keys(folder, "grok", ff=None),
        "grok.rope.freq_base": (_THETA, "f32"),
        "grok.attn_logit_softcapping": (_CAP, "f32"),
        "grok.router_logit_softcapping": (_CAP, "f32"),
        "grok.attention.output_scale": (decoder.head_dim(folder) ** -0.5, "f32"),
        **decoder.scale_key(folder, "grok.attention.output_scale", "attn_output_multiplier"),
        **decoder.scale_key(folder, "grok.embedding_scale", "embedding_multiplier_scale"),
        **decoder.scale_key(folder, "grok.logit_scale", "output_multiplier_scale"),
        **tokenizer_keys(folder),
    }


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the matrix of one expert."""
    found = _EXPERT.fullmatch(parameter)
    if found is None:
        return ()
    return (Piece(f"blk.{int(found[1])}.ffn_{_PROJECTIONS[found[3]]}_exps.weight", int(found[2])),)


def _shapes(folder: ModelFolder) -> Shapes:
    count, ff = experts.count(folder), folder.count("intermediate_size")
    return experts.shapes(folder, _LAYER.values(), experts=count, ff=ff)


GROK = Recipe(
    "grok",
    metadata,
    decoder.namer("Grok", _LAYER, fixed=_FIXED, layers="transformer.decoder_layer"),
    experts.is_matrix,
    shapes=_shapes,
    pieces=pieces,
    config=config,
)
