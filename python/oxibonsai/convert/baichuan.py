"""Baichuan: names and keys; queries, keys and values are one parameter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oxibonsai.convert import decoder
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {k: v for k, v in decoder.LAYER.items() if v not in ("attn_q", "attn_k", "attn_v")}
_PACK = re.compile(r"model\.layers\.([0-9]{1,4})\.self_attn\.W_pack\.weight")
# Of Baichuan 2, whose output matrix has rows of length 1 when it runs.
_VOCABULARY_2 = 125696


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    found = folder.config
    length = found.get("max_position_embeddings", found.get("model_max_length"))
    return {"rope_theta": 10000.0, **found, "max_position_embeddings": length}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    return {
        **decoder.dimension_keys(folder, "baichuan"),
        "baichuan.tensor_data_layout": ("Meta AI original pth", "str"),
        "baichuan.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("baichuan", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Thirds, one below the other."""
    del folder
    found = _PACK.fullmatch(parameter)
    if found is None:
        return ()

    def third(i: int) -> Callable[[Floats], Floats]:
        return lambda rows: np.split(rows, 3)[i] if len(rows) % 3 == 0 else rows

    names = ("attn_q", "attn_k", "attn_v")
    return [Piece(f"blk.{int(found[1])}.{n}.weight", part=third(i)) for i, n in enumerate(names)]


def _values(folder: ModelFolder, tensor: str, values: Floats) -> Floats:
    """Return the output matrix of Baichuan 2 as the model uses it."""
    if tensor != "output.weight" or folder.count("vocab_size") != _VOCABULARY_2:
        return values
    lengths = np.sqrt(np.sum(np.square(values, dtype=np.float64), axis=1, keepdims=True))
    unit: Floats = (values / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit


BAICHUAN = Recipe(
    "baichuan",
    metadata,
    decoder.namer("Baichuan", _LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values()),
    pieces=_pieces,
    row_order=decoder.row_order,
    values=_values,
    config=config,
)
