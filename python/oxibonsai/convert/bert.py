"""BERT: names, keys and a WordPiece vocabulary, as llama.cpp writes them."""

from __future__ import annotations

import re

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import pooling_keys
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.wordpiece import wordpiece_keys
from oxibonsai.errors import UnsupportedError

_FIXED = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
}
_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
# Parts that embeddings don't use: heads of other tasks, and a list of the numbers from 0 on.
_LEFT_OUT = ("pooler.", "cls.", "embeddings.position_ids")
_KINDS = {
    "weight": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
}  # old names of norms


def tensor_name(parameter: str) -> str | None:
    """GGUF's name; None for what embeddings do without."""
    short = parameter.removeprefix("bert.")
    if short.startswith(_LEFT_OUT):
        return None
    module, _, last = short.rpartition(".")
    kind = _KINDS.get(last)
    layer = re.fullmatch(r"encoder\.layer\.([0-9]{1,4})\.(.+)", module)
    if kind is not None and layer is not None and layer[2] in _LAYER:
        return f"blk.{int(layer[1])}.{_LAYER[layer[2]]}.{kind}"
    if kind is not None and module in _FIXED:
        return f"{_FIXED[module]}.{kind}"
    raise UnsupportedError(f"the model has the parameter {parameter}, which is none of BERT's")


def is_matrix(tensor: str) -> bool:
    """The weights of linear layers and the token table; llama.cpp wants the small tables in f32."""
    return tensor.endswith(".weight") and not (
        "norm" in tensor or tensor in ("position_embd.weight", "token_types.weight")
    )


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu")
    folder.require("position_embedding_type", "absolute", None)
    folder.require("is_decoder", False)
    return {
        "bert.block_count": (folder.count("num_hidden_layers"), "u32"),
        "bert.context_length": (folder.count("max_position_embeddings"), "u32"),
        "bert.embedding_length": (folder.count("hidden_size"), "u32"),
        "bert.feed_forward_length": (folder.count("intermediate_size"), "u32"),
        "bert.attention.head_count": (folder.count("num_attention_heads"), "u32"),
        "bert.attention.layer_norm_epsilon": (folder.real("layer_norm_eps", 1e-12), "f32"),
        "bert.attention.causal": (False, "bool"),
        **pooling_keys(folder, "bert"),
        "tokenizer.ggml.token_type_count": (folder.count("type_vocab_size"), "u32"),
        **wordpiece_keys(folder, folder.count("vocab_size")),
    }


BERT = Recipe("bert", metadata, tensor_name, is_matrix)
