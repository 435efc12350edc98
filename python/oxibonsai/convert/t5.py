"""T5's encoder: names and keys."""

from __future__ import annotations

import re
from typing import Any

from oxibonsai.convert import encoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import pooling_keys, projection_keys, projections
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

_PARTS = {
    "layer.0.SelfAttention.q": "attn_q",
    "layer.0.SelfAttention.k": "attn_k",
    "layer.0.SelfAttention.v": "attn_v",
    "layer.0.SelfAttention.o": "attn_o",
    "layer.0.SelfAttention.relative_attention_bias": "attn_rel_b",
    "layer.0.layer_norm": "attn_norm",
    "layer.1.DenseReluDense.wi": "ffn_up",
    "layer.1.DenseReluDense.wi_0": "ffn_gate",
    "layer.1.DenseReluDense.wi_1": "ffn_up",
    "layer.1.DenseReluDense.wo": "ffn_down",
    "layer.1.layer_norm": "ffn_norm",
}
_FIXED = {"shared": "token_embd", "encoder.final_layer_norm": "enc.output_norm"}
_NAMES = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "d_kv": "head_dim",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "n_positions": "max_position_embeddings",
}
_POSITIONS = 512  # where the configuration does not say; no weight depends on it
_LAYER = re.compile(r"encoder\.block\.([0-9]{1,4})\.(.+)")


def config(folder: ModelFolder) -> dict[str, Any]:
    """The configuration under the usual names."""
    return {"max_position_embeddings": _POSITIONS, **encoder.renamed(_NAMES)(folder)}


def tensor_name(parameter: str) -> str | None:
    """GGUF's name; None for a further copy of the table."""
    if parameter == "encoder.embed_tokens.weight":
        return None
    module, _, last = parameter.rpartition(".")
    layer = _LAYER.fullmatch(module)
    if last == "weight" and layer is not None and layer[2] in _PARTS:
        return f"enc.blk.{int(layer[1])}.{_PARTS[layer[2]]}.weight"
    if last == "weight" and module in _FIXED:
        return f"{_FIXED[module]}.weight"
    raise UnsupportedError(
        f"the model has the parameter {parameter}, which is none of T5's encoder"
    )


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("feed_forward_proj", "relu", "gated-gelu")
    folder.require("relative_attention_max_distance", 128)
    width = (folder.count("head_dim"), "u32")
    epsilon = (folder.real("layer_norm_epsilon", 1e-6), "f32")
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": folder.count("intermediate_size"),
        "attention.head_count": folder.count("num_attention_heads"),
        "attention.relative_buckets_count": folder.count("relative_attention_num_buckets"),
    }
    return {
        **{f"t5encoder.{key}": (value, "u32") for key, value in counts.items()},
        "t5encoder.attention.key_length": width,
        "t5encoder.attention.value_length": width,
        "t5encoder.attention.layer_norm_epsilon": epsilon,
        "t5encoder.attention.layer_norm_rms_epsilon": epsilon,
        **pooling_keys(folder, "t5encoder", projects=True),
        **projection_keys(folder, "t5encoder"),
        **tokenizer_keys(folder),
    }


def is_matrix(tensor: str) -> bool:
    """The weights of linear layers and the token table, not the biases by distance."""
    return encoder.is_matrix(tensor) and "attn_rel_b" not in tensor


T5_ENCODER = Recipe("t5encoder", metadata, tensor_name, is_matrix, config=config, extra=projections)
