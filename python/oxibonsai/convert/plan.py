"""Plan a converted file: every tensor with its type, checked against the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.affine_blocks import AFFINE_TYPES, encode_affine
from oxibonsai.convert.exact_blocks import Bytes
from oxibonsai.convert.families import (
    Coded,
    FamilyConverter,
    Rearranged,
    RearrangedCodes,
    check_shapes,
    rearranged,
)
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mxfp4 import Mxfp4Parameter
from oxibonsai.convert.parameters import Parameter
from oxibonsai.convert.pieces import Part, Piece, Stack, put_pieces_together
from oxibonsai.convert.recipe import Converter, Recipe
from oxibonsai.convert.stored_types import encode_measured
from oxibonsai.convert.target import Target
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.quantize.blocks import Loss
from oxibonsai.quantize.weight_types import WeightType, type_named


@dataclass(frozen=True)
class Planned:
    """A tensor to write; ``blocks`` reads and encodes it, and says what is lost."""

    name: str
    shape: tuple[int, ...]
    type: WeightType
    blocks: Callable[[], tuple[Bytes, Loss]]

    @property
    def nbytes(self) -> int:
        """Return the tensor's size in the file in bytes."""
        return self.type.size(int(np.prod(self.shape)))


def plan(folder: ModelFolder, recipe: Converter, target: Target, threads: int) -> list[Planned]:
    """Return all tensors of the file, in the order of the parameters' names.

    Args:
        folder: The model.
        recipe: What converts its architecture.
        target: The types of its matrices.
        threads: They share out the rows that are encoded.

    Raises:
        FormatError: A tensor is missing, appears twice, or has a shape that the configuration or the
            type does not allow.
        UnsupportedError: There is a parameter that the recipe does not know.
    """
    if isinstance(recipe, FamilyConverter):
        return _plan_family(folder, recipe, target, threads)
    assert isinstance(recipe, Recipe)  # there are two kinds of converters
    sources = _sources(folder, recipe)
    types = target.types({n: s.held for n, s in sources.items() if recipe.is_matrix(n)})
    planned = {
        name: _planned(folder, recipe, source, name, types.get(name, "f32"), threads)
        for name, source in sources.items()
    }
    planned |= _from_config(recipe.extra(folder))
    _check_shapes(folder, recipe, planned)
    return list(planned.values())


def _plan_family(
    folder: ModelFolder, converter: FamilyConverter, target: Target, threads: int
) -> list[Planned]:
    c, table = converter.table(folder)
    held = converter.parameters(folder)
    sources: dict[str, _Source] = {}
    matrices: dict[str, Parameter] = {}
    for entry in table.of_parameters(held):
        made = rearranged(str(folder.path), entry, [held[name] for name in entry.parameters])
        for tensor, tensor_held in zip(entry.tensors, made, strict=True):
            sources[tensor] = _Source(_named(entry.parameters, tensor), tensor_held)
            if entry.matrix:
                matrices[tensor] = tensor_held
    types = target.types(matrices)
    planned = {
        name: _planned_whole(folder, source, name, types.get(name, "f32"), threads)
        for name, source in sources.items()
    }
    planned |= _from_config(table.from_config)
    shapes = {name: tensor.shape for name, tensor in planned.items()}
    check_shapes(converter.family, c, str(folder.path), shapes)
    return list(planned.values())


def _named(parameters: Sequence[str], tensor: str) -> str:
    """Return what errors call the source of a tensor."""
    return f"parameter {parameters[0]}" if len(parameters) == 1 else f"the parameters for {tensor}"


def _from_config(tensors: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, Planned]:
    """Return tensors whose values the configuration says."""
    planned = {}
    for name, values in tensors.items():
        data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        planned[name] = Planned(
            name,
            values.shape,
            type_named("f32"),
            lambda data=data: (data, Loss()),  # type: ignore[misc]
        )
    return planned


def _planned_whole(
    folder: ModelFolder, source: _Source, name: str, type_name: str, threads: int
) -> Planned:
    """Return a tensor whose source has its shape and its order."""
    held, where = source.held, f"{folder.path}: {source.name}"
    kind = _checked_type(where, held.shape, 3 if isinstance(held, Rearranged) else 2, type_name)

    def blocks() -> tuple[Bytes, Loss]:
        as_coded = type_name in AFFINE_TYPES and type_name == held.exact_type
        if as_coded and isinstance(held, Coded | RearrangedCodes):
            scales, biases = held.affine()
            return encode_affine(held.codes(), scales, biases, type_name, where), Loss()
        first = held.held[0] if isinstance(held, Rearranged) else held
        packed = isinstance(first, Coded)
        values = held.values().reshape(-1, held.shape[-1])
        return encode_measured(values, type_name, where, doubles=packed, threads=threads)

    return Planned(name, held.shape, kind, blocks)


