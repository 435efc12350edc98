"""The command lines in the README and the docs name commands and options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from oxibonsai.cli import main as command_line
from oxibonsai.errors import RequestError

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_IN_TEXT = re.compile(r"`(oxibonsai [^`]+)`")
# Where a command ends: another one, a file for its output, a remark.
_ENDS = {"|", "||", "&&", "&", ">", ">>", "<", ";"}


def commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and words of each command, without those that stand for more."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    for number, line in enumerate(text.splitlines(), 1):
        found = _IN_TEXT.findall(line)
        if line.startswith("    oxibonsai "):
            found = [line.strip()]
        for command in found:
            try:
                words = shlex.split(_plain(command), comments=True)
            except ValueError:  # a quotation mark of the text around
                continue
            end = next((i for i, word in enumerate(words) if word in _ENDS), len(words))
            yield number, [w for w in words[1:end] if w != "..."]


def _plain(command: str) -> str:
    """A command with all that it may have: ``MODEL[:QUANT] [--option VALUE]``, ``\\|`` in tables."""
    return re.sub(r"[][]", " ", re.sub(r"\[:[^]]*\]", "", command.replace("\\|", "|")))


def parse(words: list[str]) -> None:
    """click's reading of a command, which is not run.

    Raises:
        click.UsageError: There is no such command or option. What a line leaves out, and what stands
            for the reader's files, is no mistake.
    """
    group = command_line._group()
    with click.Context(group) as root:
        name, command, rest = group.resolve_command(root, words)
        assert command is not None
        try:
            command.make_context(name, rest, parent=root)
        except (click.BadParameter, click.BadOptionUsage, click.exceptions.Exit, RequestError):
            return


@pytest.mark.parametrize("page", [p for p in PAGES if [*commands(p)]], ids=lambda p: p.stem)
def test_commands_and_options_exist(page: Path) -> None:
    wrong = []
    for line, words in commands(page):
        try:
            parse(words)
        except click.UsageError as e:
            wrong.append(f"line {line}: oxibonsai {' '.join(words)}: {e.format_message()}")
    assert not wrong, "\n".join(wrong)


def test_many_commands_are_found() -> None:
    assert sum(len([*commands(page)]) for page in PAGES) > 100


@pytest.mark.parametrize("words", [["runn", "a"], ["run", "--sedd", "1", "a"]])
def test_a_mistake_is_noticed(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(words)


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (listed,) = re.findall(r"`oxibonsai (run \| [^`]*)`", text)
    group = command_line._group()
    with click.Context(group) as root:
        assert sorted(listed.replace("|", " ").split()) == sorted(group.list_commands(root))
