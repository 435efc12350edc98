"""Sources of fields: a folder's ``config.json``, and the keys of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.graph import RopeConfig

_MOST = 2**31 - 1


class Held(Protocol):
    """A parameter of a folder."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape, slowest axis first."""
        ...

    def values(self) -> npt.NDArray[np.float32]:
        """Return the values, read when they are asked for."""
        ...


@dataclass(frozen=True)
class ConfigJson:
    """The fields of ``config.json``, checked where they are read.

    Attributes:
        fields: By name.
        path: The file, for errors.
        parameters: Returns the folder's parameters by name, since some fields are told by what is there.
    """

    fields: Mapping[str, Any]
    path: Path
    parameters: Callable[[], Mapping[str, Held]] = dict

    def fail(self, problem: str) -> FormatError:
        """Return an error that names the file."""
        return FormatError(f"{self.path}: {problem}")

    def unsupported(self, problem: str) -> UnsupportedError:
        """Return the error of a valid file that asks for what the family lacks."""
        return UnsupportedError(f"{self.path}: {problem}")

    def get(self, *names: str) -> Any:
        """Return the first of several fields that is there and not null; else None."""
        return next((v for name in names if (v := self.fields.get(name)) is not None), None)

    def count(self, value: Any, name: str, most: int = _MOST) -> int:
        """Return a value if it is a positive count; FormatError names the field if it is not."""
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise self.fail(f"{name} is {value!r}, not a positive count up to {most}")
        return value

    def number(self, value: Any, name: str, below: float = math.inf) -> float:
        """Return a value if it is above zero and below a bound; FormatError as of :meth:`count`."""
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not 0 < value < below:
            upper = "" if below == math.inf else f" and below {below:g}"
            raise self.fail(f"{name} is {value!r}, not a number above zero{upper}")
        return float(value)

    def flag(self, value: Any, name: str) -> bool:
        """Return a value if it is true or false; FormatError as of :meth:`count`."""
        if not isinstance(value, bool):
            raise self.fail(f"{name} is {value!r}, not true or false")
        return value


def key_name(architecture: str, key: str) -> str:
    """Return the whole name of a key; one that begins with a slash is whole but for that."""
    return key[1:] if key.startswith("/") else f"{architecture}.{key}"


class Keys(Protocol):
    """The keys of a GGUF file that belong to its architecture, by their names without it.

    A key that nothing asks for is refused by whoever made this.
    """

    @property
    def tensor_names(self) -> Collection[str]:
        """Names of the file's tensors, since some fields are told by what is there."""
        ...

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor; FormatError where the file lacks it."""
        ...

    def tensor_values(self, name: str) -> npt.NDArray[np.float32]:
        """Return a small tensor as float32; FormatError where the file lacks it."""
        ...

    def fail(self, problem: str) -> FormatError:
        """Return an error that names the file."""
        ...

    def unsupported(self, problem: str) -> UnsupportedError:
        """Return the error of a valid file that asks for what the family lacks."""
        ...

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value as it stands."""
        ...

    def has(self, key: str) -> bool:
        """Return whether the file has a key."""
        ...

    @property
    def has_classifier(self) -> bool:
        """Whether the file has the tensors of a classifier's head."""
        ...

    @property
    def tells_texts_apart(self) -> bool:
        """Whether the tokenizer gives the texts of a pair types of their own."""
        ...

    def layers(self) -> int:
        """Return the number of layers, each of which must have tensors."""
        ...

    def drafting_layers(self, layers: int) -> int:
        """Return how many of the last of the file's layers predict further tokens."""
        ...

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a positive count; without a default the file must have it."""
        ...

    def count(self, key: str, default: int = 0) -> int:
        """Return a count that may be zero."""
        ...

    def counts(self, key: str, layers: int) -> list[int]:
        """Return a count, 0 among them, for each layer: listed, or the same for all."""
        ...

    def local_layers(self, period: int) -> tuple[bool, ...]:
        """Return whether each layer attends within a window: listed, or all but every ``period``-th."""
        ...

    def real(self, key: str, default: float | None = None) -> float:
        """Return a finite number; without a default the file must have it."""
        ...

    def positive(self, key: str, default: float | None = None) -> float:
        """Return a finite number above zero; without a default the file must have it."""
        ...

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        ...

    def text(self, key: str, default: str, known: Collection[str]) -> str:
        """Return a word; UnsupportedError where it is none of those known."""
        ...

    def theta(self, key: str, default: float = 10000.0) -> float:
        """Return the base of a rotary embedding's frequencies."""
        ...

    def pooling(self, default: str, key: str = "pooling_type") -> str:
        """Return how vectors are made of hidden states, in a word."""
        ...

    def rope(self, head_dim: int, *, interleaved: bool = False) -> RopeConfig:
        """Return the rotary embedding that the ``rope.`` keys describe."""
        ...

    def multimodal_rope(self, head_dim: int, *, interleaved_sections: bool) -> RopeConfig:
        """Return the rotary embedding whose pairs turn by the axes of a position."""
        ...
