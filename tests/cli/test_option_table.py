"""Every option of llama.cpp, Ollama and mflux, as recorded, on every command that does their work."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import click
import make_option_pages
import pytest
from make_option_pages import RECORDED, Use, find_command, page, uses

from oxibonsai.cli.foreign_options import ForeignOption
from oxibonsai.cli.foreign_table import Verdict
from oxibonsai.cli.main import _run as run_command
from oxibonsai.cli.ollama_variables import VARIABLES, ollama_settings
from oxibonsai.errors import RequestError

TABLES = ("llama.cpp", "ollama", "mflux")


@cache
def context(command: str) -> click.Context:
    known = find_command(command)
    assert known is not None
    return click.Context(known, info_name=command)


@cache
def parser(command: str) -> Any:
    return context(command).command.make_parser(context(command))


def parsed(use: Use, values: list[str]) -> tuple[dict[str, object], list[str]]:
    """What click's parser makes of the option and a word behind it, before any callback."""
    ctx = context(use.command)
    line = [use.name, *values, "--", "word"]
    if use.name == "--think":  # Go's flags take a value behind = alone
        line = [f"{use.name}=true", "--", "word"]
    found, rest, _ = parser(use.command).parse_args(line)
    for parameter in ctx.command.params:  # a command's own arguments take words, too
        if isinstance(parameter, click.Argument) and found.get(str(parameter.name)):
            words = found.pop(str(parameter.name))
            words = words if isinstance(words, tuple) else [words]
            rest = [*(word for word in words if isinstance(word, str)), *rest]
    return found, rest


@pytest.mark.parametrize("table", TABLES)
def test_every_recorded_option_is_known_with_its_number_of_values(table: str) -> None:
    for use in uses(table):
        assert use.option is not None, f"{use.command} does not know {use.name}"
        found, rest = parsed(use, ["1"] * use.values)
        assert rest == ["word"], f"{use.command} {use.name} leaves {rest}"
        assert found.get(str(use.option.name)) is not None, f"{use.command} {use.name}"


