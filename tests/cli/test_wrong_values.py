"""A value that an option does not take is answered with one sentence in our own words."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from oxibonsai.cli import main

NUMBERS = ("a whole number", "a number")


def parameters(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    """Every option and argument of a command and of its own commands."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from parameters(found, (*path, name))
    for parameter in command.params:
        yield path, parameter


def numeric() -> list[tuple[tuple[str, ...], click.Parameter]]:
    kinds = (click.IntRange, click.FloatRange, type(click.INT), type(click.FLOAT))
    return [(c, p) for c, p in parameters(main._group()) if isinstance(p.type, kinds)]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a call that is wrong usage."""
    assert main._run(list(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("command", "parameter"), numeric(), ids=lambda x: x.name if hasattr(x, "name") else " ".join(x)
)
def test_a_number_is_asked_for_where_none_is_given(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], parameter: click.Parameter
) -> None:
    for name in parameter.opts if isinstance(parameter, click.Option) else [""]:
        line = said(capsys, *command, *filter(None, [name]), "2x")
        shown = next((o for o in parameter.opts if o.startswith("--")), "IDS")
        assert line.startswith(tuple(f"oxibonsai: {shown} is '2x': give {n}" for n in NUMBERS))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["image", "cat", "--width", "2x"], "--width is '2x': give a whole number"),
        (["image", "cat", "--steps", "0"], "--steps is 0: give a whole number of 1 or more"),
        (["image", "cat", "--strength", "2"], "--strength is 2.0: give a number from 0 to 1"),
        (["run", "-t", "-2"], "--threads is -2: give a whole number from -1 to 1024"),
        (["pull", "hf:a/b", "--timeout", "0"], "--timeout is 0.0: give a number from 0.1 to 3600"),
        (["bench", "serve", "--slo-ttft-ms", "0"], "--slo-ttft-ms is 0.0: give a number above 0"),
        (["split"], "Missing argument 'IN'."),
    ],
)
def test_the_sentence_says_which_numbers_are_taken(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert said(capsys, *arguments) == f"oxibonsai: {sentence}"
