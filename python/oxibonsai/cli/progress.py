"""Progress of commands on stderr: over bytes, over the steps of an image, over a long prompt."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oxibonsai.files.step_progress import step_progress

if TYPE_CHECKING:
    from oxibonsai.diffusion.diffusion_pipeline import OnStep, Step
    from oxibonsai.engine import Engine, Sequence

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
    """Report progress to logs and files: in whole lines, and none for what is done soon."""
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            print(f"{label}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", file=sys.stderr, flush=True)

    return progress


@contextmanager
def image_progress(steps: int) -> Iterator[OnStep]:
    """Yield a callback to call after each step of an image."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Reading the prompt", total=steps)

        def on_step(step: Step) -> None:
            done = step.index + 1
            text = f"Step {done} of {step.steps}" if done < step.steps else "Decoding"
            bar.update(task, completed=done, description=text)

        yield on_step


def read_prompt_of(engine: Engine, sequence: Sequence) -> None:
    """Run a sequence until its prompt is read, and show how far it is on stderr."""
    total = sequence.num_prompt_tokens
    with step_progress("Reading the prompt", "tokens") as progress:
        while not sequence.finished and sequence.times.first_token is None:
            engine.advance(sequence)
            progress(min(sequence.num_computed, total), total, "")
