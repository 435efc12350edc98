"""Progress over bytes on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def byte_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback for the bytes that are done and in all; the bar appears with the first call."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(label)
        return
    columns = (TextColumn(label), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        yield progress


def _lines(label: str) -> Callable[[int, int], None]:
    """For logs and files: whole lines, and none for what is done soon."""
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            print(f"{label}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", file=sys.stderr, flush=True)

    return progress
