"""Options that hold the text to a structure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.errors import RequestError
from oxibonsai.structured import Structure

Command = Callable[..., Any]

# Option and how its value becomes a structure; in the order of the help.
_MAKERS: dict[str, Callable[[Any], Structure]] = {
    "json_schema": lambda value: _described(_schema_text(value)),
    "json_object": lambda _: Structure.json_object(),
    "json_format": lambda value: _of_format(value),
    "regex": Structure.regex,
    "choice": Structure.choice,
    "grammar": Structure.gbnf,
    "grammar_file": lambda path: Structure.gbnf(_read(path)),
    "lark": lambda path: Structure.lark(_read(path)),
}


def structure_options(command: Command) -> Command:
    """Add the options for the structure of the text; at most one of them may be used."""
    options = [
        click.option(
            "--json-schema", "-j", "--json-schema-file", "-jf", "json_schema", metavar="FILE|JSON",
            help="A JSON document that a schema accepts: a file, or the schema itself.",
        ),
        click.option("--json-object", is_flag=True, help="Any JSON object."),
        click.option(
            "--format", "json_format", metavar="json|SCHEMA", hidden=True, help="The same as Ollama has it."
        ),
        click.option("--regex", metavar="PATTERN", help="A match of a regular expression."),
        click.option(
            "--choice", multiple=True, metavar="TEXT", help="One of some texts; give it for each."
        ),
        click.option("--grammar", metavar="GBNF", help="A text of a GBNF grammar."),
        click.option("--grammar-file", "-gf", metavar="FILE", help="A text of the grammar in a file."),
        click.option("--lark", metavar="FILE", help="A text of a Lark grammar."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def split_structure(options: dict[str, Any]) -> Structure | None:
    """Take the structure options out of a command's options.

    Raises:
        RequestError: Two of them are given, a file can't be read, or the structure is wrong.
    """
    values = {name: options.pop(name) for name in _MAKERS}
    # An empty expression is one too; an absent flag is False, an absent list is empty.
    given = [name for name, value in values.items() if value not in (None, False, ())]
    if not given:
        return None
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        names = names.replace("--json-format", "--format")
        raise RequestError(f"{names} exclude each other: give one of them")
    return _MAKERS[given[0]](values[given[0]])


def _of_format(value: str) -> Structure:
    return Structure.json_object() if value == "json" else _described(_schema_text(value))


def _described(schema: str) -> Structure:
    structure = Structure.described_json(schema)
    for place, keyword in structure.left_out:
        click.echo(
            f"oxibonsai: the JSON schema's {keyword!r} at {place or 'its root'} is not enforced; the "
            "whole text is checked for it",
            err=True,
        )
    return structure


def _schema_text(value: str) -> str:
    inline = value.lstrip().startswith("{") or value.strip() in ("true", "false")
    return value if inline else _read(value)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as e:
        raise RequestError(f"{path} can't be read as text: {e}") from e
