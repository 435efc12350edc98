"""BLOOM: names, keys, and q, k and v apart where a checkpoint has them by heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
_FIXED = {
    "transformer.word_embeddings": "token_embd",
    "transformer.word_embeddings_layernorm": "token_embd_norm",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
}


def _plain(parameter: str) -> str:
    """Return transformers' name: published checkpoints have no prefix."""
    known = parameter.startswith(("transformer.", "lm_head."))
    return parameter if known else f"transformer.{parameter}"


tensor_name = decoder.namer(
    "BLOOM",
    LAYER,
    (*LAYER.values(), "token_embd_norm", "output_norm"),
    fixed=_FIXED,
    layers="transformer.h",
    plain=_plain,
)


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the names that most models have."""
    found = folder.config
    hidden = found.get("hidden_size", found.get("n_embed"))
    heads = found.get("n_head", found.get("num_attention_heads"))
    return {
        "tie_word_embeddings": True,
        **found,
        "hidden_size": hidden,
        "num_hidden_layers": found.get("n_layer", found.get("num_hidden_layers")),
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": found.get("seq_length", hidden),
        "intermediate_size": 4 * hidden if isinstance(hidden, int) else None,
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("apply_residual_connection_post_layernorm", False)
    return {
        **decoder.dimension_keys(folder, "bloom", "layer_norm_epsilon"),
        **tokenizer_keys(folder),
    }


def row_order(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """Checkpoints have each head's q, k and v together; files all of q, then k, then v."""
    if tensor.split(".")[-2] != "attn_qkv":
        return None
    heads, width = folder.count("num_attention_heads"), decoder.head_dim(folder)
    return np.arange(3 * heads * width).reshape(heads, 3, width).swapaxes(0, 1).reshape(-1)


BLOOM = Recipe(
    "bloom",
    metadata,
    tensor_name,
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(
        folder,
        LAYER.values(),
        LAYER.values(),
        fixed=("token_embd", "token_embd_norm", "output_norm"),
    ),
    row_order=row_order,
    config=config,
)
