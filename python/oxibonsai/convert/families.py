"""Converters of families: names, operations and keys come from a family, shapes from its pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures.encoder import EncoderFamily
from oxibonsai.architectures.families import all_families
from oxibonsai.architectures.layers.drafting import OwnCache, drafting_pass
from oxibonsai.architectures.schema.family import Family, family_of_config_json
from oxibonsai.architectures.schema.operations import Array, Operation, keep_rows, over_groups
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Lazy, Tensor, TensorTable
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.float_types import Floats
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.lazy_model import LazyTensor
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.packs.affine import AffineParameter
from oxibonsai.checkpoint.packs.bitnet import BitNetParameter
from oxibonsai.checkpoint.packs.block_codes import BlockParameter
from oxibonsai.checkpoint.packs.compressed_tensors import CompressedIntegers
from oxibonsai.checkpoint.packs.mxfp4 import Mxfp4Parameter
from oxibonsai.checkpoint.packs.zero_points import ZeroPointParameter
from oxibonsai.checkpoint.parameters import FloatParameter, Parameter
from oxibonsai.convert.converter import Converter
from oxibonsai.convert.pooling import projection_keys, projections
from oxibonsai.convert.text_tokenizer import tokenizer_of
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.graph import Builder
from oxibonsai.models.weights import Weights


def config_json(folder: ModelFolder) -> ConfigJson:
    """Return the folder's ``config.json`` as families read it."""
    return ConfigJson(folder.config, folder.path / "config.json", lambda: folder.parameters)


# What holds codes, scales and biases.
Coded = AffineParameter | BlockParameter | CompressedIntegers | ZeroPointParameter


@dataclass(frozen=True, kw_only=True)
class FamilyConverter(Converter):
    """Makes a GGUF file of a folder of one family.

    Attributes:
        family: Describes the model.
        wrapper: Around the model; None: the folder holds nothing else.
        variant: What converts one folder, where a model type has several families.
    """

    family: Family[Any]
    wrapper: Wrapper | None = None
    variant: Callable[[ModelFolder], FamilyConverter] | None = None

    def table(self, folder: ModelFolder) -> tuple[Any, TensorTable]:
        """Return the config of a folder, and all of its tensors."""
        c = read_config(self.family, folder)
        return c, self.family.table(c, str(folder.path))

    def chooses_type(self, entry: Tensor) -> bool:
        """Return whether the user's choice of a type is about an entry's tensors."""
        return entry.matrix

    def further_tensors(
        self, folder: ModelFolder
    ) -> Mapping[str, npt.NDArray[np.float32 | np.int64]]:
        """Return tensors that no entry of the table makes, by GGUF's names: matrices after pooling."""
        return projections(folder) if _projects(self.family) else {}

    def check(self, folder: ModelFolder, c: Any, tensors: Sequence[LazyTensor]) -> None:
        """Check that the tensors of a file are those of its config; errors as of :func:`check_shapes`."""
        shapes = {tensor.name: tuple(tensor.shape) for tensor in tensors}
        check_shapes(self.family, c, str(folder.path), shapes)

    def parameters(self, folder: ModelFolder) -> dict[str, Parameter]:
        """Return a folder's parameters by the family's names.

        Raises:
            FormatError: Two parameters have one name.
        """
        found: dict[str, Parameter] = {}
        for name, held in folder.parameters.items():
            own = name if self.wrapper is None else self.wrapper.text_name(name)
            if own is None:
                continue
            own = self.family.spelled(own)
            if own in found:
                raise FormatError(f"{folder.path} has two parameters of one meaning: {name}, {own}")
            found[own] = held
        return found


def _projects(family: Family[Any]) -> bool:
    return isinstance(family, EncoderFamily) and family.projects


def converter_of(family: Family[Any]) -> FamilyConverter:
    """Return a family's entry in the table of converters."""
    tokenizer = tokenizer_of(family.name, encoder=isinstance(family, EncoderFamily))

    def metadata(folder: ModelFolder) -> Metadata:
        own = family.write_gguf(read_config(family, folder))
        after = projection_keys(folder, family.name) if _projects(family) else {}
        return {**own, **after, **tokenizer(folder)}

    return FamilyConverter(family.name, metadata, family=family, notes=family.notes)


