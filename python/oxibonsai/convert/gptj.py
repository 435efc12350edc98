"""GPT-J: names and keys; the MLP and the output matrix have biases."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    "ln_1": "attn_norm",
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "attn.out_proj": "attn_output",
    "mlp.fc_in": "ffn_up",
    "mlp.fc_out": "ffn_down",
}
_FIXED = {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
_BIASED = ("attn_norm", "ffn_up", "ffn_down")
_MASKS = (".attn.bias", ".attn.masked_bias")  # constants, in old checkpoints


def config(folder: ModelFolder) -> dict[str, Any]:
    """The configuration under the names that most models have."""
    found = folder.config
    return {
        **found,
        "hidden_size": found.get("n_embd"),
        "num_hidden_layers": found.get("n_layer"),
        "num_attention_heads": found.get("n_head"),
        "num_key_value_heads": found.get("n_head"),
        "max_position_embeddings": found.get("n_positions"),
        "intermediate_size": found.get("n_inner") or 4 * folder.count("n_embd"),
    }


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("activation_function", "gelu_new")
    folder.require("tie_word_embeddings", False)
    return {
        **decoder.dimension_keys(folder, "gptj", "layer_norm_epsilon"),
        "gptj.rope.dimension_count": (folder.count("rotary_dim"), "u32"),
        **tokenizer_keys(folder),
    }


GPTJ = Recipe(
    "gptj",
    metadata,
    decoder.namer(
        "GPT-J",
        LAYER,
        (*_BIASED, "output_norm", "output"),
        fixed=_FIXED,
        layers="transformer.h",
        left_out=_MASKS,
    ),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), _BIASED),
    config=config,
)
