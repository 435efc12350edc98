"""CodeShell: GPT-2's names, matrices with rows for rows; some heads share a key and a value."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_FIXED = {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
_THETA = 10000.0
# Constants, in published checkpoints.
_LEFT_OUT = (".attn.bias", ".attn.masked_bias", ".attn.rotary_emb.inv_freq")


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    shared = (
        folder.config.get("num_query_groups")
        if folder.config.get("group_query_attention")
        else None
    )
    return {
        **decoder.gpt_config(folder),
        "num_key_value_heads": shared or folder.config.get("n_head"),
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("activation_function", "gelu_pytorch_tanh", "gelu_new")
    folder.require("position_embedding_type", "rope")
    folder.require("scale_attn_weights", True)
    folder.require("rope_scaling", None)
    return {
        **decoder.dimension_keys(folder, "codeshell", "layer_norm_epsilon"),
        "codeshell.rope.freq_base": (_THETA, "f32"),
        **tokenizer_keys(folder),
    }


CODESHELL = Recipe(
    "codeshell",
    metadata,
    decoder.namer(
        "CodeShell",
        decoder.GPT_LAYER,
        (*decoder.GPT_LAYER.values(), "output_norm"),
        fixed=_FIXED,
        layers="transformer.h",
        left_out=_LEFT_OUT,
    ),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(
        folder, decoder.GPT_LAYER.values(), decoder.GPT_LAYER.values()
    ),
    config=config,
)
