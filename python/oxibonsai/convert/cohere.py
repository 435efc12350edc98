"""Command-R, Aya and Command R7B: names and keys."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

LAYER = {k: v for k, v in decoder.LAYER.items() if v != "ffn_norm"}
_HEADS = {**LAYER, **decoder.HEAD_NORMS}
_CONTEXT = "model_max_length"  # of Command-R, whose max_position_embeddings is the trained one


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration with the context that the model was extended to."""
    context = folder.config.get(_CONTEXT) or folder.config.get("max_position_embeddings")
    return {**folder.config, "max_position_embeddings": context}


def command_r_metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    return {
        **decoder.dimension_keys(folder, "command-r", "layer_norm_eps"),
        **decoder.scale_key(folder, "command-r.logit_scale", "logit_scale"),
        "command-r.rope.scaling.type": ("none", "str"),
        **rope_keys("command-r", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


def cohere2_metadata(folder: ModelFolder) -> Metadata:
    """Return the keys of Command R7B, most of whose layers see a window."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    width = decoder.head_dim(folder)
    keys = {
        **decoder.dimension_keys(folder, "cohere2", "layer_norm_eps"),
        **decoder.scale_key(folder, "cohere2.logit_scale", "logit_scale"),
        **decoder.window_keys(folder, "cohere2", 4),
        "cohere2.rope.dimension_count": (rotary_dims(folder, width, "rotary_pct"), "u32"),
        "cohere2.rope.scaling.type": ("none", "str"),
        **rope_keys("cohere2", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }
    pattern = keys.pop("cohere2.attention.sliding_window_pattern")[0]
    if pattern != [(i + 1) % 4 != 0 for i in range(len(pattern))]:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: layer_types is not every fourth layer, as files have it"
        )
    return keys


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    width = decoder.head_dim(folder)
    norms = {
        "attn_q_norm": (folder.count("num_attention_heads"), width),
        "attn_k_norm": (decoder.kv_heads(folder), width),
    }
    parts = _HEADS if folder.config.get("use_qk_norm") is True else LAYER
    return decoder.shapes(folder, parts.values(), tied=True, special=norms)


COMMAND_R = Recipe(
    "command-r",
    command_r_metadata,
    decoder.namer("Command-R", _HEADS),
    decoder.is_matrix,
    shapes=_shapes,
    config=config,
)
COHERE2 = Recipe(
    "cohere2",
    cohere2_metadata,
    decoder.namer("Command R7B", LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), tied=True),
)
