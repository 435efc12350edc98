"""A model's tensors: their names in a folder and in a GGUF file, and the operations between them.

    parameters  --forwards-->  tensors  --backwards-->  parameters

A family yields its entries for one config, each with full names, so that both directions are a look-up:
nothing is matched by a pattern, what no entry names is refused by name, and a dense layer, a second norm
or a tied head is an ``if``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from oxibonsai.architectures.schema.operations import Array, Operation, Shape, inverse_of
from oxibonsai.errors import FormatError, UnsupportedError


@dataclass(frozen=True)
class Lazy:
    """A parameter or a tensor that is read when it is needed.

    Attributes:
        shape: Slowest axis first.
        read: Returns the values, in any type that the operations over it take.
    """

    shape: Shape
    read: Callable[[], Array]


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


Entry = Tensor | FromConfig


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

    Without operations the result is what was given: nothing is copied.

    Args:
        operations: In order.
        given: The arrays.
        names: What errors call them.

    Raises:
        FormatError: An operation is for other shapes.
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

    def read(place: int) -> Array:
        arrays = [lazy.read() for lazy in given]
        try:
            for operation in operations:
                arrays = operation.apply(arrays)
        except ValueError as e:
            raise FormatError(f"{names}: {e}") from e
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
        self._where, self._family, self._ignored = where, family, ignored
        self._tensors = [e for e in listed if isinstance(e, Tensor)]
        self._of_parameter = {name: e for e in self._tensors for name in e.parameters}
        self._of_tensor = {name: e for e in self._tensors for name in e.tensors}
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

    def of_parameters(self, names: Iterable[str]) -> list[Tensor]:
        """Return the entries that a folder's parameters make up, in the parameters' order.

        Raises:
            UnsupportedError: The family has no parameter of that name.
            FormatError: A parameter is missing.
        """
        held = list(names)
        found = [entry for name in held if (entry := self.entry_of(name)) is not None]
        missing = self._missing(found, set(held), lambda entry: entry.parameters)
        if missing:
            first = self._of_parameter[missing[0]].tensors[0]
            raise FormatError(
                f"{self._where} lacks {len(missing)} of the parameters that its config.json asks for; the "
                f"first is {missing[0]}, GGUF's {first}"
            )
        return list(dict.fromkeys(found))

    def of_tensors(self, names: Iterable[str]) -> list[Tensor]:
        """Return the entries that a file's tensors make up, in the tensors' order.

        Raises:
            UnsupportedError: The family has no tensor of that name.
            FormatError: A tensor is missing.
        """
        held = [name for name in names if name not in self.from_config]
        for name in held:
            if name not in self._of_tensor:
                raise UnsupportedError(
                    f"{self._where}: the tensor {name} is none of {self._family}'s"
                )
        found = [self._of_tensor[name] for name in held]
        missing = self._missing(found, set(held), lambda entry: entry.tensors)
        if missing:
            raise FormatError(
                f"{self._where}: no config.json has a place for its lack of {missing[0]}"
            )
        return list(dict.fromkeys(found))

    def _missing(
        self, found: list[Tensor], held: set[str], names: Callable[[Tensor], tuple[str, ...]]
    ) -> list[str]:
        """Return the names that entries need on one side and that are not there."""
        needed = [*(e for e in self._tensors if not e.optional), *found]
        return list(dict.fromkeys(n for e in needed for n in names(e) if n not in held))
