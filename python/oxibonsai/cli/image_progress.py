"""Progress over the steps of a picture on stderr: a bar with the time that is left on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oxibonsai.diffusion.diffusion_pipeline import OnStep, Step


@contextmanager
def step_progress(steps: int) -> Iterator[OnStep]:
    """Yield a callback to call after each step."""
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
