"""Checks of sampling parameters: type and range, and the words of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from oxibonsai.errors import RequestError

# The steps between the biases, which come first, and the draw, in the order of chain.CHAIN.
STEP_NAMES = (
    "penalties", "dry", "xtc", "typ_p", "top_a", "eta", "epsilon", "temperature", "top_k", "min_p",
    "top_p",
)  # fmt: skip

Check = Callable[[str, Any], Any]
MOST_FLOAT = 3e38  # finite as a float32


def refusal(name: str, value: object, wanted: str) -> RequestError:
    """Return the error for a value that is not what it must be."""
    return RequestError(f"{name} is {value!r}; it must be {wanted}")


@dataclass(frozen=True)
class Bounds:
    """The range of a numeric parameter.

    Attributes:
        low: The smallest value, or what every value is above.
        high: The largest value; None: there is none.
        above: ``low`` itself is outside.
        integer: Only integers.
    """

    low: float
    high: float | None = None
    above: bool = False
    integer: bool = False

    def __str__(self) -> str:
        kind = "an integer," if self.integer else "a number"
        start = f"above {self.low:g}" if self.above else f"{self.low:g} or more"
        # An integer is written out: %g rounds 2**64 - 1.
        high = "" if self.high is None else f"{self.high}" if self.integer else f"{self.high:g}"
        return f"{kind} {start}" + (f" and at most {high}" if high else "")

    def __call__(self, name: str, value: Any) -> Any:
        """Return the value as a plain number; RequestError where it is outside.

        A number that is no integer must be a finite float32, as a logit is one.
        """
        if isinstance(value, bool) or not isinstance(value, Integral if self.integer else Real):
            raise refusal(name, value, str(self))
        plain: Callable[[Any], float] = int if self.integer else float
        checked = plain(value)
        inside = checked > self.low if self.above else checked >= self.low
        if not inside or (self.high is not None and checked > self.high):
            raise refusal(name, value, str(self))
        if not self.integer and checked > MOST_FLOAT:
            raise refusal(name, value, str(self))
        return checked


def number(low: float, high: float | None = None, *, above: bool = False) -> Bounds:
    """Return the range of a parameter that is a float."""
    return Bounds(low, high, above)


def integer(low: int, high: int | None = None) -> Bounds:
    """Return the range of a parameter that is an integer."""
    return Bounds(low, high, integer=True)


@dataclass(frozen=True)
class OrNone:
    """None, or a number within its range."""

    bounds: Bounds

    def __call__(self, name: str, value: Any) -> Any:
        """Return the checked value."""
        return None if value is None else self.bounds(name, value)


def flag(name: str, value: Any) -> bool:
    """Return the value if it is True or False."""
    if not isinstance(value, bool):
        raise refusal(name, value, "True or False")
    return value


@dataclass(frozen=True)
class Each:
    """A tuple of checked items out of any collection of them that is no string.

    Attributes:
        check: That of an item.
        wanted: What the collection is called in a refusal.
    """

    check: Check
    wanted: str

    def __call__(self, name: str, value: Any) -> tuple[Any, ...]:
        """Return the checked items."""
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise refusal(name, value, self.wanted)
        return tuple(self.check(name, item) for item in value)


def text(name: str, value: Any) -> str:
    """Return the value if it is a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise refusal(name, value, "made of strings that are not empty")
    return value


def step_name(name: str, value: Any) -> str:
    """Return the value if it is the name of a step."""
    if value not in STEP_NAMES:
        raise RequestError(f"{name} names {value!r}; the steps are {', '.join(STEP_NAMES)}")
    return str(value)


def biases(name: str, value: Any) -> dict[int, float]:
    """Return a copy of a mapping of token ids to numbers."""
    if not isinstance(value, Mapping):
        raise refusal(name, value, "a mapping of token ids to numbers from -100 to 100")
    checked = number(-100.0, 100.0)
    return {TOKEN_ID(name, key): checked(name, bias) for key, bias in value.items()}


def word(name: str, value: Any) -> str | tuple[int, ...]:
    """Return a string, or the ids of its tokens."""
    if isinstance(value, str) or not value:
        return text(name, value)
    return TOKEN_IDS(name, value)


MOST = 2**31 - 1  # the core uses 32-bit counts
TOKEN_ID = integer(0, MOST)
TOKEN_IDS = Each(TOKEN_ID, "a list of token ids")
STRINGS = Each(text, "a list of strings")
STEPS = Each(step_name, "a list of names of steps")
WORDS = Each(word, "a list of strings")
SHARE = number(0.0, 1.0)
POSITIVE_SHARE = number(0.0, 1.0, above=True)
POSITIVE = number(0.0, above=True)
LAST_TOKENS = integer(-1, MOST)
