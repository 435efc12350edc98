"""Figures of matplotlib, which is imported only when there is something to draw."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from oxibonsai.errors import RequestError
from oxibonsai.files.whole_file import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_matplotlib() -> None:
    """Say that a plot can't be made before a long run rather than after it.

    Raises:
        RequestError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RequestError(
            "a plot needs matplotlib: install it with pip install 'oxibonsai[bench]'"
        )


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as the kind of file that the name ends with; PNG where it ends with none.

    Raises:
        RequestError: matplotlib can't write this kind of file.
    """
    try:
        with written_whole(path) as out:
            figure.savefig(out, format=path.suffix.removeprefix(".") or "png", dpi=150)
    except ValueError as e:
        raise RequestError(f"can't plot to {path}: {e}") from None
