"""A model's tensors: their names in a folder and in a GGUF file, and the operations between them.

    parameters  --forwards-->  tensors  --backwards-->  parameters

A family yields its entries for one config, each with full names, so that both directions are a look-up:
nothing is matched by a pattern, what no entry names is refused by name, and a dense layer, a second norm
or a tied head is an ``if``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

import numpy as np

from oxibonsai.architectures.schema.operations import (
    Array,
    Operation,
    Shape,
    Stack,
    Unstack,
    inverse_of,
)
from oxibonsai.errors import FormatError, UnsupportedError


@dataclass(frozen=True)
class Lazy:
    """A parameter or a tensor that is read when it is needed.

    Attributes:
        shape: Slowest axis first.
        read: Returns the values, in any type that the operations over it take.
        parts: What lies along the first axis, where each can be read alone, such as an expert's matrix.
    """

    shape: Shape
    read: Callable[[], Array]
    parts: tuple[Lazy, ...] = ()


@dataclass(frozen=True)
class Tensor:
    """Parameters of a folder, tensors of a file, and the operations from the one to the other.

    Attributes:
        parameters: Names in the folder: several where the file joins them.
        tensors: Names in the file: several where the file has parts of a parameter.
        operations: From parameters to tensors.
        matrix: Whether a file has it in the type that its user chose; else it is float32.
        optional: Whether a model may lack it.
    """

    parameters: tuple[str, ...]
    tensors: tuple[str, ...]
    operations: tuple[Operation, ...] = ()
    matrix: bool = True
    optional: bool = False

    @property
    def moves(self) -> bool:
        """Return whether values only change their places."""
        return all(operation.moves for operation in self.operations)

    @property
    def one_way(self) -> bool:
        """Return whether parameters that are made of tensors are others than those they came from."""
        return any(operation.one_way for operation in self.operations)

    def forwards(self, parameters: Sequence[Lazy]) -> list[Lazy]:
        """Return the tensors that the parameters make.

        Raises:
            FormatError: A parameter has another shape than the config says.
        """
        return apply_lazily(self.operations, parameters, ", ".join(self.parameters))

    def backwards(self, tensors: Sequence[Lazy]) -> list[Lazy]:
        """Return the parameters that the tensors make; errors as of :meth:`forwards`."""
        return apply_lazily(inverse_of(self.operations), tensors, ", ".join(self.tensors))


@dataclass(frozen=True)
class FromConfig:
    """A tensor of the file that a folder has no parameter for: its ``config.json`` says the values."""

    tensor: str
    values: Array


class Shaped(Protocol):
    """Whatever has a shape."""

    @property
    def shape(self) -> Shape:
        """Return the shape, slowest axis first."""
        ...


@dataclass(frozen=True)
class Either:
    """Tensors that are spelled in several ways, such as experts one by one or all in one parameter.

    Attributes:
        spellings: Entries of the same tensors; what is written has the first that the other side allows.
    """

    spellings: tuple[tuple[Tensor, ...], ...]

    def of_parameters(self, held: Mapping[str, Shaped]) -> tuple[Tensor, ...]:
        """Return the first spelling whose parameters a folder holds in the shapes that it is for.

        Where there is none, it is the first with all names, or else with most of them.
        """
        best = self._most(lambda tensor: tensor.parameters, held)
        return next((spelling for spelling in best if _fits(spelling, held)), best[0])

    def of_tensors(self, held: Collection[str]) -> tuple[Tensor, ...]:
        """Return the first of the spellings of which a file holds all tensors, or else most."""
        return self._most(lambda tensor: tensor.tensors, held)[0]

    def _most(
        self, names: Callable[[Tensor], tuple[str, ...]], held: Collection[str]
    ) -> list[tuple[Tensor, ...]]:
        """Return the spellings of which the largest share of names is held."""
        shares = []
        for spelling in self.spellings:
            own = [name for tensor in spelling for name in names(tensor)]
            shares.append(sum(name in held for name in own) / len(own))
        return [s for s, share in zip(self.spellings, shares, strict=True) if share == max(shares)]


def _fits(spelling: Sequence[Tensor], held: Mapping[str, Shaped]) -> bool:
    """Return whether all parameters of a spelling are there, in the shapes that it is for."""
    try:
        for tensor in spelling:
            tensor.forwards([Lazy(held[name].shape, _not_read) for name in tensor.parameters])
    except (KeyError, FormatError):
        return False
    return True


def _not_read() -> Array:
    raise AssertionError("shapes alone are asked for")


@dataclass(frozen=True)
class LeftOut:
    """Parameters that a file of this config has no place for, by a pattern of their names."""

    pattern: str


Entry = Tensor | FromConfig | LeftOut | Either


def all_tensors(entries: Iterable[Entry]) -> Iterator[Tensor]:
    """Yield the tensors of all entries, in each of their spellings."""
    for entry in entries:
        if isinstance(entry, Tensor):
            yield entry
        elif isinstance(entry, Either):
            yield from (tensor for spelling in entry.spellings for tensor in spelling)


def weight(parameter: str, tensor: str, *operations: Operation, optional: bool = False) -> Tensor:
    """Return the entry of a matrix; both names without ``.weight``."""
    return Tensor((f"{parameter}.weight",), (f"{tensor}.weight",), operations, optional=optional)


def vector(parameter: str, tensor: str, *operations: Operation, optional: bool = False) -> Tensor:
    """Return the entry of what stays float32; both names in full."""
    return Tensor((parameter,), (tensor,), operations, matrix=False, optional=optional)


def norm(parameter: str, tensor: str, *operations: Operation) -> Tensor:
    """Return the entry of a norm's weight; both names without ``.weight``."""
    return vector(f"{parameter}.weight", f"{tensor}.weight", *operations)


