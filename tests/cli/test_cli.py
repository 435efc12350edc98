"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_model
import tokenizer_folders
from forked import run_oxibonsai


def test_version_and_help() -> None:
    assert run_oxibonsai("--version").stdout == "oxibonsai 0.1.0\n"
    done = run_oxibonsai("--help")
    assert done.returncode == 0
    for command in ("run", "chat", "info", "tokenize", "detokenize", "verify", "bench", "cache"):
        assert command in done.stdout
        assert run_oxibonsai(command, "--help").returncode == 0


def test_version_imports_neither_numpy_nor_the_core() -> None:
    code = (
        "import sys; sys.argv = ['oxibonsai', '--version']\n"
        "from oxibonsai.cli.main import main; main()\n"
        "heavy = {'numpy', 'torch', 'transformers', 'tokenizers', 'jinja2', 'oxibonsai._core'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


def test_run_streams_text_to_stdout_and_timings_to_stderr(tiny_path: Path) -> None:
    done = run_oxibonsai("run", "-m", str(tiny_path), "-p", "ab", "-n", "4", "--temp", "0", "--raw")
    assert done.returncode == 0
    assert "tok/s" in done.stderr
    assert "tok/s" not in done.stdout


def test_run_shows_the_prompt_that_it_continues(tiny_path: Path) -> None:
    arguments = ("run", "-m", str(tiny_path), "ab", "-n", "4", "--temp", "0")
    text = json.loads(run_oxibonsai(*arguments, "--raw", "--json").stdout)["text"]
    assert run_oxibonsai(*arguments, "--raw").stdout == f"ab{text}\n"
    assert run_oxibonsai(*arguments, "--raw", "--no-display-prompt").stdout == f"{text}\n"
    beams = run_oxibonsai("run", "-m", str(tiny_path), "ab", "-n", "4", "--raw", "--beams", "2")
    assert beams.stdout.startswith("ab")
    # The answer to a question, or a structure, stands alone.
    answer = json.loads(run_oxibonsai(*arguments, "--json").stdout)["text"]
    assert run_oxibonsai(*arguments).stdout == f"{answer}\n"
    chosen = run_oxibonsai("run", "-m", str(tiny_path), "ab", "--raw", "--choice", "abc")
    assert chosen.stdout == "abc\n"


def test_run_json_is_one_object_and_repeats(tiny_path: Path) -> None:
    arguments = ["run", "--model", str(tiny_path), "--json", "-n", "6", "-s", "7", "ab"]
    first, second = run_oxibonsai(*arguments), run_oxibonsai(*arguments)
    result = json.loads(first.stdout)
    assert set(result) == {
        "prompt_tokens", "tokens", "text", "finish_reason", "seed", "cached_tokens", "timings",
    }  # fmt: skip
    assert result["finish_reason"] in ("length", "stop")
    assert result["tokens"] == json.loads(second.stdout)["tokens"]
    assert result["prompt_tokens"][0] == 256  # <|im_start|>: the chat template is the default
    raw = json.loads(run_oxibonsai(*arguments, "--raw").stdout)
    assert raw["prompt_tokens"] == [299]


def test_the_prompt_comes_from_a_file_or_stdin(tiny_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("ab ab")
    base = ["run", "-m", str(tiny_path), "--json", "--raw", "-n", "1"]
    from_file = json.loads(run_oxibonsai(*base, "-f", str(file)).stdout)
    from_stdin = json.loads(run_oxibonsai(*base, stdin="ab ab").stdout)
    assert from_file["prompt_tokens"] == from_stdin["prompt_tokens"]


def test_tokenize_and_detokenize(tiny_path: Path) -> None:
    ids = json.loads(run_oxibonsai("tokenize", "-m", str(tiny_path), "--json", "abc é").stdout)[
        "tokens"
    ]
    done = run_oxibonsai("detokenize", "-m", str(tiny_path), "--json", *map(str, ids))
    assert json.loads(done.stdout) == {"text": "abc é"}


def test_tokenize_with_a_folder_that_holds_a_tokenizer_alone(tmp_path: Path) -> None:
    folder = tokenizer_folders.FOLDERS["clip"]
    base = ("tokenize", "-m", str(folder.write(tmp_path)), "--json")
    ids = json.loads(run_oxibonsai(*base, "the Tea").stdout)["tokens"]
    assert ids == folder.make().encode("the Tea").ids


def test_info_names_what_the_file_holds(tiny_path: Path) -> None:
    facts = json.loads(run_oxibonsai("info", "-m", str(tiny_path), "--json").stdout)
    assert facts["architecture"] == "qwen3"
    assert facts["config"]["hidden_size"] == tiny_model.HIDDEN
    assert facts["quant_types"][0]["type"] in ("Q1_0", "F32")
    assert facts["runs"] == "yes"
    assert facts["yarn"] is False
    assert "qwen3" in run_oxibonsai("info", "-m", str(tiny_path)).stdout


def test_verify_accepts_a_whole_file_and_names_what_is_wrong(
    tiny_path: Path, tmp_path: Path
) -> None:
    report = json.loads(run_oxibonsai("verify", "-m", str(tiny_path), "--json").stdout)
    assert report["shapes_checked"] is True
    done = run_oxibonsai("verify", "-m", str(tiny_path), "--sha256", "0" * 64)
    assert done.returncode == 3
    assert report["sha256"] in done.stderr
    bad = tmp_path / "bad.gguf"
    scale = ((256, 128), 41, (b"\x00\x7c" + bytes(16)) * 256)
    tiny_model.write(bad, tensors={"blk.0.attn_q.weight": scale})
    done = run_oxibonsai("verify", "-m", str(bad))
    assert done.returncode == 3
    assert "blk.0.attn_q.weight has 256 blocks" in done.stderr


def test_bench_reports_rows(tiny_path: Path) -> None:
    done = run_oxibonsai("bench", "-m", str(tiny_path), "-p", "16", "-n", "8", "-r", "2", "--json")
    report = json.loads(done.stdout)
    assert [r["test"] for r in report["rows"]] == ["pp16", "tg8"]
    generation = report["rows"][1]
    assert generation["weight_bytes_per_token"] > 0
    assert (generation["share_of_bandwidth"] is None) == ("no_share" in generation)
    assert report["read_gb_s"] > 0


def test_bench_tells_what_the_time_goes_to(tiny_path: Path) -> None:
    line = ("bench", "-m", str(tiny_path), "-p", "16", "-n", "8", "-r", "1", "--profile")
    rows = json.loads(run_oxibonsai(*line, "--json").stdout)["rows"]
    runs = {row["test"]: {op["op"]: op["runs"] for op in row["profile"]} for row in rows}
    assert runs["tg8"]["attend"] > runs["pp16"]["attend"] > 0
    assert "linear" in run_oxibonsai(*line).stdout


def test_chat_commands(tiny_path: Path, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    talk = ["/system Be brief.", "ab", f"/save {saved}", "/reset", f"/load {saved}"]
    script = "\n".join([*talk, "/nonsense", "/load /nonexistent", "/exit", ""])
    done = run_oxibonsai("chat", "-m", str(tiny_path), "-n", "4", "--seed", "1", stdin=script)
    assert done.returncode == 0
    messages = json.loads(saved.read_text())
    assert [m["role"] for m in messages] == ["system", "user", "assistant"]
    assert messages[1]["content"] == "ab"
    assert "no command /nonsense" in done.stderr
    assert "[/nonexistent: No such file or directory]" in done.stderr


def test_chat_says_when_the_context_is_full(tiny_path: Path) -> None:
    script = "".join(f"{'ab ' * 60}{i}\n" for i in range(6)) + "ab " * 600 + "\n/exit\n"
    done = run_oxibonsai("chat", "-m", str(tiny_path), "-n", "8", "--seed", "1", stdin=script)
    assert done.returncode == 0
    assert "oldest messages are left out" in done.stderr
    assert "too many for the context" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "-m", "TINY", ""], 2, "the text is empty"),
        (["run", "-m", "TINY", "-p", "a", "-f", "b"], 2, "give the prompt once"),
        (["run", "-m", "TINY", "-f", "/nonexistent"], 2, "cannot read /nonexistent"),
        (["run", "-m", "TINY", "ab", "--top-p", "2"], 2, "top_p is 2.0"),
        (["run", "-m", "TINY", "ab " * 600], 2, "more than the context of 512"),
        (["run", "-m", "TINY", "ab", "--nonsense"], 2, "No such option"),
        (["nonsense"], 2, "there is no command 'nonsense'"),
        (["inof"], 2, "did you mean 'info'?"),
        (["generate"], 2, "did you mean 'run'?"),
        (["info", "TINYX"], 3, "did you mean"),
        (["run", "-m", "TINY", "-ctk", "q8_0", "-ctv", "f16", "ab"], 2, "have one type"),
        (["run", "-m", "TINY", "-hf", "org/repo", "ab"], 2, "two models are named"),
        (["run", "-m", "TINY", "-n", "0", "ab"], 2, "0 tokens are no text"),
        (["run", "-m", "/nonexistent", "ab"], 3, "does not exist"),
        (["run", "-m", "EMPTY", "ab"], 3, "holds no GGUF model"),
        (["info", "-m", "TEXT"], 3, "no GGUF file"),
        (["detokenize", "-m", "TINY", "999"], 2, "outside the vocabulary"),
        (["detokenize", "-m", "TINY"], 2, "no token ids"),
        (["run", "-m", "pip:", "ab"], 3, "no package"),
        (["run", "-m", "hf:x", "ab"], 3, "no repository"),
    ],
)
def test_errors_are_one_line_with_the_right_code(
    arguments: list[str], code: int, message: str, tiny_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.gguf").write_text("hello " * 100)
    places = {"TINY": tiny_path, "EMPTY": tmp_path / "empty", "TEXT": tmp_path / "text.gguf"}
    places["TINYX"] = tiny_path.with_name("tyni.gguf")
    done = run_oxibonsai(*[str(places.get(a, a)) for a in arguments])
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_tier_that_does_not_exist_is_an_error_that_lists_those_that_do(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_ISA", "mmx")
    done = run_oxibonsai("run", "-m", str(tiny_path), "ab")
    assert done.returncode == 3
    assert "available: scalar" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samples", "3", "--best-of", "2"], "--best-of 2 is less than --samples 3"),
        (["--logprobs"], "--logprobs needs --json"),
        (["--top-logprobs", "2", "--json"], "--top-logprobs needs --logprobs"),
        (["--beams", "2", "--stop", "a"], "--beams takes no samples"),
        (["--beams", "2", "--temperature", "0.5"], "--beams takes no samples"),
        (["--beams", "2", "--speculate", "ngram"], "--beams takes no samples"),
        (["--beams", "2", "--context-shift"], "--beams takes no samples"),
        (["--beams", "2", "--length-penalty", "1e9"], "length_penalty is 1000000000.0"),
    ],
    ids=str,
)
def test_options_that_would_do_nothing_are_refused(
    tiny_path: Path, arguments: list[str], message: str
) -> None:
    done = run_oxibonsai("run", "-m", str(tiny_path), "ab", "-n", "4", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_structure_that_was_cut_is_said_to_be(tiny_path: Path) -> None:
    run = ["run", "-m", str(tiny_path), "ab", "--choice", "abcdef"]
    assert "not complete" not in run_oxibonsai(*run).stderr
    assert "cut at a token limit" in run_oxibonsai(*run, "-n", "2").stderr
    assert "cut at a stop string" in run_oxibonsai(*run, "--stop", "cd").stderr
    assert json.loads(run_oxibonsai(*run, "--stop", "cd", "--json").stdout)["complete"] is False
    assert json.loads(run_oxibonsai(*run, "--json").stdout)["complete"] is True