def converters_of(families: Iterable[Family[Any]]) -> dict[str, FamilyConverter]:
    """Return the entries of families in the table of converters by model types, wrappers' among them."""
    named: dict[str, list[FamilyConverter]] = {}
    for family in families:
        own = converter_of(family)
        for kind in family.model_types:
            named.setdefault(kind, []).append(own)
        if family.wrapper is not None:
            for kind in family.wrapper.model_types:
                named.setdefault(kind, []).append(within(family.wrapper, own))
    return {kind: _converter_of_type(found) for kind, found in named.items()}


def _converter_of_type(converters: list[FamilyConverter]) -> FamilyConverter:
    """Return what converts all folders of one model type, whose ``config.json`` says the family."""
    if len(converters) == 1:
        return converters[0]

    def variant(folder: ModelFolder) -> FamilyConverter:
        found = family_of_config_json([c.family for c in converters], config_json(folder))
        return next(c for c in converters if c.family is found)

    return replace(converters[0], variant=variant)


def within(wrapper: Wrapper, converter: FamilyConverter) -> FamilyConverter:
    """Return what converts the language model in a folder of a larger model."""
    variant = converter.variant
    return replace(
        converter,
        config=lambda folder: wrapper.text_config(config_json(folder)),
        wrapper=wrapper,
        notes=(*converter.notes, *wrapper.notes),
        variant=None if variant is None else lambda folder: within(wrapper, variant(folder)),
    )


# By config.json's model_type, or what model_kind makes of it.
CONVERTERS = converters_of(all_families())


def read_config(family: Family[Any], folder: ModelFolder) -> Any:
    """Return the config of a folder's ``config.json``."""
    return family.read_config_json(config_json(folder))


@dataclass(frozen=True)
class Rearranged:
    """One of the tensors that an entry of a table makes of parameters.

    Attributes:
        entry: Of the table.
        held: Its parameters.
        place: Which of its tensors this is.
        where: The folder, for errors.
    """

    entry: Tensor
    held: Sequence[Parameter]
    place: int
    where: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the tensor's shape."""
        return self._made().shape

    @property
    def exact_type(self) -> str:
        """Return the type of floats or ternary weights that all parameters share; float32 for any other."""
        if all(isinstance(h, BitNetParameter) for h in self.held):
            return self.held[0].exact_type
        kinds = {h.exact_type for h in self.held}
        return kinds.pop() if kinds in ({"f16"}, {"bf16"}) else "f32"

    def values(self) -> Floats:
        """Return the tensor as float32."""
        found: Floats = self._made().read()
        return found

    def _made(self) -> Lazy:
        return self.entry.forwards([Lazy(h.shape, h.values) for h in self.held])[self.place]


@dataclass(frozen=True)
class _RearrangedRows(Rearranged):
    """A tensor whose rows are moved as they are stored."""

    @property
    def exact_type(self) -> str:
        """Return the type that all parameters have."""
        return self.held[0].exact_type

    def _moved(self, operations: Sequence[Operation], arrays: list[Array]) -> Array:
        """Return what operations make of rows of any kind: [rows of all matrices, columns]."""
        for operation in operations:
            arrays = operation.apply(arrays)
        moved = arrays[self.place]
        return np.ascontiguousarray(moved.reshape(-1, moved.shape[-1]))


@dataclass(frozen=True)
class RearrangedFloats(_RearrangedRows):
    """Matrices of one type of floats, which are moved as they are stored."""

    held: Sequence[FloatParameter]

    def bits(self) -> npt.NDArray[np.unsignedinteger]:
        """Return all values as integers of their size: [rows, columns]."""
        return self._moved(self.entry.operations, [held.bits() for held in self.held])


