"""``oxibonsai bench serve`` as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forked import run_oxibonsai
from loadtest.fake_server import FakeServer


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_oxibonsai("bench", *arguments)


def test_levels_are_shown_written_and_plotted(server: FakeServer, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the bench extra")
    figures, plot = tmp_path / "figures.json", tmp_path / "figures.png"
    result = run(
        *("serve", "--url", server.url, "--concurrency", "1,2", "--rate", "50", "--requests", "3"),
        *("--max-tokens", "7", "--slo-ttft-ms", "60000", "--json", str(figures), "--raw"),
        *("--plot", str(plot)),
    )
    assert (result.returncode, result.stderr) == (0, "")
    for shown in ("1 client ", "2 clients", "50 req/s", "TTFT", "good req/s"):
        assert shown in result.stdout
    written = json.loads(figures.read_text())
    assert [(x["loop"], x.get("concurrency", x.get("rate"))) for x in written["levels"]] == [
        ("closed", 1),
        ("closed", 2),
        ("open", 50.0),
    ]
    assert all(len(x["samples"]) == x["requests"] == 3 for x in written["levels"])
    assert written["settings"]["request"]["model"] == "fake-model"
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert {request["max_tokens"] for request in server.requests} == {7}


def test_errors_and_counted_chunks_are_said_in_words(server: FakeServer) -> None:
    server.usage, server.failing = False, frozenset({2})
    result = run("serve", "--url", server.url, "-c", "1", "--requests", "3")
    assert result.returncode == 0
    assert "1 client: 1 x HTTP 503: queue is full" in result.stdout
    assert "tokens are counted as chunks" in result.stdout


def test_a_run_without_any_answer_fails_but_shows_why(server: FakeServer) -> None:
    server.status = 401
    result = run("serve", "--url", server.url, "-c", "2", "--requests", "2")
    assert result.returncode == 1
    assert "2 x HTTP 401: queue is full" in result.stdout
    assert "no request was answered" in result.stderr


def test_an_unreachable_server_is_one_line() -> None:
    result = run("serve", "--url", "http://127.0.0.1:9/v1")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "gave no list of models" in result.stderr


def test_a_plot_without_matplotlib_is_refused_before_the_run(tmp_path: Path) -> None:
    hide = (
        "import importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name, *a)"
    )
    plot = str(tmp_path / "x.png")
    command = f"{hide}\nfrom oxibonsai.cli.main import main; main()"
    line = ["bench", "serve", "--url", "http://127.0.0.1:9/v1", "--plot", plot]
    result = subprocess.run([sys.executable, "-c", command, *line], capture_output=True, text=True)
    assert result.returncode == 2
    assert "pip install 'oxibonsai[bench]'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--concurrency", "1,x"], "is no list such as"),
        (["--concurrency", "0"], "above 0"),
        (["--rate", "nan"], "above 0"),
        (["--requests", "1", "--duration", "1"], "give one"),
        (["--raw"], "give --json too"),
        (["--prompts", __file__, "--prompt-tokens", "3"], "give one"),
    ],
)
def test_bad_options_are_wrong_usage(arguments: list[str], message: str) -> None:
    result = run("serve", "--url", "http://127.0.0.1:9/v1", *arguments)
    assert result.returncode == 2
    assert message in result.stderr


def test_options_of_bench_itself_are_not_dropped_before_serve() -> None:
    result = run("--model", "x.gguf", "serve", "--url", "http://127.0.0.1:9/v1")
    assert result.returncode == 2
    assert "--model belongs to bench itself" in result.stderr
