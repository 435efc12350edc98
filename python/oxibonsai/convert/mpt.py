"""MPT: names and keys, of the models with linear biases."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

LAYER = {
    "norm_1": "attn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm_2": "ffn_norm",
    "ffn.up_proj": "ffn_up",
    "ffn.down_proj": "ffn_down",
}
_FIXED = {"transformer.wte": "token_embd", "transformer.norm_f": "output_norm", "lm_head": "output"}


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the names that most models have, attention's own among them."""
    found, attention = folder.config, folder.config.get("attn_config")
    if not isinstance(attention, dict):
        raise FormatError(f"{folder.path / 'config.json'}: attn_config is no object")
    hidden, times = found.get("d_model"), found.get("expansion_ratio", 4)
    both = isinstance(hidden, int) and isinstance(times, int)
    return {
        "tie_word_embeddings": True,
        **found,
        **{f"attn_{k}": v for k, v in attention.items()},
        "hidden_size": hidden,
        "num_hidden_layers": found.get("n_layers"),
        "num_attention_heads": found.get("n_heads"),
        "num_key_value_heads": found.get("n_heads"),
        "max_position_embeddings": found.get("max_seq_len"),
        "intermediate_size": hidden * times if both else None,
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("attn_attn_type", "multihead_attention")
    folder.require("attn_alibi", True)
    folder.require("attn_qk_ln", False)
    folder.require("attn_softmax_scale", None)
    folder.require("attn_prefix_lm", False)
    folder.require("logit_scale", None)
    folder.require("no_bias", True)
    return {
        **decoder.dimension_keys(folder, "mpt", "layer_norm_epsilon"),
        **decoder.scale_key(folder, "mpt.attention.clamp_kqv", "attn_clip_qkv"),
        **decoder.scale_key(folder, "mpt.attention.max_alibi_bias", "attn_alibi_bias_max"),
        **tokenizer_keys(folder),
    }


MPT = Recipe(
    "mpt",
    metadata,
    decoder.namer("MPT", LAYER, fixed=_FIXED, layers="transformer.blocks"),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values()),
    config=config,
)
