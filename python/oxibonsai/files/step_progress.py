"""Progress of long work on stderr: a bar on a terminal, a whole line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Called with the steps that are done, the steps in all, and what is known so far.
StepProgress = Callable[[int, int, str], None]

_SECONDS_BEFORE_BAR = 0.5  # what is done sooner shows none
_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def step_progress(label: str, unit: str) -> Iterator[StepProgress]:
    """Show how far some work is.

    Args:
        label: What is done: ``"Reading the prompt"``.
        unit: What is counted: ``"tokens"``.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(label, unit)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"),
        TextColumn("{task.fields[note]}"), TimeRemainingColumn(),
    )  # fmt: skip
    started = time.monotonic()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=1, visible=False, unit=unit, note="")

        def progress(done: int, total: int, note: str = "") -> None:
            visible = time.monotonic() - started >= _SECONDS_BEFORE_BAR
            bar.update(task, completed=done, total=total, note=note, visible=visible)

        yield progress


def _lines(label: str, unit: str) -> StepProgress:
    """Report progress to logs and files, in whole lines."""
    last = time.monotonic()

    def progress(done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            known = f", {note}" if note else ""
            print(f"{label}: {done:,} of {total:,} {unit}{known}", file=sys.stderr, flush=True)

    return progress
