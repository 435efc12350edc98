"""Families as today's table of converters has them: names, operations and keys come from a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.operations import Array, keep_rows
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Lazy, Tensor, TensorTable
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.affine import AffineParameter
from oxibonsai.convert.block_codes import BlockParameter
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.parameters import Parameter
from oxibonsai.convert.recipe import Converter, Metadata
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.convert.zero_points import ZeroPointParameter
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.graph import Builder
from oxibonsai.models.weights import Weights

# What holds codes, scales and biases.
Coded = AffineParameter | BlockParameter | ZeroPointParameter


def _same_name(parameter: str) -> str | None:
    return parameter


@dataclass(frozen=True, kw_only=True)
class FamilyConverter(Converter):
    """Makes a GGUF file of a folder of one family.

    Attributes:
        family: Describes the model.
        renamed: What the family calls a parameter of the folder; None: it is no part of what is converted.
    """

    family: Family[Any]
    renamed: Callable[[str], str | None] = _same_name

    def table(self, folder: ModelFolder) -> tuple[Any, TensorTable]:
        """Return the config of a folder, and all of its tensors."""
        c = read_config(self.family, folder)
        return c, self.family.table(c, str(folder.path))

    def parameters(self, folder: ModelFolder) -> dict[str, Parameter]:
        """Return a folder's parameters by the family's names.

        Raises:
            FormatError: Two parameters have one name.
        """
        found: dict[str, Parameter] = {}
        for name, held in folder.parameters.items():
            own = self.renamed(name)
            if own is None:
                continue
            own = self.family.spelled(own)
            if own in found:
                raise FormatError(f"{folder.path} has two parameters of one meaning: {name}, {own}")
            found[own] = held
        return found


def converter_of(family: Family[Any]) -> FamilyConverter:
    """Return a family's entry in the table of converters."""

    def metadata(folder: ModelFolder) -> Metadata:
        own = family.write_gguf(read_config(family, folder))
        return {**own, **tokenizer_keys(folder)}

    return FamilyConverter(family.name, metadata, family=family)


def read_config(family: Family[Any], folder: ModelFolder) -> Any:
    """Return the config of a folder's ``config.json``."""
    return family.read_config_json(ConfigJson(folder.config, folder.path / "config.json"))


@dataclass(frozen=True)
class Rearranged:
    """One of the tensors that an entry of a table makes of parameters.

    Attributes:
        entry: Of the table.
        held: Its parameters.
        place: Which of its tensors this is.
    """

    entry: Tensor
    held: Sequence[Parameter]
    place: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the tensor's shape."""
        return self._made().shape

    @property
    def exact_type(self) -> str:
        """Return the type that all parameters share, if it holds the tensor, too; else float32."""
        kinds = {h.exact_type for h in self.held}
        return kinds.pop() if self.entry.moves and kinds in ({"f16"}, {"bf16"}) else "f32"

    def values(self) -> Floats:
        """Return the tensor as float32."""
        found: Floats = self._made().read()
        return found

    def _made(self) -> Lazy:
        return self.entry.forwards([Lazy(h.shape, h.values) for h in self.held])[self.place]


@dataclass(frozen=True)
class RearrangedCodes(Rearranged):
    """A packed matrix whose codes, scales and biases are moved together by rows."""

    held: Sequence[Coded]

    @property
    def exact_type(self) -> str:
        """Return the type of the packed matrix."""
        return self.held[0].exact_type

    def codes(self) -> npt.NDArray[np.uint8]:
        """Return all codes: [rows, cols]."""
        return self._moved(self.held[0].codes())

    def affine(self) -> tuple[Floats, Floats]:
        """Return scales and biases: [rows, groups]."""
        scales, biases = self.held[0].affine()
        return self._moved(scales), self._moved(biases)

    def _moved(self, rows: Array) -> Array:
        arrays = [rows]
        for operation in self.entry.operations:
            arrays = operation.apply(arrays)
        return np.ascontiguousarray(arrays[self.place])


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
    kind = RearrangedCodes if len(held) == 1 and _keeps_codes(entry, held[0]) else Rearranged
    return [kind(entry, held, place) for place in range(len(entry.tensors))]  # type: ignore[arg-type]


def _keeps_codes(entry: Tensor, held: Parameter) -> bool:
    """Return whether a parameter is packed, and whole rows of it are moved."""
    if not entry.moves or not isinstance(held, Coded):
        return False
    return keep_rows(entry.operations, held.shape)


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
    except FormatError as e:
        raise FormatError(f"{e}, as config.json asks for") from e
    except RequestError as e:
        raise FormatError(f"{where}: config.json describes no model that can run: {e}") from e
    weights.refuse_unused()
