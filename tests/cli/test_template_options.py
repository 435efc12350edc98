"""Models without a chat template, and templates that are given on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny_model
from forked import run_oxibonsai
from oxibonsai import RequestError, load
from oxibonsai.chat import ChatRequest, prepare

SHOUTING = (
    "{% for m in messages %}{{ bos_token }}{{ m.content | upper }}{{ eos_token }}{% endfor %}"
)


@pytest.fixture(scope="module")
def bare_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without a template, and without the tokens of one that is known."""
    path = tmp_path_factory.mktemp("bare") / "bare.gguf"
    tokens = tiny_model.tokenizer_keys()["tokenizer.ggml.tokens"][0]
    plain = ["<s>" if t == "<|im_start|>" else "</s>" if t == "<|im_end|>" else t for t in tokens]
    changes = {
        "tokenizer.ggml.tokens": (plain, "arr[str]"),
        "tokenizer.ggml.bos_token_id": (256, "u32"),
    }
    tiny_model.write(path, changes=changes)
    return path


def test_a_chat_without_a_template_is_chatml_with_a_warning(bare_path: Path) -> None:
    warning = (
        "no chat template: chatml is used, which may not suit it; --chat-template names another"
    )
    done = run_oxibonsai("chat", "-m", bare_path, "-n", 2, stdin="ab\n/exit\n")
    assert (done.returncode, warning in done.stderr) == (0, True), done.stderr
    done = run_oxibonsai("run", "-m", bare_path, "--json", "-n", 1, "--system", "Be brief.", "ab")
    assert (done.returncode, warning in done.stderr) == (0, True), done.stderr
    ids = json.loads(done.stdout)["prompt_tokens"]
    assert load(bare_path).tokenizer.decode(ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(RequestError, match="--chat-template chatml"):  # what Python's API says
        prepare(load(bare_path), ChatRequest([{"role": "user", "content": "ab"}]))


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ([], "ab"),
        (["--chat-template", "chatml"], "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"),
        (
            ["--chat-template", "llama3"],
            "<|start_header_id|>user<|end_header_id|>\n\nab<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (["--chat-template", SHOUTING], "<s>AB</s>"),
        (["--chat-template", "FILE"], "<s>AB</s>"),
        (["--chat-template-file", "FILE"], "<s>AB</s>"),
    ],
    ids=["none", "chatml", "llama3", "jinja", "file by name", "file"],
)
def test_a_template_that_is_given_is_used(
    bare_path: Path, tmp_path: Path, options: list[str], prompt: str
) -> None:
    file = tmp_path / "template.jinja"
    file.write_text(SHOUTING)
    options = [str(file) if o == "FILE" else o for o in options]
    done = run_oxibonsai("run", "-m", bare_path, "--json", "-n", 1, "ab", *options)
    ids = json.loads(done.stdout)["prompt_tokens"]
    assert load(bare_path).tokenizer.decode(ids, skip_special=False) == prompt
    if options:
        done = run_oxibonsai("chat", "-m", bare_path, "-n", 2, *options, stdin="ab\n/exit\n")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--chat-template", "llama-3"], 2, "nor a file, nor one of bailing, "),
        (["--system", "Be brief.", "--raw"], 2, "--system needs a chat template: leave out --raw"),
        (["--chat-template", "{% if %}"], 3, "the chat template is no valid Jinja"),
        (["--chat-template-file", "/nonexistent"], 2, "can't read /nonexistent"),
        (["--chat-template", "chatml", "--chat-template-file", "x"], 2, "exclude each other"),
        (["--chat-template", "chatml", "--raw"], 2, "--raw takes no chat template"),
    ],
)
def test_template_options_that_make_no_sense_are_refused(
    bare_path: Path, options: list[str], code: int, message: str
) -> None:
    done = run_oxibonsai("run", "-m", bare_path, "ab", *options)
    assert done.returncode == code
    assert message in done.stderr
