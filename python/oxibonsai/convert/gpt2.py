"""GPT-2 and StarCoder: names and keys; GPT-2's matrices have columns for rows."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_FIXED = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
}
_MASKS = (".attn.bias", ".attn.masked_bias")  # constants, in old checkpoints


def config(folder: ModelFolder) -> dict[str, Any]:
    """The configuration under the names that most models have."""
    found = folder.config
    return {
        **found,
        "hidden_size": found.get("n_embd"),
        "num_hidden_layers": found.get("n_layer"),
        "num_attention_heads": found.get("n_head"),
        "num_key_value_heads": 1 if found.get("multi_query") is True else found.get("n_head"),
        "max_position_embeddings": found.get("n_positions"),
        "intermediate_size": found.get("n_inner") or 4 * folder.count("n_embd"),
    }


def _metadata(folder: ModelFolder, architecture: str) -> Metadata:
    folder.require("scale_attn_weights", True)
    folder.require("scale_attn_by_inverse_layer_idx", False)
    folder.require("add_cross_attention", False)
    return {
        **decoder.dimension_keys(folder, architecture, "layer_norm_epsilon"),
        **tokenizer_keys(folder),
    }


def gpt2_metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("activation_function", "gelu_new", "gelu_pytorch_tanh")
    return _metadata(folder, "gpt2")


def starcoder_metadata(folder: ModelFolder) -> Metadata:
    """The same of StarCoder, whose heads share one key and value."""
    folder.require("activation_function", "gelu_pytorch_tanh", "gelu_new")
    folder.require("multi_query", True)
    return _metadata(folder, "starcoder")


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    hidden = folder.count("hidden_size")
    return decoder.shapes(
        folder,
        LAYER.values(),
        LAYER.values(),
        tied=True,
        special={"position_embd": (folder.count("max_position_embeddings"), hidden)},
        fixed=("token_embd", "position_embd", "output_norm"),
    )


def _is_matrix(tensor: str) -> bool:
    """All but norms and the positions, which stay as they are."""
    return decoder.is_matrix(tensor) and tensor != "position_embd.weight"


_NAME = decoder.namer(
    "GPT-2",
    LAYER,
    (*LAYER.values(), "output_norm"),
    fixed=_FIXED,
    layers="transformer.h",
    left_out=_MASKS,
)
GPT2 = Recipe(
    "gpt2",
    gpt2_metadata,
    _NAME,
    _is_matrix,
    shapes=_shapes,
    transposed=lambda tensor: tensor.startswith("blk.") and decoder.is_matrix(tensor),
    config=config,
)
STARCODER = Recipe(
    "starcoder", starcoder_metadata, _NAME, _is_matrix, shapes=_shapes, config=config
)
