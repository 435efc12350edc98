"""PLaMo: names and keys; query heads that share a key come together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

LAYER = {
    "norm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_POSITIONS = 4096  # which no configuration says


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration with what it lacks; its number of key-value heads is that of queries."""
    found = folder.config
    heads, shared = folder.count("num_attention_heads"), folder.count("n_shared_head")
    if heads % shared != 0:
        raise FormatError(
            f"{folder.path / 'config.json'}: {heads} heads are no multiple of {shared} that share a key"
        )
    return {
        **found,
        "max_position_embeddings": _POSITIONS,
        "num_key_value_heads": heads // shared,
        "tie_word_embeddings": False,
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    return {**decoder.dimension_keys(folder, "plamo"), **tokenizer_keys(folder)}


def _grouped(folder: ModelFolder) -> npt.NDArray[np.intp]:
    """Which row of queries is at each place: head h of the folder shares key h % kv_heads."""
    kv, width = decoder.kv_heads(folder), decoder.head_dim(folder)
    shared = folder.count("num_attention_heads") // kv
    rows = np.arange(shared * kv * width)
    return rows.reshape(shared, kv, width).transpose(1, 0, 2).reshape(-1)


def _rows(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    return _grouped(folder) if tensor.endswith(".attn_q.weight") else None


def _columns(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    return _grouped(folder) if tensor.endswith(".attn_output.weight") else None


PLAMO = Recipe(
    "plamo",
    metadata,
    decoder.namer("PLaMo", LAYER, layers="model.layers.layers"),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values()),
    row_order=_rows,
    column_order=_columns,
    config=config,
)
