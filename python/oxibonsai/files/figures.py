"""Figures of matplotlib, which is imported only when there is something to draw."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oxibonsai.errors import RequestError
from oxibonsai.files.whole_file import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = Sequence[tuple[float, float]]


def require_matplotlib() -> None:
    """Say that a plot can't be made before a long run rather than after it.

    Raises:
        RequestError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RequestError(
            "a plot needs matplotlib: install it with pip install 'oxibonsai[bench]'"
        )


def save_losses(path: Path, learnt: Curve, held_out: Curve, *, x: str, y: str) -> None:
    """Draw the losses of a run.

    Args:
        path: Of the picture.
        learnt: Of each batch.
        held_out: Of held-out texts; empty: there are none.
        x: Label of the horizontal axis.
        y: Label of the vertical one.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*learnt, strict=True), lw=0.8, label="batch")
    if held_out:
        axes.plot(*zip(*held_out, strict=True), "o-", ms=3, label="held out")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend()
    save_figure(figure, path, dpi=120)


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a figure as the kind of file that the name ends with; PNG where it ends with none.

    Args:
        figure: The figure.
        path: Of the file.
        dpi: Points of an inch of it.

    Raises:
        RequestError: matplotlib can't write this kind of file.
    """
    try:
        with written_whole(path) as out:
            figure.savefig(out, format=path.suffix.removeprefix(".") or "png", dpi=dpi)
    except ValueError as e:
        raise RequestError(f"can't plot to {path}: {e}") from None
