"""The command line as users of other tools type it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import tiny_model
from forked import run_oxibonsai
from oxibonsai.cli import progress as cli_progress
from oxibonsai.cli.main import _run as run_command
from oxibonsai.cli.output import WordWrap
from oxibonsai.cli.serve import serve


def test_a_model_needs_no_option_where_nothing_else_could_be_meant(tiny_path: Path) -> None:
    named = json.loads(run_oxibonsai("info", "-m", str(tiny_path), "--json").stdout)
    assert json.loads(run_oxibonsai("info", str(tiny_path), "--json").stdout) == named
    assert run_oxibonsai("verify", str(tiny_path)).returncode == 0
    talk = run_oxibonsai("chat", str(tiny_path), "-n", "2", "--json", stdin="ab\n/bye\n")
    assert json.loads(talk.stdout)["completion_tokens"] <= 2
    measured = run_oxibonsai("bench", "-p", "8", str(tiny_path), "-n", "2", "-r", "1", "--json")
    assert json.loads(measured.stdout)["model"] == str(tiny_path)
    twice = run_oxibonsai("bench", "-m", "seedling-1bit", str(tiny_path))
    assert twice.returncode == 2
    assert "two models are named" in twice.stderr


def test_options_of_llama_cpp(tiny_path: Path) -> None:
    plain = ["run", "-m", str(tiny_path), "--raw", "--json", "-n", "6", "--temp", "0"]
    expected = json.loads(run_oxibonsai(*plain, "-t", "1", "--kv-type", "q8_0", "ab").stdout)[
        "tokens"
    ]
    more = ["-fa", "on", "--jinja", "-b", "512", "-ub", "64", "--no-mmap", "--mlock", "-tb", "2"]
    more += ["-ctk", "q8_0", "-ctv", "q8_0", "--n-ctx", "64", "-t", "-1"]
    done = run_oxibonsai(*plain, *more, "ab")
    assert json.loads(done.stdout)["tokens"] == expected
    for name in ("--batch-size", "--ubatch-size", "--no-mmap", "--mlock", "--threads-batch"):
        assert f"{name} has no effect: " in done.stderr
    assert "flash" not in done.stderr
    assert "one attention" in run_oxibonsai(*plain, "-fa", "off", "ab").stderr


@pytest.fixture
def no_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process finds stdin closed."""
    monkeypatch.setattr(sys, "stdin", None)


