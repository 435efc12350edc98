"""Limits of one rendering: its steps, its seconds, and the size of every value on the way.

A value that is small however often its parts are shared can be written, compared, searched and
sorted in little time, so it is enough to check values where they are made and to look at the clock
at every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

MAX_TEXT = 4 << 20  # characters of a rendered prompt, and of any text on the way
MAX_STEPS = 500_000  # turns of loops, calls, filters
MAX_SECONDS = 1.0
MAX_ITEMS = 100_000  # elements of a range or a list, those of the lists in it included
MAX_BITS = 4096  # of a whole number


class Refused(Exception):
    """A template went past a bound."""


# Between two calls of who watches a rendering.
_LOOK_SECONDS = 0.1


class Budget:
    """Steps and time of one rendering.

    Args:
        look: Called some times in a second; what it raises ends the rendering.

    Attributes:
        stopped: What it raised.
    """

    def __init__(self, look: Callable[[], None] | None = None) -> None:
        self._steps = 0
        self._deadline = time.monotonic() + MAX_SECONDS
        self._look = look
        self._next_look = 0.0
        self.stopped: Exception | None = None

    def charge(self, steps: int) -> None:
        """Count steps, and looks at the clock."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise Refused(f"it takes more than {MAX_STEPS} steps")
        now = time.monotonic()
        if now > self._deadline:
            raise Refused(f"it takes more than {MAX_SECONDS:g} s")
        if self._look is not None and now > self._next_look:
            self._next_look = now + _LOOK_SECONDS
            try:
                self._look()
            except Exception as e:
                self.stopped = e
                raise Refused("it was stopped") from e


# Of the rendering that runs in this thread: filters have no other way to it. While a template is
# compiled there may be none: what would be computed then raises LookupError and is left for later.
budget: ContextVar[Budget] = ContextVar("budget")


def tick() -> None:
    """Count one step."""
    budget.get().charge(1)


def counted(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items, a step each."""
    for item in items:
        tick()
        yield item


def check_length(length: int) -> None:
    """Refuse a huge text or list before it is built, and charge for a large one."""
    if length > MAX_TEXT:
        raise Refused(f"it builds a text or list of {length} elements")
    budget.get().charge(1 + length // 256)


def checked(value: Any) -> Any:
    """Return the value, if it is small."""
    if isinstance(value, str):
        check_length(len(value))
    elif isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise Refused(f"it computes with a number of more than {MAX_BITS} bits")
    elif _parts(value) is not None:
        _check_tree(value)
    return value


def plain_text(value: Any) -> str:
    """Return a small value as text, without the mark of safe HTML, which would escape other values."""
    return "".join([str(checked(value))])


def _check_tree(value: Any) -> None:
    """Count what is in a container as often as it is referred to."""
    items = length = 0
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            length += len(part)
        else:
            children = _parts(part) or ()
            items += len(children)
            if items > MAX_ITEMS:
                raise Refused(f"it makes a list of more than {MAX_ITEMS} elements")
            pending.extend(children)
        if length > MAX_TEXT:
            raise Refused(f"it makes a list of more than {MAX_TEXT} characters")
    budget.get().charge(1 + items // 16)


def _parts(value: Any) -> Collection[Any] | None:
    """Return a container's items; None if the value is no container."""
    from jinja2.utils import Namespace

    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, str | range) or not isinstance(value, Collection):
        return None
    return value
