"""Output of commands: the files that they write, notices beside the results, wrapped words."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
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


def say_written(path: Path, as_json: bool, **facts: Any) -> None:
    """Print one line, or one JSON object in which further facts stand."""
    if as_json:
        click.echo(json.dumps({**file_facts(path), **facts}))
    else:
        click.echo(written_text(path))


def file_facts(path: Path) -> dict[str, Any]:
    """Return the path and the size of a file, for JSON; a pipe or a device has no size."""
    return {"path": str(path), "bytes": path.stat().st_size if path.is_file() else None}


def written_text(path: Path) -> str:
    """Return a line on a file that has been written, without its end."""
    size = file_facts(path)["bytes"]
    return f"{path}: written" if size is None else f"{path}: {size / 1e6:.1f} MB"


def warn(warnings: Sequence[str]) -> None:
    """Print each message as one line on stderr; a sentence in capitals is set in red."""
    for text in warnings:
        loud = any(word.isupper() and len(word) > 7 for word in text.split())
        click.secho(f"warning: {text}", err=True, fg="red" if loud else "yellow", bold=loud)


class WordWrap:
    """Puts line breaks in place of spaces, so that the terminal's edge cuts no word.

    A word is held back until it is complete, at most a line.

    Args:
        width: Columns of the terminal.
    """

    def __init__(self, width: int) -> None:
        self._width = max(width, 1)
        self._column = 0  # behind what has been given back
        self._word = ""
        self._word_width = 0
        self._spaces = 0  # before the word

    def feed(self, piece: str) -> str:
        """Return the text that can be printed now."""
        from prompt_toolkit.utils import get_cwidth

        out = []
        for character in piece:
            width = get_cwidth(character)
            if character == " ":
                out.append(self._give())
                self._spaces += 1
                continue
            if character == "\n":
                out.append(self._give() + "\n")
                self._column = self._spaces = 0
                continue
            self._word += character
            self._word_width += width
            # Scripts with wide characters have no spaces: a line may break behind any of them.
            if width > 1 or self._word_width >= self._width:
                out.append(self._give())
        return "".join(out)

    def finish(self) -> str:
        """Return the last word."""
        return self._give()

    def _give(self) -> str:
        if not self._word:
            return ""
        gap = " " * self._spaces
        if self._column and self._column + self._spaces + self._word_width > self._width:
            gap, self._column = "\n", 0
        else:
            self._column += self._spaces
        text = gap + self._word
        self._column += self._word_width
        self._word, self._word_width, self._spaces = "", 0, 0
        return text
