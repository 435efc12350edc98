"""EXAONE 3 and 3.5: names and keys, and Llama 3's table of factors."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_factors, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    "ln_1": "attn_norm",
    "attn.attention.q_proj": "attn_q",
    "attn.attention.k_proj": "attn_k",
    "attn.attention.v_proj": "attn_v",
    "attn.attention.out_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc_0": "ffn_gate",
    "mlp.c_fc_1": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_FIXED = {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
_ROPES = ("default", "linear", "llama3")


def config(folder: ModelFolder) -> dict[str, Any]:
    """The configuration under the names that most models have."""
    found = folder.config
    return {
        **found,
        "num_hidden_layers": found.get("num_layers", found.get("num_hidden_layers")),
        "rms_norm_eps": found.get("layer_norm_epsilon", 1e-5),
    }


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("activation_function", "silu")
    return {
        **decoder.dimension_keys(folder, "exaone"),
        "exaone.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("exaone", *read_rope(folder, _ROPES)),
        **tokenizer_keys(folder),
    }


EXAONE = Recipe(
    "exaone",
    metadata,
    decoder.namer("EXAONE", LAYER, fixed=_FIXED, layers="transformer.h"),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), tied=True),
    extra=lambda folder: rope_factors(folder, _ROPES, decoder.head_dim(folder)),
    config=config,
)
