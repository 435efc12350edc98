"""How far a download has come, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oxibonsai.sources.download import Progress


@contextmanager
def progress_bar(name: str, shown: bool | None = None) -> Iterator[Progress]:
    """A bar on stderr.

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

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    hidden = not console.is_terminal if shown is None else not shown
    with Bar(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
