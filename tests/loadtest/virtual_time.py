"""An event loop whose clock stands still while anything runs, and jumps to the next timer else."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Lets no time pass: what would be waited for is added to the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the program waits for something that no timer brings")
        self.now += max(0.0, timeout)
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(program: Coroutine[Any, Any, T]) -> T:
    """Runs a program in no time; to it, its sleeps take as long as they should."""
    loop = _Loop()
    try:
        return loop.run_until_complete(program)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
