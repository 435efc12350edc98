"""Options and arguments that name what a command writes."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.files.whole_file import STANDARD_OUTPUT, is_standard_output


class OutputFile(click.Path):
    """A file to write; ``-`` is standard output.

    What the command says of its work then goes to standard error, as the file is all that a reader of
    standard output expects.

    Args:
        or_folder: A folder may be named instead, in which the file gets a name.
    """

    def __init__(self, *, or_folder: bool = False) -> None:
        super().__init__(dir_okay=or_folder, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, as :mod:`oxibonsai.files.whole_file` writes to it."""
        path: Any = super().convert(STANDARD_OUTPUT if value == "-" else value, param, ctx)
        if ctx is not None and is_standard_output(path):
            ctx.with_resource(redirect_stdout(sys.stderr))
        return path


class OutputFolder(click.Path):
    """A folder to write files into, or the beginning of their paths."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; it can't be standard output, which is one file."""
        path: Any = super().convert(value, param, ctx)
        if value == "-" or is_standard_output(path):
            self.fail(
                f"{value} is standard output, but several files are written: name a place on a disk",
                param,
                ctx,
            )
        return path