def bias(parameter: str, tensor: str, *operations: Operation, optional: bool = False) -> Tensor:
    """Return the entry of a bias; both names without ``.bias``."""
    return vector(f"{parameter}.bias", f"{tensor}.bias", *operations, optional=optional)


def apply_lazily(operations: Sequence[Operation], given: Sequence[Lazy], names: str) -> list[Lazy]:
    """Return what operations make of arrays, each computed when it is read.

    Without operations the result is what was given: nothing is copied. What is stacked, or a part of a
    stack, is read part by part.

    Args:
        operations: In order.
        given: The arrays.
        names: What errors call them.

    Raises:
        FormatError: An operation is for other shapes.
        UnsupportedError: An operation is for other values, when they are read.
    """
    if not operations:
        return list(given)
    shapes = [lazy.shape for lazy in given]
    try:
        for operation in operations:
            shapes = operation.shapes(shapes)
    except ValueError as e:
        shapes = [lazy.shape for lazy in given]
        raise FormatError(f"{names} of shape {shapes} is not what the config asks for: {e}") from e

    first, last = operations[0], operations[-1]
    if isinstance(first, Unstack) and given[0].parts and all(o.each for o in operations[1:]):
        return [m for part in given[0].parts for m in apply_lazily(operations[1:], [part], names)]
    if isinstance(last, Stack) and all(o.each for o in operations[:-1]):
        parts = [m for part in given for m in apply_lazily(operations[:-1], [part], names)]
        return [Lazy(shapes[0], lambda: np.stack([p.read() for p in parts]), tuple(parts))]

    def read(place: int) -> Array:
        arrays = [lazy.read() for lazy in given]
        try:
            for operation in operations:
                arrays = operation.apply(arrays)
        except ValueError as e:
            raise UnsupportedError(f"{names} {e}") from e
        return np.ascontiguousarray(arrays[place])

    return [
        Lazy(shape, lambda i=i: read(i))  # type: ignore[misc]
        for i, shape in enumerate(shapes)
    ]


