"""How far a file is written, told to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable

# Called with the bytes that are done and the bytes in all.
Progress = Callable[[int, int], None]


def counted(total: int, progress: Progress | None) -> Callable[[int], None]:
    """Return a callback for the bytes of each part; ``progress`` is told their sum."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    return count
