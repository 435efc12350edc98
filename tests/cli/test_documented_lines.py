"""Command lines from the documentation of llama.cpp, Ollama and mflux run as they stand.

The name of the program is another, and the models that they name are tiny ones.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from make_option_pages import COMMANDS

from oxibonsai.cli.main import _run as run_command
from oxibonsai.server import launcher
from oxibonsai.server.settings import Settings

LLAMA_CPP = r"""
llama-cli -m "PATH_TO_MODEL" -p "Hi you how are you" -ngl 99
llama-cli -m PATH_TO_MODEL -p "Building a website can be done in 10 steps:" -n 50
llama-cli -m path_to_model -p "Building a website can be done in 10 simple steps:" -n 4 -e -ngl 33 -sm layer
llama-cli -m path_to_model -p "Building a website can be done in 10 simple steps:" -n 4 -e -ngl 33 -sm none -mg 0
llama-cli -m "path/to/model.gguf" -ngl 200000 -p "Please sir, may I have some "
llama-cli -m model.gguf --jinja -rea off -p "What is a car?"
llama-completion -m models/gemma-1.1-7b-it.Q4_K_M.gguf --jinja --single-turn -sys "You are a helpful assistant" -p "Hello"
llama-completion -m models/gemma-1.1-7b-it.Q4_K_M.gguf -no-cnv --prompt "Once upon a time"
llama-completion -m model.gguf --no-conversation -f prompt.txt -n 8 --temp 0.7 --repeat-penalty 1.1 -r "User:"
llama-bench -m model.gguf -p 0 -n 2,4 -r 1
llama-bench -m model.gguf -n 0 -p 8 -pg 8,4 -r 1 -fa 1 -mmp 0 -o md
llama-bench -m model.gguf -p 8 -n 4 -d 0,64 -r 2 -o csv -t 1
llama-bench -o sql -m model.gguf -r 1 -p 8 -n 2
llama-perplexity --file wiki.test.raw -ngl 999 --model finetuned-model.gguf -c 64
llama-perplexity -m model.gguf -f wiki.test.raw -c 64 --chunks 2 --kl-divergence-base base.kld
llama-embedding -m ./path/to/model.gguf --pooling mean --log-disable -p "Hello World!"
llama-embedding -p 'Castle<#sep#>Stronghold<#sep#>Dog<#sep#>Cat' --pooling mean --embd-separator '<#sep#>' --embd-normalize 2 --embd-output-format '' -m './path/to/model.gguf' --n-gpu-layers 99 --log-disable
llama-imatrix -m ggml-model-f16.gguf -f wiki.test.raw -ngl 99 -c 64
llama-imatrix -m ggml-model-f16.gguf -f wiki.test.raw --output-frequency 20 -o imatrix2.gguf -c 64 --chunks 1
llama-quantize input-model-f32.gguf q8_0 8
llama-quantize --imatrix imatrix.gguf --allow-requantize ggml-model-f16.gguf ./ggml-model-q4_0.gguf q4_0
llama-tokenize -m model.gguf -p "hello" --log-disable
llama-server -m model.gguf
llama-server -m models/7B/ggml-model.gguf -c 2048
llama-server --jinja -fa -m model.gguf -ngl 99 -np 2 --cache-type-k q8_0 --cache-type-v q8_0
llama-server -m model.gguf --no-mmproj-offload --reasoning-budget 0 --chat-template chatml
llama-server --models-dir ./models
""".strip().splitlines()  # noqa: E501

OLLAMA = """
ollama run gemma4.gguf "Why is the sky blue?"
ollama run gemma4.gguf --verbose --keepalive 5m --nowordwrap --think=false "Tell me a joke"
ollama run gemma4.gguf -p "What is a tree?"
ollama run gemma4.gguf --format json --hidethinking "Who are you?"
ollama show gemma4.gguf
ollama ls
""".strip().splitlines()

MFLUX = """
mflux-generate-flux2 --model seedling-picture --prompt "A red fox resting in fresh snow" --steps 1 --seed 640563507 --width 32 --height 32
mflux-generate-flux2 --model seedling-picture --prompt "a cat" --steps 1 --seed 1 2 --low-ram --width 32 --height 32 --output out.png
mflux-generate-flux2-edit --model seedling-picture --image-paths person.png glasses.png --prompt "Make the woman wear the eyeglasses" --steps 1 --seed 42 --width 32 --height 32
""".strip().splitlines()  # noqa: E501

MODELS = (
    "PATH_TO_MODEL", "path_to_model", "path/to/model.gguf", "model.gguf", "finetuned-model.gguf",
    "models/gemma-1.1-7b-it.Q4_K_M.gguf", "ggml-model-f16.gguf", "input-model-f32.gguf", "gemma4.gguf",
    "models/7B/ggml-model.gguf",
)  # fmt: skip
OF_OLLAMA = {"run": "run", "show": "show", "ls": "ls"}
# What runs a conversation in llama.cpp answers one prompt where one is given.
MOST = {"run": ["-t", "1", "-n", "4"]}


def arguments(line: str) -> list[str]:
    program, *words = shlex.split(line)
    if program == "ollama":
        return [OF_OLLAMA[words[0]], *words[1:]]
    return [COMMANDS[program][0], *words]


@pytest.fixture
def folder(
    tmp_path: Path,
    tiny_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text_file: Callable[[int], str],
) -> Path:
    """A folder with all that the lines name, in which they run."""
    for name in MODELS:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(tiny_path)
    (tmp_path / "wiki.test.raw").write_text(text_file(400))
    (tmp_path / "prompt.txt").write_text("Once upon a time")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setenv("OXIBONSAI_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def text_file() -> Callable[[int], str]:
    return lambda words: " ".join(f"word{i % 17}" for i in range(words))


@pytest.mark.parametrize("line", [*LLAMA_CPP, *OLLAMA])
@pytest.mark.usefixtures("folder")
def test_lines_of_llama_cpp_and_ollama_run(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = arguments(line)
    served: list[Settings] = []
    monkeypatch.setattr(launcher, "serve", lambda settings, _: served.append(settings) or 0)
    if "imatrix.gguf" in line:
        assert run_command(["imatrix", "-m", "model.gguf", "-f", "wiki.test.raw", "-c", "64"]) == 0
    if words[0] == "serve":
        with pytest.raises(SystemExit) as end:
            run_command(words)
        assert end.value.code == 0
        assert served[0].model in (None, *MODELS)
        return
    capsys.readouterr()
    code = run_command([*words, *MOST.get(words[0], [])])
    found = capsys.readouterr()
    assert code == 0, found.err
    assert found.out or words[0] in ("run", "imatrix", "quantize")
    if "-ngl" in words or "--n-gpu-layers" in words:
        assert found.err.count("CPU") == 1  # one notice
    assert "not available" not in found.err


@pytest.mark.usefixtures("folder")
def test_formats_of_llama_bench(capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "bench",
        "-m",
        "model.gguf",
        "-p",
        "8,16",
        "-n",
        "2",
        "-d",
        "0,64",
        "-r",
        "1",
        "-t",
        "1",
    ]
    assert run_command([*line, "-o", "json", "-oe", "md"]) == 0
    found = capsys.readouterr()
    rows = json.loads(found.out)
    tests = [(row["n_prompt"], row["n_gen"], row["n_depth"]) for row in rows]
    assert tests == [(8, 0, 0), (16, 0, 0), (0, 2, 0), (8, 0, 64), (16, 0, 64), (0, 2, 64)]
    assert all(row["avg_ts"] > 0 and row["model_n_params"] > 0 for row in rows)
    table = found.err[found.err.index("| model") :].splitlines()
    assert [cells.split(" | ")[5] for cells in table[2:]] == [
        "pp8", "pp16", "tg2", "pp8 @ d64", "pp16 @ d64", "tg2 @ d64",
    ]  # fmt: skip


@pytest.mark.parametrize("line", MFLUX)
def test_lines_of_mflux_draw(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "--image-paths" in line:
        for name in ("person.png", "glasses.png"):
            code = run_command(
                ["image", "-p", name, "--steps", "1", "--width", "64", "--height", "64", "-o", name]
            )
            assert code == 0, capsys.readouterr().err
    assert run_command(arguments(line)) == 0, capsys.readouterr().err
    assert list(folder.glob("*.png"))