class TensorTable:
    """All tensors of one model.

    Args:
        where: The folder or file, which errors begin with.
        family: What errors call the family.
        entries: Its tensors.
        ignored: Patterns of parameters that a file has no place for and no need of.
    """

    def __init__(
        self, where: str, family: str, entries: Iterable[Entry], ignored: Sequence[str] = ()
    ) -> None:
        listed = list(entries)
        self._where, self._family = where, family
        self._ignored = [*ignored, *(e.pattern for e in listed if isinstance(e, LeftOut))]
        self._entries = [e for e in listed if isinstance(e, Tensor | Either)]
        self._of_parameter: dict[str, Tensor] = {}
        for entry in all_tensors(listed):
            for name in entry.parameters:
                self._of_parameter.setdefault(name, entry)
        self.from_config = {e.tensor: e.values for e in listed if isinstance(e, FromConfig)}

    def entry_of(self, parameter: str) -> Tensor | None:
        """Return the entry that a parameter is in; None where a file leaves the parameter out.

        Raises:
            UnsupportedError: The family has no such parameter.
        """
        if parameter in self._of_parameter:
            return self._of_parameter[parameter]
        if any(fnmatchcase(parameter, pattern) for pattern in self._ignored):
            return None
        raise UnsupportedError(
            f"{self._where}: the model has the parameter {parameter}, which is none of {self._family}'s"
        )

    def of_parameters(self, held: Mapping[str, Shaped]) -> list[Tensor]:
        """Return the entries that a folder's parameters make up, in the parameters' order.

        Raises:
            UnsupportedError: The family has no parameter of that name.
            FormatError: A parameter is missing, or there in two spellings.
        """
        spelled = self._spelled(lambda either: either.of_parameters(held))
        of_parameter = {name: entry for entry in spelled for name in entry.parameters}
        found = []
        for name in held:
            if name in of_parameter:
                found.append(of_parameter[name])
            elif self.entry_of(name) is not None:
                raise FormatError(f"{self._where} has two parameters of one meaning: one is {name}")
        missing = _missing(spelled, found, held, lambda entry: entry.parameters)
        if missing:
            first = self._of_parameter[missing[0]].tensors[0]
            raise FormatError(
                f"{self._where} lacks {len(missing)} of the parameters that its config.json asks for; the "
                f"first is {missing[0]}, GGUF's {first}"
            )
        return _each_once(found)

    def of_tensors(self, names: Iterable[str]) -> list[Tensor]:
        """Return the entries that a file's tensors make up, in the tensors' order.

        Raises:
            UnsupportedError: The family has no tensor of that name.
            FormatError: A tensor is missing.
        """
        held = {name: None for name in names if name not in self.from_config}
        spelled = self._spelled(lambda either: either.of_tensors(held))
        of_tensor = {name: entry for entry in spelled for name in entry.tensors}
        for name in held:
            if name not in of_tensor:
                raise UnsupportedError(
                    f"{self._where}: the tensor {name} is none of {self._family}'s"
                )
        found = [of_tensor[name] for name in held]
        missing = _missing(spelled, found, held, lambda entry: entry.tensors)
        if missing:
            raise FormatError(
                f"{self._where}: no config.json has a place for its lack of {missing[0]}"
            )
        return _each_once(found)

    def _spelled(self, choose: Callable[[Either], tuple[Tensor, ...]]) -> list[Tensor]:
        """Return all tensors, each in one spelling."""
        chosen = (choose(e) if isinstance(e, Either) else (e,) for e in self._entries)
        return [tensor for spelling in chosen for tensor in spelling]


def _each_once(entries: Iterable[Tensor]) -> list[Tensor]:
    """Return entries in their order; one of experts comes once for each of them."""
    return list({id(entry): entry for entry in entries}.values())


def _missing(
    spelled: list[Tensor],
    found: list[Tensor],
    held: Collection[str],
    names: Callable[[Tensor], tuple[str, ...]],
) -> list[str]:
    """Return the names that entries need on one side and that are not there."""
    needed = _each_once([*(e for e in spelled if not e.optional), *found])
    return list(dict.fromkeys(n for e in needed for n in names(e) if n not in held))