@pytest.mark.usefixtures("no_stdin")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--no-conversation", "--numa", "distribute", "--poll", "50"], "--numa has no effect: "),
        (
            ["-no-cnv", "-st", "-cb", "--simple-io", "--log-disable"],
            "--cont-batching has no effect",
        ),
        (["--raw", "-cnv"], "oxibonsai chat is for conversations"),
        (["--raw", "--rope-freq-base", "1e6"], "--rope-freq-base is not available: positions are"),
        (["--raw", "--main-gpu", "1"], "name the GPU: --device cuda:1"),
        (["--raw", "--tempature", "1"], "Did you mean one of: '--chat-template', '--temp'"),
        (["second"], "name the model with -m, and put the text in quotes"),
    ],
)
def test_more_options_of_llama_cpp_are_explained(
    tiny_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    plain = ["run", "-m", str(tiny_path), "--temp", "0", "-n", "2", "-t", "1", "ab"]
    code = run_command([*plain, *more])
    found = capsys.readouterr()
    assert said in found.err
    if "has no effect" not in said:
        assert (code, found.out) == (2, "")
        return
    run_command([*plain, "--raw"])
    assert (code, found.out) == (0, capsys.readouterr().out)


@pytest.mark.usefixtures("no_stdin")
def test_escapes_in_a_prompt_are_read_as_llama_cpp_does(
    tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def prompt(*arguments: str) -> str:
        line = ["run", "-m", str(tiny_path), "-t", "1", "--raw", "-n", "1", "--json"]
        assert run_command([*line, *arguments]) == 0
        ids = map(str, json.loads(capsys.readouterr().out)["prompt_tokens"])
        assert run_command(["detokenize", "-m", str(tiny_path), "--json", *ids]) == 0
        text: str = json.loads(capsys.readouterr().out)["text"]
        return text

    written = r"a\nb\t\"c\\d\x41\q"
    assert prompt("-p", written) == prompt("-e", "-p", written) == 'a\nb\t"c\\dA\\q'
    assert prompt("--no-escape", "-p", written) == prompt(written) == written


@pytest.mark.usefixtures("no_stdin")
def test_a_grammar_on_the_command_line(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grammar = 'root ::= "yes" | "no"'
    assert run_command(["run", "-m", str(tiny_path), "-t", "1", "--grammar", grammar, "ab"]) == 0
    assert capsys.readouterr().out in ("yes\n", "no\n")


def test_no_limit_but_the_context(tiny_path: Path) -> None:
    arguments = ["run", "-m", str(tiny_path), "--raw", "--json", "--ignore-eos", "-c", "48"]
    found = json.loads(run_oxibonsai(*arguments, "-n", "-1", "ab").stdout)
    assert (len(found["tokens"]), found["finish_reason"]) == (47, "length")


def test_list_names_what_is_on_the_disk(tmp_path: Path, tiny_path: Path) -> None:
    hub = tmp_path / "hub" / "models--org--repo"
    snapshot = hub / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (hub / "blobs").mkdir()
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("0" * 40)
    (hub / "blobs" / "a").write_bytes(tiny_path.read_bytes())
    (snapshot / "tiny.gguf").symlink_to(hub / "blobs" / "a")
    cache = tmp_path / "cache"
    kept = cache / "web" / "x"
    kept.mkdir(parents=True)
    tiny_model.write(kept / "from-the-web.gguf")
    environment = {
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "OXIBONSAI_CACHE": str(cache),
        "OXIBONSAI_MODEL": str(tiny_path),
    }
    done = run_oxibonsai("list", "--json", **environment)
    models = json.loads(done.stdout)["models"]
    names = [m["name"] for m in models]
    assert names == [
        str(tiny_path),
        "hf:org/repo:tiny.gguf",
        str(kept / "from-the-web.gguf"),
        "seedling-ternary",
        "seedling-1bit",
    ]
    assert models[0]["bytes"] == models[1]["bytes"] == tiny_path.stat().st_size
    for name in names:  # each is what --model takes
        assert (
            run_oxibonsai("info", name, "--json", HF_HUB_OFFLINE="1", **environment).returncode == 0
        )
    assert names[1] in run_oxibonsai("list", **environment).stdout
    only = json.loads(run_oxibonsai("list", str(kept), "--json", **environment).stdout)["models"]
    assert [m["name"] for m in only] == [str(kept / "from-the-web.gguf")]


def test_commands_of_a_chat(tiny_path: Path) -> None:
    lines = [
        "/set temperature 0",
        "/set parameter top_k 5",
        "/set",
        "/set temprature 1",
        "/set top_p 7",
        '"""one',
        'two"""',
        "/regen",
        "/sett",
        "/clear",
        "/regen",
        "/bye",
        "not read",
    ]
    stdin = "\n".join(lines)
    done = run_oxibonsai("chat", str(tiny_path), "-n", "3", "--json", stdin=stdin)
    assert done.returncode == 0
    first, again = map(json.loads, done.stdout.splitlines())
    assert first["content"] == again["content"]  # greedy
    for said in (
        "[temperature = 0.0]",
        "[top_k = 5]",
        "top_k = 5\n",
        "did you mean temperature?",
        "top_p is 7",
        "did you mean /set?",
        "[the conversation is forgotten]",
        "there is no message to answer again",
    ):
        assert said in done.stderr


def test_another_answer_has_another_seed_and_a_speed(tiny_path: Path) -> None:
    stdin = "ab\n/regen\n/regen\n/exit\n"
    arguments = ["chat", str(tiny_path), "-n", "8", "--seed", "5", "--temp", "1.5"]
    answers = run_oxibonsai(*arguments, "--json", stdin=stdin).stdout.splitlines()
    assert [json.loads(a)["seed"] for a in answers] == [5, 6, 7]
    assert run_oxibonsai(*arguments, stdin=stdin).stderr.count(" tok/s]") == 3


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["one two three"], "one two\nthree"),
        (["one t", "wo th", "ree"], "one two\nthree"),
        (["a\nbb ccc", " dd ee\n"], "a\nbb ccc\ndd ee\n"),
        (["123456789 a"], "12345678\n9 a"),
        (["  code x y"], "  code x\ny"),
        (["日本語日本語"], "日本語日\n本語"),
    ],
)
def test_lines_break_between_words(pieces: list[str], shown: str) -> None:
    wrap = WordWrap(8)
    assert "".join(map(wrap.feed, pieces)) + wrap.finish() == shown


def test_what_writes_files_says_so_as_json_and_never_returns_the_carriage(
    tiny_path: Path, tmp_path: Path
) -> None:
    q8, parts, whole = tmp_path / "q8.gguf", tmp_path / "part", tmp_path / "whole.gguf"
    done = run_oxibonsai(
        "quantize", str(tiny_path), str(q8), "Q8_0", "--json", "--allow-requantize"
    )
    assert json.loads(done.stdout)["bytes"] == q8.stat().st_size
    assert "\r" not in done.stderr + done.stdout
    plan = run_oxibonsai("quantize", str(tiny_path), str(q8), "Q8_0", "--json", "--dry-run")
    assert len(json.loads(plan.stdout)["tensors"]) == len(tiny_model.tensor_names())
    done = run_oxibonsai("split", str(q8), str(parts), "--max-tensors", "9", "--json")
    files = json.loads(done.stdout)["files"]
    assert len(files) > 1
    done = run_oxibonsai("merge", files[0]["path"], str(whole), "--json")
    assert json.loads(done.stdout) == {"path": str(whole), "bytes": whole.stat().st_size}
    assert "\r" not in done.stderr + done.stdout


