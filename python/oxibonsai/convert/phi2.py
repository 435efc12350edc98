"""Phi-1.5 and Phi-2: names and keys; biases everywhere."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.dense": "attn_output",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
_FIXED = {
    "model.embed_tokens": "token_embd",
    "model.final_layernorm": "output_norm",
    "lm_head": "output",
}


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu_new")
    folder.require("qk_layernorm", False)
    width = decoder.head_dim(folder)
    return {
        **decoder.dimension_keys(folder, "phi2", "layer_norm_eps"),
        "phi2.rope.dimension_count": (rotary_dims(folder, width, share=0.5), "u32"),
        **rope_keys("phi2", *read_rope(folder, ("default",), also=(PARTIAL,))),
        **tokenizer_keys(folder),
    }


PHI2 = Recipe(
    "phi2",
    metadata,
    decoder.namer("Phi", LAYER, (*LAYER.values(), "output_norm", "output"), fixed=_FIXED),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), LAYER.values()),
)
