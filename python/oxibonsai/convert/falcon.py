"""Falcon: names, keys, and q, k and v apart where a checkpoint has them by groups of heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_PARTS = {
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
_ONE_NORM = {"input_layernorm": "attn_norm", **_PARTS}
_TWO_NORMS = {"ln_mlp": "attn_norm", "ln_attn": "attn_norm_2", **_PARTS}
_FIXED = {
    "transformer.word_embeddings": "token_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
}
_NORMS = ("attn_norm", "attn_norm_2", "output_norm")
_CONTEXT = 2048  # of the published models, whose configuration doesn't say


def config(folder: ModelFolder) -> dict[str, Any]:
    """The configuration under the names that most models have."""
    found = folder.config
    shared = found.get("multi_query") is True and found.get("new_decoder_architecture") is not True
    heads = found.get("num_attention_heads", found.get("n_head"))
    return {
        "max_position_embeddings": _CONTEXT,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
        **found,
        "num_hidden_layers": found.get("num_hidden_layers", found.get("n_layer")),
        "num_attention_heads": heads,
        "num_key_value_heads": 1
        if shared
        else found.get("num_kv_heads", found.get("n_head_kv", heads)),
        "intermediate_size": found.get("ffn_hidden_size") or 4 * folder.count("hidden_size"),
    }


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("activation", "gelu")
    folder.require("alibi", False)
    folder.require("bias", False)
    if folder.config.get("new_decoder_architecture") is not True:
        folder.require("parallel_attn", True)
    return {
        **decoder.dimension_keys(folder, "falcon", "layer_norm_epsilon"),
        "falcon.tensor_data_layout": ("jploski", "str"),  # q, k and v apart
        **rope_keys("falcon", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


def row_order(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """Checkpoints have the q of a group of heads, then its k and v; files q, then k, then v."""
    if tensor.split(".")[-2] != "attn_qkv":
        return None
    groups, width = decoder.kv_heads(folder), decoder.head_dim(folder)
    count = folder.count("num_attention_heads") // groups
    rows = np.arange(groups * (count + 2) * width).reshape(groups, count + 2, width)
    parts = (rows[:, :count], rows[:, count], rows[:, count + 1])
    return np.concatenate([part.reshape(-1) for part in parts])


def _has_two_norms(folder: ModelFolder) -> bool:
    new = folder.config.get("new_decoder_architecture") is True
    return new and folder.config.get("num_ln_in_parallel_attn") in (None, 2)


def _recipe(layer: Mapping[str, str]) -> Recipe:
    """For the names of a layer's parts."""
    biased = [p for p in layer.values() if p in _NORMS]
    return Recipe(
        "falcon",
        metadata,
        decoder.namer("Falcon", layer, _NORMS, fixed=_FIXED, layers="transformer.h"),
        decoder.is_matrix,
        shapes=lambda folder: decoder.shapes(folder, layer.values(), biased),
        row_order=row_order,
        config=config,
    )


_WITH_ONE, _WITH_TWO = _recipe(_ONE_NORM), _recipe(_TWO_NORMS)
FALCON = replace(
    _WITH_ONE, variant=lambda folder: _WITH_TWO if _has_two_norms(folder) else _WITH_ONE
)
