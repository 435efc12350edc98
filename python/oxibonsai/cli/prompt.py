"""Where a command's text comes from: an argument, an option, a file, stdin."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.model_choice import check_is_text, is_model, name_model
from oxibonsai.errors import RequestError

_Command = Callable[..., Any]
_STDIN = "-"
_ESCAPES = "oxibonsai.escape"
_ESCAPED = re.compile(r"\\(?:([nrt'\"\\])|x([0-9a-fA-F]{1,2}))")
_MEANT = {"n": "\n", "r": "\r", "t": "\t"}


def unescape(text: str) -> str:
    r"""Return a text with line ends and the like in place of ``\n``, ``\t``, ``\x41``, as llama.cpp."""
    return _ESCAPED.sub(lambda m: chr(int(m[2], 16)) if m[2] else _MEANT.get(m[1], m[1]), text)


def unescaped(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
    """Return an option's text or texts without escapes, unless --no-escape is given."""
    if value is None or not ctx.meta.get(_ESCAPES, True):
        return value
    return unescape(value) if isinstance(value, str) else tuple(map(unescape, value))


def _note_escapes(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_ESCAPES] = value


escape_option = click.option(
    "--escape/--no-escape",
    "-e",
    default=True,
    is_eager=True,
    expose_value=False,
    callback=_note_escapes,
    help="Read \\\\n, \\\\t and the like in --prompt and --stop as line ends and tabs.  [default: on]",
)


def prompt_option(what: str, *, hidden: bool = False) -> Callable[[_Command], _Command]:
    """Return the option --prompt, whose help says what the prompt is."""
    return click.option("--prompt", "-p", callback=unescaped, hidden=hidden, help=what)


def file_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option --file, whose help says what is read from the file."""
    names = ("--file", "-f", "--binary-file", "-bf", "file")
    return click.option(*names, type=click.Path(path_type=Path), help=what)


def split_model(
    ctx: click.Context, model: str | None, words: tuple[str, ...], *, prompted: bool
) -> tuple[str | None, str | None]:
    """Return the model and the prompt of ``MODEL PROMPT``, ``PROMPT``, or ``MODEL`` with a text elsewhere.

    Args:
        ctx: Of the command.
        model: What options name.
        words: The arguments.
        prompted: An option has the prompt; else it may come from stdin.

    Raises:
        UsageError: There are more words than that.
    """
    most = 1 if model is not None or not words or not is_model(words[0]) else 2
    if len(words) > most:
        raise click.UsageError(f"Got unexpected extra argument ({words[most]})", ctx)
    if len(words) == 2:
        name_model(ctx, words[0])
        return words
    if most == 2 and prompted:
        name_model(ctx, words[0])
        return words[0], None
    if most == 2 and not _is_terminal():
        text = _read_stdin()
        if text.strip():
            name_model(ctx, words[0])
            return words[0], text
    return model, words[0] if words else None


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
        own = given[0] if isinstance(given[0], str) else read_file(given[0])
        text = f"{before} {own}" if before else own
    if not text.strip():
        raise RequestError("the text is empty: give some, with --prompt, --file or on stdin")
    return text


def read_texts(arguments: tuple[str, ...], file: Path | None, noun: str) -> list[str]:
    """Return several texts: the arguments, then the lines of a file, of which ``-`` is stdin.

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
        lines = (_read_stdin() if str(file) == _STDIN else read_file(file)).splitlines()
    if not (arguments or lines):
        raise RequestError(f"no {noun}: give them as arguments or with --file")
    return [*arguments, *lines]


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _read_stdin(*, wanted: bool = False) -> str:
    """Return all of stdin; nothing where it is closed.

    Args:
        wanted: Refuse to wait for somebody to type it who was not asked.
    """
    if wanted and _is_terminal():
        raise RequestError("no prompt: give it as an argument, with --prompt, --file or on stdin")
    try:
        return "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as e:
        raise RequestError(f"the text on stdin is not UTF-8 (byte {e.start})") from e


def read_file(file: Path) -> str:
    """Return a file's text; RequestError where it can't be read or is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise RequestError(f"{file} is not UTF-8 text (byte {e.start})") from e
    except OSError as e:
        raise RequestError(f"cannot read {file}: {e.strerror}") from e
