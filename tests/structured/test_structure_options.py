"""The command line's way to ask for a structure."""

from __future__ import annotations

from pathlib import Path

import pytest
import rich_click as click
from click.testing import CliRunner

from oxibonsai.cli.structure_options import split_structure, structure_options
from oxibonsai.errors import RequestError
from oxibonsai.structured import Structure


def parse(*arguments: str) -> Structure | None:
    found: list[Structure | None] = []

    @click.command()
    @structure_options
    def command(**options: object) -> None:
        found.append(split_structure(options))
        assert options == {}

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_without_an_option_there_is_no_structure() -> None:
    assert parse() is None


def test_every_option_makes_its_structure(tmp_path: Path) -> None:
    schema, gbnf, lark = (tmp_path / name for name in ("a.json", "a.gbnf", "a.lark"))
    schema.write_text('{"type": "null"}')
    gbnf.write_text('root ::= "é"', encoding="utf-8")
    lark.write_text('start: "a"')
    null = Structure.described_json({"type": "null"})
    assert parse("--json-schema", str(schema)) == null
    assert parse("--json-schema", ' {"type": "null"}') == null
    assert parse("--json-schema", "true") == Structure.described_json(True)
    assert parse("--json-object") == Structure.json_object()
    assert parse("--regex", "a+") == Structure.regex("a+")
    assert parse("--regex", "") == Structure.regex("")
    assert parse("--choice", "yes", "--choice", "no") == Structure.choice(["yes", "no"])
    assert parse("--grammar-file", str(gbnf)) == Structure.gbnf('root ::= "é"')
    assert parse("--lark", str(lark)) == Structure.lark('start: "a"')


def test_two_options_exclude_each_other() -> None:
    with pytest.raises(RequestError, match="--json-object and --regex exclude each other"):
        parse("--json-object", "--regex", "a")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(RequestError, match=r"missing\.json can't be read"):
        parse("--json-schema", "missing.json")
