"""Where a command's text comes from: an argument, an option, a file, stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from oxibonsai.cli.model_choice import check_is_text
from oxibonsai.errors import RequestError

_STDIN = "-"


def read_prompt(
    argument: str | None, option: str | None, file: Path | None, *, joins_stdin: bool = False
) -> str:
    """Return the text from the one place that was named, else from stdin.

    Args:
        argument: Of the command line; ``-`` is stdin, here and in the others.
        option: Of ``--prompt``.
        file: Of ``--file``.
        joins_stdin: Put what stdin has, where it is no terminal, and a space before the text.

    Raises:
        RequestError: There is no text, it is given twice, it can't be read, or the argument is a model.
    """
    if argument is not None:
        check_is_text(argument)
    given = [value for value in (argument, option, file) if value is not None]
    if len(given) > 1:
        raise RequestError("give the prompt once: as an argument, with --prompt or with --file")
    if not given or str(given[0]) == _STDIN:
        text = _read_stdin(wanted=not given)
    else:
        before = _read_stdin() if joins_stdin and not _is_terminal() else ""
        own = given[0] if isinstance(given[0], str) else _read(given[0])
        text = f"{before} {own}" if before else own
    if not text.strip():
        raise RequestError("the text is empty: give some, with --prompt, --file or on stdin")
    return text


def read_texts(arguments: tuple[str, ...], file: Path | None, noun: str) -> list[str]:
    """Several texts: the arguments, then the lines of a file, of which ``-`` is stdin.

    Args:
        arguments: Of the command line.
        file: Of ``--file``.
        noun: What the texts are, for messages.

    Raises:
        RequestError: There is none, the file can't be read, or an argument is a model.
    """
    for argument in arguments:
        check_is_text(argument)
    lines = []
    if file is not None:
        lines = (_read_stdin() if str(file) == _STDIN else _read(file)).splitlines()
    if not (arguments or lines):
        raise RequestError(f"no {noun}: give them as arguments or with --file")
    return [*arguments, *lines]


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _read_stdin(*, wanted: bool = False) -> str:
    """All of it; nothing where it is closed.

    Args:
        wanted: Refuse to wait for somebody to type it who was not asked.
    """
    if wanted and _is_terminal():
        raise RequestError("no prompt: give it as an argument, with --prompt, --file or on stdin")
    try:
        return "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as e:
        raise RequestError(f"the text on stdin is not UTF-8 (byte {e.start})") from e


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise RequestError(f"{file} is not UTF-8 text (byte {e.start})") from e
    except OSError as e:
        raise RequestError(f"cannot read {file}: {e.strerror}") from e
