"""What a converted file will hold: every tensor with its type, checked against the configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oxibonsai.convert.affine_blocks import encode_affine
from oxibonsai.convert.exact_blocks import Bytes
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.parameters import AffineParameter, Parameter, ZeroPointParameter
from oxibonsai.convert.recipe import Recipe
from oxibonsai.convert.stored_types import STORED_TYPES, encode
from oxibonsai.errors import FormatError

CODED = (AffineParameter, ZeroPointParameter)  # what holds codes, scales and biases


@dataclass(frozen=True)
class Planned:
    """A tensor to write; ``blocks`` reads and encodes it."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    blocks: Callable[[], Bytes]

    @property
    def nbytes(self) -> int:
        """Of the tensor in the file."""
        stored = STORED_TYPES[self.type_name]
        return int(np.prod(self.shape)) // stored.group * stored.nbytes


def plan(folder: ModelFolder, recipe: Recipe, dtype: str) -> list[Planned]:
    """All tensors of the file, in the order of the parameters' names.

    Args:
        folder: The model.
        recipe: Of its architecture.
        dtype: Type of matrices; ``"auto"``: what holds each without loss.

    Raises:
        FormatError: A tensor is missing, appears twice, or has a shape that the configuration or the
            type does not allow.
        UnsupportedError: There is a parameter that the recipe does not know.
    """
    planned: dict[str, Planned] = {}
    for parameter, held in folder.parameters.items():
        name = recipe.tensor_name(parameter)
        if name is None:
            continue
        if name in planned:
            raise FormatError(
                f"{folder.path} has two parameters of one meaning: {parameter}, {name}"
            )
        type_name = "f32"
        if recipe.is_matrix(name):
            type_name = held.exact_type if dtype == "auto" else dtype
        planned[name] = _planned(folder, recipe, parameter, name, held, type_name)
    for name, values in recipe.extra(folder).items():
        data = values.view(np.uint8).reshape(-1)
        planned[name] = Planned(name, values.shape, "f32", lambda data=data: data)  # type: ignore[misc]
    _check_shapes(folder, recipe, planned)
    return list(planned.values())


def _planned(
    folder: ModelFolder, recipe: Recipe, parameter: str, name: str, held: Parameter, type_name: str
) -> Planned:
    where = f"{folder.path}: parameter {parameter}"
    shape = held.shape
    if not shape or len(shape) > 2 or 0 in shape:
        raise FormatError(f"{where} has shape {shape}: no vector and no matrix")
    group = STORED_TYPES[type_name].group
    if shape[-1] % group != 0:
        raise FormatError(
            f"{where} has rows of {shape[-1]} weights, no multiple of the {group} that {type_name} groups"
        )

    def blocks() -> Bytes:
        order = recipe.row_order(folder, name)
        if isinstance(held, CODED) and type_name in ("q4_1", "q8_0"):
            rows = slice(None) if order is None else order
            scales, biases = (v[rows] for v in held.affine())
            return encode_affine(held.codes()[rows], scales, biases, type_name, where)
        values = held.values()
        if order is not None:
            values = values[order]
        if (offset := recipe.offset(name)) != 0.0:
            values = values + np.float32(offset)
        return encode(values, type_name, where, doubles=isinstance(held, AffineParameter))

    return Planned(name, shape, type_name, blocks)


def _check_shapes(folder: ModelFolder, recipe: Recipe, planned: dict[str, Planned]) -> None:
    wanted = recipe.shapes(folder)
    missing = [n for n in wanted if n not in planned]
    if missing:
        raise FormatError(
            f"{folder.path} lacks {len(missing)} of the parameters that its config.json asks for; the "
            f"first is GGUF's {missing[0]}"
        )
    for name, shape in wanted.items():
        if planned[name].shape != shape:
            raise FormatError(
                f"{folder.path}: the parameter for {name} has shape {planned[name].shape}, but config.json "
                f"asks for {shape}"
            )


def file_type(planned: list[Planned]) -> int | None:
    """``general.file_type``: that of the type which most weights have."""
    counts: Counter[str] = Counter()
    for tensor in planned:
        if len(tensor.shape) > 1:
            counts[tensor.type_name] += int(np.prod(tensor.shape))
    return STORED_TYPES[counts.most_common(1)[0][0]].file_type if counts else 0