@dataclass(frozen=True)
class RearrangedCodes(_RearrangedRows):
    """Packed matrices whose codes, scales and biases are moved together."""

    held: Sequence[Coded]

    def codes(self) -> npt.NDArray[np.uint8]:
        """Return all codes: [rows, cols]."""
        return self._moved(self.entry.operations, [held.codes() for held in self.held])

    def affine(self) -> tuple[Floats, Floats]:
        """Return scales and biases: [rows, groups].

        Raises:
            UnsupportedError: Groups of weights would be taken apart.
        """
        scales, biases = zip(*(held.affine() for held in self.held), strict=True)
        shapes = [held.shape for held in self.held]
        group = shapes[0][-1] // scales[0].shape[-1]
        steps = over_groups(self.entry.operations, shapes, group)
        if steps is None:
            raise UnsupportedError(
                f"{self.where}: parameter {self.entry.parameters[0]} has groups of {group} weights, "
                "which an order of heads would take apart"
            )
        return self._moved(steps, list(scales)), self._moved(steps, list(biases))


@dataclass(frozen=True)
class RearrangedBlocks(_RearrangedRows):
    """MXFP4 matrices whose blocks are moved."""

    held: Sequence[Mxfp4Parameter]

    def blocks(self) -> npt.NDArray[np.uint8]:
        """Return all blocks: [rows, bytes of a row]."""
        return self._moved(self.entry.operations, [held.blocks() for held in self.held])


def rearranged(where: str, entry: Tensor, held: Sequence[Parameter]) -> list[Parameter]:
    """Return the tensors that an entry makes of its parameters, which lie ``where``.

    Raises:
        FormatError: A parameter has another shape than the config says.
    """
    if not entry.operations:
        return list(held)
    try:
        entry.forwards([Lazy(h.shape, h.values) for h in held])
    except FormatError as e:
        raise FormatError(f"{where}: {e}") from e
    kind = _kind(entry, held)
    return [kind(entry, held, place, where) for place in range(len(entry.tensors))]


def _kind(entry: Tensor, held: Sequence[Parameter]) -> type[Rearranged]:
    """Return what keeps rows as they are stored, if all parameters are stored alike."""
    if not entry.moves or len({h.exact_type for h in held}) > 1:
        return Rearranged
    shapes = [h.shape for h in held]
    if all(isinstance(h, FloatParameter) for h in held):
        return RearrangedFloats
    if all(isinstance(h, Coded) for h in held):
        moved = over_groups(entry.operations, shapes, 1) is not None
        return RearrangedCodes if moved else Rearranged
    blocks = all(isinstance(h, Mxfp4Parameter) for h in held)
    return RearrangedBlocks if blocks and keep_rows(entry.operations, shapes) else Rearranged


class _Shapes:
    """Tensors that are not written yet, in the place of a file: they have shapes, and no bytes."""

    def __init__(self, path: str, architecture: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path, self.architecture, self._shapes = path, architecture, shapes

    @property
    def tensor_names(self) -> set[str]:
        return set(self._shapes)

    def has(self, name: str) -> bool:
        return name in self._shapes

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise FormatError(f"{self.path} lacks what makes the tensor {name}")
        return self._shapes[name]

    def weight(self, name: str) -> _core.Weight:
        shape = self.shape(name)
        rows = shape[-2] if len(shape) > 1 else 1
        return _core.Weight.of_shape(name, rows, shape[-1], prod(shape[:-2]))

    def vector(self, name: str) -> Floats:
        return np.zeros(self.shape(name), np.float32).ravel()


def check_shapes(
    family: Family[Any], c: Any, where: str, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Run a family's pass over shapes without bytes: what it asks for is what a file must hold.

    Args:
        family: Describes the pass.
        c: The model's config.
        where: The folder, for errors.
        shapes: Of the tensors that the file will have.

    Raises:
        FormatError: A tensor is missing, or has another shape than the config asks for.
        UnsupportedError: The pass has no use for a tensor.
    """
    weights = Weights(cast(Checkpoint, _Shapes(where, family.name, shapes)))
    try:
        family.whole_pass(Builder(), c, weights)
        if family.drafting_layer is not None and c.num_nextn_predict_layers > 0:
            drafting_pass(OwnCache(), c, weights, family.drafting_layer)
    except FormatError as e:
        raise FormatError(f"{e}, as config.json asks for") from e
    except RequestError as e:
        raise FormatError(f"{where}: config.json describes no model that can run: {e}") from e
    weights.refuse_unused()
