"""Longformer: names and keys. GGUF has no architecture of this kind elsewhere: the keys are ours."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import bert, encoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import pooling_keys
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.errors import FormatError, UnsupportedError

_NAME = "longformer"
_LAYER = {
    **bert.LAYER,
    "attention.self.query_global": "attn_q_global",
    "attention.self.key_global": "attn_k_global",
    "attention.self.value_global": "attn_v_global",
}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu")
    folder.require("position_embedding_type", "absolute", None)
    pooling = pooling_keys(folder, _NAME)
    return {
        **encoder.dimension_keys(folder, _NAME),
        f"{_NAME}.attention.sliding_window": (_windows(folder), "arr[u32]"),
        f"{_NAME}.attention.global_token_count": (_global_tokens(folder), "u32"),
        **pooling,
        **encoder.segment_keys(folder),
        **encoder.tokenizer_keys(folder),
    }


def _windows(folder: ModelFolder) -> list[int]:
    """Return each layer's window, both sides together."""
    layers = folder.count("num_hidden_layers")
    where = folder.path / "config.json"
    stated: Any = folder.config.get("attention_window", 512)
    windows = stated if isinstance(stated, list) else [stated] * layers
    if len(windows) != layers:
        raise FormatError(f"{where}: attention_window lists {len(windows)} of {layers} layers")
    for window in windows:
        if type(window) is not int or not 0 < window < 2**31 or window % 2 != 0:
            raise FormatError(f"{where}: attention_window is {window!r}, no even count above 0")
    dilation = folder.config.get("attention_dilation")
    if dilation not in (None, 1) and set(dilation if isinstance(dilation, list) else [0]) != {1}:
        raise UnsupportedError(
            f"{where}: attention_dilation is {dilation!r}; convert knows windows without gaps"
        )
    return windows


def _global_tokens(folder: ModelFolder) -> int:
    """sentence-transformers embeds texts without global tokens; else the first one is global."""
    embeds = (folder.path / "modules.json").is_file() and not encoder.classifies(folder)
    return 0 if embeds else 1


def _left_out(folder: ModelFolder, parameter: str) -> bool:
    """Return the pooler, and projections of global tokens where there are none."""
    unused = "_global." in parameter and _global_tokens(folder) == 0
    return unused or bert.no_pooler_at_all(folder, parameter)


LONGFORMER = Recipe(
    _NAME,
    metadata,
    encoder.EncoderNamer(
        "Longformer",
        "encoder.layer",
        _LAYER,
        {**bert.FIXED, **encoder.CLASSIFIER},
        prefixes=("longformer.",),
        left_out=bert.LEFT_OUT,
    ),
    encoder.is_matrix,
    left_out=_left_out,
    pieces=bert.positions,
    config=bert.without_padding,
)
