"""How far a download has come, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from oxibonsai.sources.download import Progress

# Told the name of a file, the bytes that are there and all of them, by downloads of this context.
LISTENER: ContextVar[Callable[[str, int, int | None], None] | None] = ContextVar(
    "listener", default=None
)


@contextmanager
def progress_bar(name: str, shown: bool | None = None) -> Iterator[Progress]:
    """Yield the callback of a bar on stderr.

    Args:
        name: What is fetched.
        shown: None: where stderr is a terminal.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    told = LISTENER.get()
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    hidden = not console.is_terminal if shown is None else not shown
    with Bar(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(name, total=None)

        def show(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)
            if told is not None:
                told(name, done, total)

        yield show
