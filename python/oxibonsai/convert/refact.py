"""Refact: names and keys; heads share one key and value, and gate and up are one parameter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    "ln_1": "attn_norm",
    "attn.q": "attn_q",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_proj": "ffn_down",
}
_FIXED = {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
_PAIR = re.compile(r"transformer\.h\.([0-9]{1,4})\.(attn\.kv|mlp\.gate_up_proj)\.weight")
_PAIRS = {"attn.kv": ("attn_k", "attn_v"), "mlp.gate_up_proj": ("ffn_gate", "ffn_up")}
_MULTIPLE = 256  # of the width of the MLP


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    found, hidden = folder.config, folder.count("n_embd")
    width = int(2 * 4 * hidden / 3)
    return {
        **found,
        "hidden_size": hidden,
        "intermediate_size": -(-width // _MULTIPLE) * _MULTIPLE,
        "num_hidden_layers": found.get("n_layer"),
        "num_attention_heads": found.get("n_head"),
        "num_key_value_heads": 1,
        "max_position_embeddings": found.get("n_positions"),
        "rms_norm_eps": found.get("layer_norm_epsilon", 1e-5),
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    return {**decoder.dimension_keys(folder, "refact"), **tokenizer_keys(folder)}


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Halves, one below the other."""
    del folder
    found = _PAIR.fullmatch(parameter)
    if found is None:
        return ()

    def half(i: int) -> Callable[[Floats], Floats]:
        return lambda rows: rows[: len(rows) // 2] if i == 0 else rows[len(rows) // 2 :]

    names = _PAIRS[found[2]]
    return [Piece(f"blk.{int(found[1])}.{n}.weight", part=half(i)) for i, n in enumerate(names)]


REFACT = Recipe(
    "refact",
    metadata,
    decoder.namer("Refact", _LAYER, fixed=_FIXED, layers="transformer.h"),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values()),
    pieces=_pieces,
    config=config,
)
