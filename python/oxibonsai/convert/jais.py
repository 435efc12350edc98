"""Jais: GPT-2's names, linear biases, a gated MLP, scales that become part of the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oxibonsai.convert import decoder
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

LAYER = {**decoder.GPT_LAYER, "mlp.c_fc2": "ffn_gate"}
_FIXED = {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
_TABLE, _HEAD, _SLOPES = "transformer.wte.weight", "lm_head.weight", "relative_pe.slopes"
_MAX_BIAS = 8


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    return {**decoder.gpt_config(folder), "num_key_value_heads": folder.config.get("n_head")}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("activation_function", "swiglu")
    folder.require("position_embedding_type", "alibi")
    return {
        **decoder.dimension_keys(folder, "jais", "layer_norm_epsilon"),
        "jais.attention.max_alibi_bias": (float(_steepness(folder)), "f32"),
        **tokenizer_keys(folder),
    }


def _steepness(folder: ModelFolder) -> int:
    """Return the steepness of the linear biases, whose first stored slope is 2^(-steepness / heads)."""
    slopes = [h for name, h in folder.parameters.items() if name.endswith(_SLOPES)]
    if not slopes:
        return _MAX_BIAS
    first = float(slopes[0].values().reshape(-1)[0])
    if not 0.0 < first < 1.0:
        raise FormatError(f"{folder.path}: the first of {_SLOPES} is {first}, not within 0 and 1")
    heads = folder.count("n_head")
    return -round(math.log2(first) * (1 << (heads.bit_length() - 1)))


def _scales(folder: ModelFolder) -> tuple[float, float]:
    """Return the scales of the token table and of the output matrix."""
    return (
        _number(folder, "mup_embeddings_scale", "embeddings_scale"),
        _number(folder, "mup_output_alpha") * _number(folder, "mup_width_scale")
        if folder.config.get("mup_output_alpha") is not None
        else _number(folder, "width_scale"),
    )


def _number(folder: ModelFolder, *names: str) -> float:
    """Return the first of some numbers that the configuration has."""
    for name in names:
        value = folder.config.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6:
            return float(value)
        if value is not None:
            raise FormatError(f"{folder.path / 'config.json'}: {name} is {value!r}, not above zero")
    raise FormatError(f"{folder.path / 'config.json'} has no {names[-1]}")


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the table and the output matrix with their scales; a tied table is both."""

    def scaled(factor: float) -> Callable[[Floats], Floats]:
        return lambda values: values * np.float32(factor)

    if parameter not in (_TABLE, _HEAD):
        return ()
    table, output = _scales(folder)
    head = Piece("output.weight", part=scaled(output))
    if parameter == _HEAD:
        return (head,)
    own = Piece("token_embd.weight", part=scaled(table))
    return (own,) if _HEAD in folder.parameters else (own, head)


JAIS = Recipe(
    "jais",
    metadata,
    decoder.namer(
        "Jais",
        LAYER,
        (*LAYER.values(), "output_norm"),
        fixed=_FIXED,
        layers="transformer.h",
        left_out=(".attn.bias", ".attn.masked_bias", _SLOPES),
    ),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), LAYER.values(), tied=True),
    transposed=lambda tensor: tensor.startswith("blk.") and decoder.is_matrix(tensor),
    pieces=_pieces,
    config=config,
)
