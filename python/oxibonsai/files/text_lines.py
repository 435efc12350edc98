"""Files of text that are read line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oxibonsai.errors import FormatError, RequestError


def numbered_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, with their numbers from 1 on.

    Raises:
        RequestError: There is no such file, or it can't be read.
        FormatError: It is not UTF-8.
    """
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as e:
        raise RequestError(f"cannot read {file}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise FormatError(f"{file} is not UTF-8 text (byte {e.start})") from e
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line
