"""The parts of one architecture's conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece

# GGUF key -> value, and its type as `_core.GgufWriter.add_metadata` names it.
Metadata = dict[str, tuple[Any, str]]
Shapes = dict[str, tuple[int, ...]]


def _nothing(folder: ModelFolder) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Converter:
    """The protocol of converters from a folder of one architecture to a GGUF file.

    Attributes:
        architecture: GGUF's name.
        metadata: Its keys and those of its tokenizer; raises where the folder asks for more.
        config: The configuration of the part of the model that is converted.
        variant: What converts one model, where a model type has several architectures.
        notes: What the user should know.
    """

    architecture: str
    metadata: Callable[[ModelFolder], Metadata]
    config: Callable[[ModelFolder], dict[str, Any]] = field(
        default=lambda folder: folder.config, kw_only=True
    )
    variant: Callable[[ModelFolder], Converter] | None = field(default=None, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Recipe(Converter):
    """How a folder of one architecture becomes a GGUF file, where no family describes it yet.

    Attributes:
        tensor_name: GGUF's name of a parameter, None where the file leaves it out; UnsupportedError
            for one that is not known.
        pieces: Tensors that a parameter is a piece of; none: it is the tensor that tensor_name says.
        left_out: Whether a parameter is no part of what is converted.
        is_matrix: Whether a tensor, by GGUF's name, is stored in the chosen type; the others are f32.
        shapes: Of the tensors that a model must have, by GGUF's name.
        row_order: Rows of a tensor, by GGUF's name, in the order that the file has them; None: as
            they are.
        column_order: The same of columns.
        shape: That of a tensor in the file, from its name and its parameter's shape.
        values: What the file holds of a tensor's values, by GGUF's name; after rows and columns are in
            order, and of the tensor's own shape.
        parameter_shape: That of the parameter, from the tensor's; undoes ``shape``.
        parameter_values: The parameter's values, from the tensor's; undoes ``values``.
        transposed: Whether a tensor, by GGUF's name, is stored with columns for rows.
        offset: Added to the values of a tensor, by GGUF's name.
        extra: Further tensors of the file, computed from the configuration.
        most_dims: Of a parameter; those of one that is put together of pieces may be three.
    """

    tensor_name: Callable[[str], str | None]
    is_matrix: Callable[[str], bool]
    shapes: Callable[[ModelFolder], Shapes] = _nothing
    left_out: Callable[[ModelFolder, str], bool] = lambda folder, parameter: False
    pieces: Callable[[ModelFolder, str], Sequence[Piece]] = lambda folder, parameter: ()
    row_order: Callable[[ModelFolder, str], npt.NDArray[np.intp] | None] = lambda folder, name: None
    column_order: Callable[[ModelFolder, str], npt.NDArray[np.intp] | None] = lambda folder, name: (
        None
    )
    shape: Callable[[ModelFolder, str, tuple[int, ...]], tuple[int, ...]] = (
        lambda folder, name, shape: shape
    )
    values: Callable[[ModelFolder, str, Floats], Floats] = lambda folder, name, values: values
    parameter_shape: Callable[[ModelFolder, str, tuple[int, ...]], tuple[int, ...]] = (
        lambda folder, name, shape: shape
    )
    parameter_values: Callable[[ModelFolder, str, Floats], Floats] = lambda folder, name, values: (
        values
    )
    transposed: Callable[[str], bool] = lambda name: False
    offset: Callable[[str], float] = lambda name: 0.0
    extra: Callable[[ModelFolder], dict[str, npt.NDArray[np.float32]]] = _nothing
    most_dims: int = 2