def _checked_type(where: str, shape: tuple[int, ...], most_dims: int, type_name: str) -> WeightType:
    """Return a tensor's type, which must suit its shape."""
    if not shape or len(shape) > most_dims or 0 in shape:
        raise FormatError(f"{where} has shape {shape}: no vector and no matrix")
    kind = type_named(type_name)
    if shape[-1] % kind.group != 0:
        raise FormatError(
            f"{where} has rows of {shape[-1]} weights, no multiple of the {kind.group} that {type_name} "
            "groups"
        )
    return kind


@dataclass(frozen=True)
class _Source:
    """The source of a tensor in the file: one parameter, or several put together."""

    name: str
    held: Parameter


def _sources(folder: ModelFolder, recipe: Recipe) -> dict[str, _Source]:
    """By the tensors' names."""
    pieces: dict[str, list[tuple[Piece, Parameter]]] = {}
    parameters: dict[str, list[str]] = {}
    for parameter, held in folder.parameters.items():
        if recipe.left_out(folder, parameter):
            continue
        found = recipe.pieces(folder, parameter)
        if not found and (name := recipe.tensor_name(parameter)) is not None:
            found = (Piece(name),)
        for piece in found:
            others = pieces.setdefault(piece.tensor, [])
            if others and piece.place is None:
                raise FormatError(
                    f"{folder.path} has two parameters of one meaning: {parameter}, {piece.tensor}"
                )
            others.append((piece, held))
            parameters.setdefault(piece.tensor, []).append(parameter)
    sources = {}
    for tensor, of_it in pieces.items():
        name = _named(parameters[tensor], tensor)
        sources[tensor] = _Source(name, put_pieces_together(f"{folder.path}: {name}", of_it))
    return sources


def _planned(
    folder: ModelFolder,
    recipe: Recipe,
    source: _Source,
    name: str,
    type_name: str,
    threads: int,
) -> Planned:
    held = source.held
    where = f"{folder.path}: {source.name}"
    shape = recipe.shape(folder, name, held.shape)
    most = max(recipe.most_dims, 3 if isinstance(held, Part | Stack) else 2)
    transposed = recipe.transposed(name)
    if transposed:
        shape = shape[::-1]
    kind = _checked_type(where, shape, most, type_name)

    def blocks() -> tuple[Bytes, Loss]:
        order = recipe.row_order(folder, name)
        columns = recipe.column_order(folder, name)
        as_coded = type_name in AFFINE_TYPES and type_name == held.exact_type and not transposed
        if as_coded and isinstance(held, Coded):
            kept = slice(None) if order is None else order
            scales, biases = (v[kept] for v in held.affine())
            codes = held.codes()[kept]
            if columns is not None:
                groups = _group_order(columns, codes.shape[1] // scales.shape[1], where)
                codes, scales, biases = codes[:, columns], scales[:, groups], biases[:, groups]
            return encode_affine(codes, scales, biases, type_name, where), Loss()
        if type_name == Mxfp4Parameter.exact_type and isinstance(held, Part):
            stored = held.blocks()
            if stored is not None:
                return stored.reshape(-1), Loss()
        values = np.ascontiguousarray(held.values().T) if transposed else held.values()
        values = values.reshape(shape)
        if order is not None:
            values = values[order]
        if columns is not None:
            values = values[:, columns]
        values = recipe.values(folder, name, values)
        if (offset := recipe.offset(name)) != 0.0:
            values = values + np.float32(offset)
        if values.ndim > 2:
            values = values.reshape(-1, shape[-1])
        doubles = isinstance(held, Coded)
        return encode_measured(values, type_name, where, doubles=doubles, threads=threads)

    return Planned(name, shape, kind, blocks)


def _group_order(columns: npt.NDArray[np.intp], group: int, where: str) -> npt.NDArray[np.intp]:
    """Return the order of groups of columns that an order of columns moves as wholes."""
    found = columns.reshape(-1, group)
    if (found[:, :1] % group != 0).any() or (found - found[:, :1] != np.arange(group)).any():
        raise UnsupportedError(
            f"{where} has groups of {group} weights, which an order of heads would take apart"
        )
    return found[:, 0] // group


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