@pytest.mark.parametrize("table", TABLES)
def test_options_that_are_not_taken_are_explained_or_refused(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for use in uses(table):
        if not isinstance(use.option, ForeignOption):
            continue
        ctx, row = context(use.command), use.option.row
        for value in ("other", *row.unless):
            found, rest = parsed(use, [value] * use.values)
            silent = row.verdict is Verdict.SAME or (use.values and value in row.unless)
            if row.verdict is Verdict.REFUSED and not silent:
                with pytest.raises(RequestError) as error:
                    use.option.handle_parse_result(ctx, found, rest)
                assert str(error.value) == f"{use.option.opts[0]} is not available: {row.text}"
                continue
            use.option.handle_parse_result(ctx, found, rest)
            said = capsys.readouterr().err
            explained = f"oxibonsai: {use.option.opts[0]} has no effect: {row.text}\n"
            assert said == ("" if silent else explained)


@pytest.mark.parametrize("table", TABLES)
def test_the_pages_list_every_option(table: str) -> None:
    file = make_option_pages.DOCS / make_option_pages.PAGES[table]
    assert page(table) == file.read_text(encoding="utf-8")


def test_the_table_names_no_option_twice_for_a_command() -> None:
    for command in ("run", "chat", "serve", "bench", "image"):
        names = [
            name for p in context(command).command.params for name in (*p.opts, *p.secondary_opts)
        ]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["run", "-xyz", "text"], "No such option '-xyz"),
        (["run", "-fast", "text"], "No such option '-fast"),
        (["bench", "-nope"], "No such option '-nope"),
        (["run", "-ctk", "q5_1", "text"], "the cache has no type q5_1; the nearest is q8_0"),
        (["run", "-ctv", "bf16", "text"], "the cache has no type bf16; the nearest is f16"),
        (["serve", "-ctk", "iq4_nl"], "the cache has no type iq4_nl; the nearest is q4_0"),
        (["serve", "-ctk", "f16", "-ctv", "q8_0"], "keys and values have one type"),
        (["run", "-ngl", "few", "text"], "--gpu-layers is few; it must be a number of layers"),
        (["run", "-hff", "a.gguf", "text"], "--hf-file needs --hf-repo"),
        (["run", "--sampler-seq", "kz", "text"], "'z' is no step"),
        (["bench", "-p", "8-1+0"], "never ends"),
        (["bench", "-p", "many"], "is no number of tokens"),
        (["rm", "llama3"], "delete the file"),
        (["ps"], "GET /v1/models"),
    ],
)
def test_wrong_names_and_values_are_refused_whole(
    line: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(line) == 2
    assert said in capsys.readouterr().err


def test_a_flag_may_have_a_value_behind_an_equals_sign() -> None:
    found = parser("run").parse_args(["--think=false"])[0]
    assert found["enable_thinking"] is False
    found = parser("run").parse_args(["--think=high"])[0]
    assert (found["enable_thinking"], found["reasoning_effort"]) == (True, "high")
    assert parser("run").parse_args(["--json=true"])[0]["as_json"] is True
    assert "as_json" not in parser("run").parse_args(["--json=false"])[0]


def test_every_variable_of_ollama_is_known() -> None:
    assert set(VARIABLES) == set(RECORDED["ollama_variables"])


@pytest.mark.parametrize(
    ("name", "value", "settings"),
    [
        ("OLLAMA_HOST", "0.0.0.0", {"host": "0.0.0.0", "port": 11434}),
        ("OLLAMA_HOST", "127.0.0.1:9000", {"host": "127.0.0.1", "port": "9000"}),
        ("OLLAMA_HOST", ":9000", {"host": "127.0.0.1", "port": "9000"}),
        ("OLLAMA_HOST", "http://localhost:9000/", {"host": "localhost", "port": "9000"}),
        ("OLLAMA_HOST", "[::1]:9000", {"host": "::1", "port": "9000"}),
        ("OLLAMA_KEEP_ALIVE", "5m", {"sleep_idle_seconds": 300}),
        ("OLLAMA_KEEP_ALIVE", "-1", {"sleep_idle_seconds": -1}),
        ("OLLAMA_KEEP_ALIVE", "0", {"sleep_idle_seconds": 0}),
        ("OLLAMA_DEBUG", "1", {"verbose": True}),
        ("OLLAMA_NUM_PARALLEL", "2", {"parallel": "2"}),
    ],
)
def test_variables_of_ollama_set_the_server(
    name: str, value: str, settings: dict[str, object]
) -> None:
    assert ollama_settings({name: value}) == (settings, dict.fromkeys(settings, name), [])


def test_variables_without_an_effect_are_explained() -> None:
    told = ollama_settings({"OLLAMA_MODELS": "/models", "OLLAMA_FLASH_ATTENTION": "1"})
    assert told == (
        {},
        {},
        ["OLLAMA_MODELS has no effect: --models-dir names a folder of GGUF files"],
    )
    assert "one attention" in ollama_settings({"OLLAMA_FLASH_ATTENTION": "0"})[2][0]


def test_options_go_before_variables_of_ollama(monkeypatch: pytest.MonkeyPatch) -> None:
    from oxibonsai.server import launcher

    settings = []
    monkeypatch.setattr(launcher, "serve", lambda s, _: settings.append(s) or 0)
    monkeypatch.setitem(os.environ, "OLLAMA_NUM_PARALLEL", "3")
    monkeypatch.setitem(os.environ, "OLLAMA_CONTEXT_LENGTH", "2048")
    monkeypatch.setitem(os.environ, "OXIBONSAI_CTX_SIZE", "1024")
    for line, parallel in ((["serve"], 3), (["serve", "-np", "2"], 2)):
        with pytest.raises(SystemExit):
            run_command(line)
        assert (settings[-1].parallel, settings[-1].ctx_size) == (parallel, 1024)
    monkeypatch.setitem(os.environ, "OLLAMA_NUM_PARALLEL", "many")
    assert run_command(["serve"]) == 2
