"""Matrices of all experts in one parameter, gate above up."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Shapes

_PARAMETER = re.compile(
    r"model\.layers\.([0-9]{1,4})\.(?:mlp\.|feed_forward\.)?experts\.(gate_up|down)_proj"
)


def stacked_pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the tensor that such a parameter, [experts, rows, columns], is; none for any other."""
    found = _PARAMETER.fullmatch(parameter)
    if found is None:
        return ()
    return (Piece(f"blk.{int(found[1])}.ffn_{found[2]}_exps.weight", part=_all),)


def transposed_pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the experts' parts from [experts, columns, rows]; gate and up become two tensors."""
    found = _PARAMETER.fullmatch(parameter)
    if found is None:
        return ()
    b = f"blk.{int(found[1])}.ffn"
    if found[2] == "down":
        return (Piece(f"{b}_down_exps.weight", part=_rows),)
    return (
        Piece(f"{b}_gate_exps.weight", part=lambda v: np.split(_rows(v), 2, axis=1)[0]),
        Piece(f"{b}_up_exps.weight", part=lambda v: np.split(_rows(v), 2, axis=1)[1]),
    )


def either_way_pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """As :func:`transposed_pieces`, also where rows and columns are in order: the hidden size tells."""
    hidden = folder.count("hidden_size")
    found = _PARAMETER.fullmatch(parameter)
    if found is None:
        return ()
    b = f"blk.{int(found[1])}.ffn"
    if found[2] == "down":
        return (
            Piece(f"{b}_down_exps.weight", part=lambda v: v if v.shape[1] == hidden else _rows(v)),
        )

    def half(number: int) -> Callable[[Floats], Floats]:
        return lambda v: np.split(v if v.shape[2] == hidden else _rows(v), 2, axis=1)[number]

    return Piece(f"{b}_gate_exps.weight", part=half(0)), Piece(f"{b}_up_exps.weight", part=half(1))


def _all(values: Floats) -> Floats:
    return values


def _rows(values: Floats) -> Floats:
    return values.swapaxes(1, 2)


def with_fused_stacks(shapes: Shapes) -> Shapes:
    """Shapes where gate and up of the experts are one tensor."""
    found = dict(shapes)
    for name, (experts, rows, columns) in (
        (n, s) for n, s in shapes.items() if n.endswith(".ffn_gate_exps.weight")
    ):
        b = name.removesuffix("_gate_exps.weight")
        del found[name], found[f"{b}_up_exps.weight"]
        found[f"{b}_gate_up_exps.weight"] = (experts, 2 * rows, columns)
    return found
