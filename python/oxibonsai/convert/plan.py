"""Plan a converted file: every tensor with its type, checked against the configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import Bytes
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.packs.affine import AffineParameter
from oxibonsai.checkpoint.packs.affine_blocks import (
    encode_affine,
    encode_pack,
    keeps_codes,
    same_values_blocks,
)
from oxibonsai.checkpoint.packs.mxfp4 import Mxfp4Parameter
from oxibonsai.checkpoint.parameters import FloatParameter, Parameter, sources_of
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.convert.converter import Converter, TowerConverter
from oxibonsai.convert.families import (
    Coded,
    FamilyConverter,
    Rearranged,
    RearrangedBlocks,
    RearrangedCodes,
    RearrangedFloats,
    rearranged,
)
from oxibonsai.convert.stored_types import are_finite, encode_measured
from oxibonsai.convert.target import Target
from oxibonsai.errors import FormatError
from oxibonsai.quantize.blocks import Loss
from oxibonsai.quantize.weight_types import WeightType, type_named

_MOST_DIMS = 4  # of a tensor of GGUF
_IDS = WeightType("I64", 27, 1, 8)  # no type of weights, so the core does not list it


@dataclass(frozen=True)
class Planned:
    """A tensor of the file that a folder would be converted to.

    Attributes:
        encode: Reads and encodes it, and says what is lost.
        sources: What is read; nothing: numbers of the configuration.
        as_stored: Whether its bytes are those of its one source.
    """

    name: str
    shape: tuple[int, ...]
    type: WeightType
    encode: Callable[[], tuple[Bytes, Loss]]
    sources: tuple[StoredTensor, ...] = ()
    as_stored: bool = False

    decodable = True

    @property
    def quant_type(self) -> str:
        """Return the type's name."""
        return self.type.name

    @property
    def gguf_id(self) -> int:
        """Return GGUF's number of the type."""
        return self.type.gguf_id

    @property
    def nbytes(self) -> int:
        """Return the tensor's size in the file in bytes."""
        return self.type.size(math.prod(self.shape))

    def make(self) -> Bytes:
        """Return the tensor's bytes."""
        if self.as_stored:
            return self.sources[0].raw()
        return self.encode()[0]

    def done(self) -> None:
        """Take the sources out of memory; FormatError where one has changed meanwhile."""
        for source in self.sources:
            source.release()
            source.check_unchanged()


def plan(folder: ModelFolder, converter: Converter, target: Target, threads: int) -> list[Planned]:
    """Return all tensors of the file, in the order of the parameters' names.

    Args:
        folder: The model.
        converter: Of its family, or of its vision tower.
        target: The types of its matrices.
        threads: They share out the rows that are encoded.

    Raises:
        FormatError: A tensor is missing, appears twice, or has a shape that the configuration or the
            type does not allow.
        UnsupportedError: There is a parameter that the converter does not know.
    """
    if isinstance(converter, FamilyConverter):
        return _plan_family(folder, converter, target, threads)
    assert isinstance(converter, TowerConverter)  # there are two kinds of converters
    return _plan_tower(folder, converter, target, threads)


def _plan_family(
    folder: ModelFolder, converter: FamilyConverter, target: Target, threads: int
) -> list[Planned]:
    c, table = converter.table(folder)
    held = converter.parameters(folder)
    sources: dict[str, _Source] = {}
    matrices: dict[str, Parameter] = {}
    types: dict[str, str] = {}
    for entry in table.of_parameters(held):
        made = rearranged(str(folder.path), entry, [held[name] for name in entry.parameters])
        for tensor, tensor_held in zip(entry.tensors, made, strict=True):
            sources[tensor] = _Source(_named(entry.parameters, tensor), tensor_held)
            if converter.chooses_type(entry):
                matrices[tensor] = tensor_held
            elif entry.matrix:
                types[tensor] = tensor_held.exact_type
    types |= target.types(matrices)
    planned = {
        name: _planned_whole(folder, source, name, types.get(name, "f32"), threads)
        for name, source in sources.items()
    }
    planned |= _computed({**table.from_config, **converter.further_tensors(folder)})
    converter.check(folder, c, list(planned.values()))
    return list(planned.values())


