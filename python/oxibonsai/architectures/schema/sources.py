"""Sources of fields: a folder's ``config.json``, and the keys of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.graph import RopeConfig

_MOST = 2**31 - 1


@dataclass(frozen=True)
class ConfigJson:
    """The fields of ``config.json``, checked where they are read.

    Attributes:
        fields: By name.
        path: The file, for errors.
    """

    fields: Mapping[str, Any]
    path: Path

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

    def fail(self, problem: str) -> FormatError:
        """Return an error that names the file."""
        ...

    def unsupported(self, problem: str) -> UnsupportedError:
        """Return the error of a valid file that asks for what the family lacks."""
        ...

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value as it stands."""
        ...

    def layers(self) -> int:
        """Return the number of layers, each of which must have tensors."""
        ...

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a positive count; without a default the file must have it."""
        ...

    def count(self, key: str, default: int = 0) -> int:
        """Return a count that may be zero."""
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

    def rope(self, head_dim: int, *, interleaved: bool = False) -> RopeConfig:
        """Return the rotary embedding that the ``rope.`` keys describe."""
        ...
