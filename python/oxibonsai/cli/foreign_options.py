"""Options that other programs have and this one does not: read, then explained or refused in a line.

``foreign_table`` lists them; none is shown in help.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import rich_click as click

from oxibonsai.cli.foreign_table import Row, Verdict, rows
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home

_FALSE, _TRUE = ("false", "0"), ("true", "1")
# Flags that Ollama gives a further word to, with what takes the word.
_WORDS = {"--think": "--reasoning-effort"}


class ForeignOption(click.Option):
    """An option that is there for what is said of it."""

    def __init__(self, names: list[str], values: str, row: Row) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "": {"is_flag": True},
            "=": {"type": str},
            "=?": {"type": str, "is_flag": False, "flag_value": "on"},
            "==": {"type": str, "nargs": 2},
        }
        super().__init__(
            names, expose_value=False, hidden=True, callback=self._say, multiple=values == "=",
            **kinds[values],
        )  # fmt: skip
        self.row = row

    def _say(self, _: click.Context, __: click.Parameter, value: Any) -> None:
        if value in (None, False, ()):
            return
        given = value if isinstance(value, tuple) else (value,)
        name, row = self.opts[0], self.row
        if all(v in row.unless for v in given) or row.verdict is Verdict.SAME:
            return
        if row.verdict is Verdict.REFUSED:
            raise RequestError(f"{name} is not available: {row.text}")
        click.echo(f"oxibonsai: {name} has no effect: {row.text}", err=True)


def foreign_options(command: str, own: set[str]) -> Iterator[ForeignOption]:
    """Yield the table's options for a command, without the names that it has itself."""
    taken = set(own)
    for row in rows(command):
        for word in row.options.split():
            names, equals, kind = word.partition("=")
            free = [name for name in names.split(",") if name not in taken]
            if free:
                taken.update(free)
                yield ForeignOption(free, equals + kind, row)


class _WholeNames(click.Command):
    """A command that knows other programs' options, each name as a whole.

    ``-ngl`` is one option and never ``-n``, ``-g`` and ``-l``; a flag may be given as ``--flag=false``.
    """

    def __init__(self, name: str | None = None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        own = {n for p in self.params for n in (*p.opts, *p.secondary_opts)}
        if "--version" not in own:
            self.params.append(_version_option())
        self.params += foreign_options(name or "", own)

    def make_parser(self, ctx: click.Context) -> Any:
        """Return click's parser, which looks up whole names."""
        parser: Any = super().make_parser(ctx)
        match_long, match_short = parser._match_long_opt, parser._match_short_opt
        off = {o: p.secondary_opts for p in self.params for o in p.opts}

        def long_option(name: str, value: str | None, state: Any) -> None:
            option = parser._long_opt.get(name)
            if value is None or option is None or option.takes_value:
                match_long(name, value, state)
            elif value.lower() in _TRUE:
                match_long(name, None, state)
            elif value.lower() in _FALSE:
                if off.get(name):
                    match_long(off[name][0], None, state)
            elif name in _WORDS:
                match_long(name, None, state)
                match_long(_WORDS[name], value, state)
            else:
                match_long(name, value, state)  # says that it takes none

        def short_option(arg: str, state: Any) -> None:
            if len(arg) > 2 and arg[2].isalpha():
                raise click.NoSuchOption(arg, ctx=ctx)
            match_short(arg, state)

        parser._match_long_opt, parser._match_short_opt = long_option, short_option
        return parser


def _version_option() -> click.Option:
    from oxibonsai import __version__

    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(f"oxibonsai {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=show
    )


class Command(_WholeNames, click.RichCommand):
    """A command that knows other programs' options."""


class Group(_WholeNames, click.RichGroup):  # type: ignore[misc]  # rich-click's own
    """A command with further ones below it, that knows other programs' options."""


_IMAGE = ("--image", "--image-path")
_REFERENCES = ("--image-paths", "--reference", "--ref-image", "-r")
_STRENGTH = ("--strength", "--image-strength")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_WITH_VALUES = ("--seed", "--lora", *_IMAGE, *_REFERENCES)


class SeveralValues(Command):
    """A command whose ``--seed``, ``--image-paths``, ``--lora`` and ``--image`` take what mflux's take."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click takes one value behind a name, so each further one gets a name of its own."""
        return super().parse_args(ctx, one_value_each(args))


def one_value_each(args: list[str]) -> list[str]:
    """Write ``--seed 1 2`` as ``--seed 1 --seed 2``, and ``--lora FILE 0.5`` and ``--image`` likewise.

    Raises:
        RequestError: The strength of ``--image`` stands behind it and behind its own name.
    """
    args = _apart(args)
    spread: list[str] = []
    i = 0
    while i < len(args):
        if args[i] == "--":
            return [*spread, *args[i:]]
        rest = args[i + 1 :]
        values = rest[: next((n for n, t in enumerate(rest) if _is_name(t)), len(rest))]
        parts, taken = _spread(args[i], values)
        if _STRENGTH[0] in parts[1:]:
            _refuse_second_strength(args, parts[-1])
        spread += parts
        i += 1 + taken
    return spread


def _apart(args: list[str]) -> list[str]:
    """Return ``--image=FILE`` as ``--image FILE``, so that a value behind it is seen."""
    apart: list[str] = []
    for i, arg in enumerate(args):
        if arg == "--":
            return [*apart, *args[i:]]
        name, equals, value = arg.partition("=")
        apart += [name, value] if equals and name in _WITH_VALUES else [arg]
    return apart


def _refuse_second_strength(args: list[str], first: str) -> None:
    for arg in args:
        name = arg.partition("=")[0]
        if name in _STRENGTH:
            raise RequestError(
                f"the strength is given twice: {first} behind --image, and by {name}; leave out one"
            )


def _spread(name: str, values: list[str]) -> tuple[list[str], int]:
    """Return the replacement of a name, and how many of the values behind it belong to it."""
    if name == "--seed":
        values = values[: _run(values, _is_number)]
    if name in _REFERENCES:  # what follows the images is the prompt
        values = values[: 1 + _run(values[1:], _is_image)]
    if name in ("--seed", *_REFERENCES) and values:
        return [part for value in values for part in (name, value)], len(values)
    if len(values) > 1 and _is_number(values[1]):
        if name == "--lora":
            return ["--lora-scaled", f"{values[0]}:{values[1]}"], 2
        if name in _IMAGE:
            return [name, values[0], _STRENGTH[0], values[1]], 2
    return [name], 0


def _run(values: list[str], belongs: Callable[[str], bool]) -> int:
    """Return how many values belong to an option, from the first on."""
    return next((n for n, value in enumerate(values) if not belongs(value)), len(values))


def _is_image(text: str) -> bool:
    """Return a file, or the name of one that is missing."""
    return text.lower().endswith(_SUFFIXES) or os.path.isfile(with_home(text))


def _is_name(text: str) -> bool:
    return text.startswith("-") and text != "-" and not _is_number(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