def _named(parameters: Sequence[str], tensor: str) -> str:
    """Return what errors call the source of a tensor."""
    return f"parameter {parameters[0]}" if len(parameters) == 1 else f"the parameters for {tensor}"


def _computed(tensors: Mapping[str, npt.NDArray[np.float32 | np.int64]]) -> dict[str, Planned]:
    """Return tensors whose values are known: float32, or token ids."""
    planned = {}
    for name, values in tensors.items():
        data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        planned[name] = Planned(
            name,
            values.shape,
            _IDS if values.dtype == np.int64 else type_named("f32"),
            lambda data=data: (data, Loss()),  # type: ignore[misc]
        )
    return planned


def _planned_whole(
    folder: ModelFolder, source: _Source, name: str, type_name: str, threads: int
) -> Planned:
    """Return a tensor whose source has its shape and its order."""
    held, where = source.held, f"{folder.path}: {source.name}"
    kind = _checked_type(where, held.shape, type_name)

    def encode() -> tuple[Bytes, Loss]:
        as_coded = keeps_codes(type_name, held.exact_type)
        if as_coded and isinstance(held, AffineParameter):
            return encode_pack(held, type_name, where), Loss()
        if as_coded and isinstance(held, Coded | RearrangedCodes):
            scales, biases = held.affine()
            return encode_affine(held.codes(), scales, biases, type_name, where), Loss()
        if isinstance(held, AffineParameter) and type_name == "tq2_0_g128":
            return same_values_blocks(held, type_name), Loss()
        mxfp4 = type_name == Mxfp4Parameter.exact_type
        if mxfp4 and isinstance(held, Mxfp4Parameter | RearrangedBlocks):
            return held.blocks().reshape(-1), Loss()
        if isinstance(held, FloatParameter | RearrangedFloats) and type_name == held.exact_type:
            bits = held.bits()
            if are_finite(bits, type_name):
                return np.ascontiguousarray(bits).reshape(-1).view(np.uint8), Loss()
        first = held.held[0] if isinstance(held, Rearranged) else held
        packed = isinstance(first, Coded)
        values = held.values().reshape(-1, held.shape[-1])
        return encode_measured(values, type_name, where, doubles=packed, threads=threads)

    as_stored = isinstance(held, FloatParameter) and held.exact_type == type_name
    return Planned(name, held.shape, kind, encode, tuple(sources_of(held)), as_stored)


def _checked_type(where: str, shape: tuple[int, ...], type_name: str) -> WeightType:
    """Return a tensor's type, which must suit its shape."""
    if not shape or len(shape) > _MOST_DIMS or 0 in shape:
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


def _plan_tower(
    folder: ModelFolder, converter: TowerConverter, target: Target, threads: int
) -> list[Planned]:
    sources: dict[str, _Source] = {}
    for parameter, held in folder.parameters.items():
        entry = converter.tensor(folder, parameter)
        if entry is None:
            continue
        made = rearranged(str(folder.path), entry, [held])
        for tensor, tensor_held in zip(entry.tensors, made, strict=True):
            if tensor in sources:
                raise FormatError(
                    f"{folder.path} has two parameters of one meaning: {parameter}, {tensor}"
                )
            sources[tensor] = _Source(f"parameter {parameter}", tensor_held)
    types = target.types({n: s.held for n, s in sources.items() if converter.is_matrix(n)})
    planned = {
        name: _planned_whole(folder, source, name, types.get(name, "f32"), threads)
        for name, source in sources.items()
    }
    _check_shapes(folder, converter.shapes(folder), planned)
    return list(planned.values())


def _check_shapes(
    folder: ModelFolder, wanted: Mapping[str, tuple[int, ...]], planned: Mapping[str, Planned]
) -> None:
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
