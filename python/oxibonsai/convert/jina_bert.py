"""Jina BERT 2, with linear biases, and Jina Embeddings 3, with rotary embeddings: names and keys."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import bert, encoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import pooling_keys
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope

# Two generations of version 2: that of texts, and that of code.
_LAYER_V2 = {
    **bert.LAYER,
    "attention.self.layer_norm_q": "attn_q_norm",
    "attention.self.layer_norm_k": "attn_k_norm",
    "layer_norm_1": "attn_norm_2",
    "layer_norm_2": "layer_output_norm",
    "mlp.gated_layers": "ffn_up",
    "mlp.up_gated_layer": "ffn_up",
    "mlp.wo": "ffn_down",
    "mlp.down_layer": "ffn_down",
    "mlp.layernorm": "layer_output_norm",
}
_FIXED_V3 = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "emb_ln": "token_embd_norm",
}
_LAYER_V3 = {
    "mixer.Wqkv": "attn_qkv",
    "mixer.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "norm2": "layer_output_norm",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
_NAMES_V3 = {"rotary_emb_base": "rope_theta"}


def v2_metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("position_embedding_type", "alibi")
    folder.require("feed_forward_type", "original", "geglu")
    folder.require("hidden_act", "gelu")
    folder.require("is_decoder", False)
    return {
        **encoder.dimension_keys(folder, "jina-bert-v2"),
        **pooling_keys(folder, "jina-bert-v2"),
        **encoder.segment_keys(folder),
        **encoder.tokenizer_keys(folder),
    }


def v3_metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu")
    folder.require("position_embedding_type", "rotary", None)
    theta = read_rope(folder, ("default",))[1]["rope_theta"]
    return {
        **encoder.dimension_keys(folder, "jina-bert-v3"),
        "jina-bert-v3.rope.freq_base": (theta, "f32"),
        **pooling_keys(folder, "jina-bert-v3"),
        **encoder.segment_keys(folder),
        **encoder.tokenizer_keys(folder),
    }


def _v3_config(folder: ModelFolder) -> dict[str, Any]:
    folder.config = encoder.renamed(_NAMES_V3)(folder)
    return bert.without_padding(folder)


def _v3_name(parameter: str) -> str:
    """Return the name of the model's own matrix, which stands beside those of its adapters."""
    return parameter.replace(".parametrizations.", ".").removesuffix(".original")


def _v3_left_out(folder: ModelFolder, parameter: str) -> bool:
    """Adapters of single tasks, and the pooler."""
    del folder
    return parameter.endswith((".lora_A", ".lora_B")) or ".pooler." in f".{parameter}"


_V3_NAMES = encoder.EncoderNamer(
    "Jina Embeddings 3",
    "encoder.layers",
    _LAYER_V3,
    _FIXED_V3,
    prefixes=("roberta.",),
    left_out=("lm_head.", "embeddings.position_ids", "embeddings.token_type_ids"),
    plain=_v3_name,
)
JINA_BERT_V2 = Recipe(
    "jina-bert-v2",
    v2_metadata,
    encoder.EncoderNamer(
        "Jina BERT",
        "encoder.layer",
        _LAYER_V2,
        {**bert.FIXED, "classifier": "cls"},
        prefixes=("bert.",),
        left_out=("cls.", "embeddings.position_ids"),
    ),
    encoder.is_matrix,
    left_out=lambda folder, parameter: ".pooler." in f".{parameter}",
)
JINA_BERT_V3 = Recipe(
    "jina-bert-v3",
    v3_metadata,
    _V3_NAMES,
    encoder.is_matrix,
    left_out=_v3_left_out,
    config=_v3_config,
    notes=("the adapters of single tasks, where the folder has them, are left out",),
)