def test_help_has_panels_and_examples() -> None:
    for command in ("run", "chat", "list", "convert", "serve"):
        shown = run_oxibonsai(command, "--help").stdout
        assert f"oxibonsai {command}" in shown.partition("Examples:")[2]
    shown = run_oxibonsai("run", "--help").stdout
    for panel in ("Model", "Sampling", "Further sampling", "Conversation", "Machine"):
        assert f"─ {panel} ─" in shown


def test_a_toml_file_has_options_and_the_command_line_goes_before(
    tiny_path: Path, tmp_path: Path
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        f'model = "{tiny_path}"\nmax-tokens = 3\nignore_eos = true\ntemp = 0\nraw = true\n'
    )
    arguments = ["run", "--config", str(config), "--json", "ab"]
    found = json.loads(run_oxibonsai(*arguments).stdout)
    assert (len(found["tokens"]), found["prompt_tokens"]) == (3, [299])
    assert len(json.loads(run_oxibonsai(*arguments, "-n", "5").stdout)["tokens"]) == 5
    config.write_text("max_tokenz = 3\n")
    done = run_oxibonsai(*arguments)
    assert done.returncode == 2
    assert "did you mean max_tokens?" in done.stderr
    config.write_text("max_tokens = \n")
    assert "is not TOML" in run_oxibonsai(*arguments).stderr


def test_shells_complete_commands_and_options() -> None:
    script = run_oxibonsai("completion", "bash").stdout
    assert "_OXIBONSAI_COMPLETE=bash_complete" in script
    words = {
        "_OXIBONSAI_COMPLETE": "bash_complete",
        "COMP_WORDS": "oxibonsai ver",
        "COMP_CWORD": "1",
    }
    assert run_oxibonsai(**words).stdout.split() == ["plain,verify"]
    words |= {"COMP_WORDS": "oxibonsai run --kv-ty", "COMP_CWORD": "2"}
    assert run_oxibonsai(**words).stdout.split() == ["plain,--kv-type"]
    words |= {"COMP_WORDS": "oxibonsai info seedling-t", "COMP_CWORD": "2"}
    assert run_oxibonsai(**words).stdout.split() == ["plain,seedling-ternary"]
    words |= {"COMP_WORDS": "oxibonsai run -m mod", "COMP_CWORD": "3"}
    assert run_oxibonsai(**words).stdout.split() == ["file,mod"]
    words |= {"COMP_WORDS": "oxibonsai quantize a b Q4_K_", "COMP_CWORD": "4"}
    assert run_oxibonsai(**words).stdout.split() == ["plain,Q4_K_S", "plain,Q4_K_M"]


@pytest.mark.parametrize(
    ("before", "begun", "offered"),
    [
        (["--preset"], "co", ["code", "conversational"]),
        (["--kv-type"], "q", ["q8_0", "q4_0"]),
        (["--model"], "mod", ["mod"]),  # a file
        ([], "seedling-1", ["seedling-1bit"]),
        (["--port"], "8", []),
    ],
)
def test_shells_complete_settings_of_the_server(
    before: list[str], begun: str, offered: list[str]
) -> None:
    shell = ShellComplete(serve, {}, "oxibonsai", "_OXIBONSAI_COMPLETE")
    assert [item.value for item in shell.get_completions(before, begun)] == offered


@pytest.mark.hf
def test_a_safetensors_file_is_converted_with_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import hf_folders

    folder = tmp_path / "model"
    hf_folders.save(hf_folders.CASES[0], folder)
    done = run_oxibonsai(
        "convert", str(folder / "model.safetensors"), str(tmp_path / "a.gguf"), "--json"
    )
    assert json.loads(done.stdout)["path"] == str(tmp_path / "a.gguf"), done.stderr
    assert "\r" not in done.stderr
    assert run_oxibonsai("convert", str(folder), str(tmp_path / "b.gguf")).returncode == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    (folder / "other.safetensors").write_bytes(b"")
    done = run_oxibonsai("convert", str(folder / "model.safetensors"), str(tmp_path / "c.gguf"))
    assert done.returncode == 2
    assert "other.safetensors too" in done.stderr
    (folder / "other.safetensors").unlink()
    (folder / "config.json").unlink()
    done = run_oxibonsai("convert", str(folder / "model.safetensors"), str(tmp_path / "c.gguf"))
    assert "no config.json beside it" in done.stderr


def test_progress_in_a_log_is_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with cli_progress.byte_progress("Packing") as progress:
        progress(1_000_000, 4_000_000)
    assert capsys.readouterr().err == ""  # it was soon done
    monkeypatch.setattr(cli_progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with cli_progress.byte_progress("Packing") as progress:
        progress(1_000_000, 4_000_000)
        progress(4_000_000, 4_000_000)
    assert capsys.readouterr().err == "Packing: 1 of 4 MB\nPacking: 4 of 4 MB\n"
