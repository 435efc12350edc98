"""The exported folder under node: ids, logits and texts are those of this package."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native_build import ROOT, needs_compiler
from oxibonsai import _core, load
from oxibonsai.loading import open_model
from oxibonsai.models import load_model
from oxibonsai.tokenizer.tokenizer import Tokenizer
from web_folders import SEEDLINGS, export

# A clean-up of spaces would change it.
SPACED = "a ? b !== c , n't ' x ' ."
STORY = "Once upon a time"
PROMPTS = (
    STORY,
    SPACED,
    'Tom said: "It\'s a café!\n  What\tnow?" 12345 🐢',
    " two  spaces, and the end of a line\n",
)
DRAWN = {"temperature": 0.9, "topK": 30, "topP": 0.9, "minP": 0.02, "seed": str(2**63 + 11)}

pytestmark = [
    pytest.mark.release,
    pytest.mark.long("compiles the core to WebAssembly"),
    pytest.mark.timeout(2400),
    needs_compiler,
]


@pytest.fixture(scope="module", params=["seedling-1bit", "seedling-ternary"])
def model(request: pytest.FixtureRequest) -> Path:
    return SEEDLINGS / f"{request.param}.gguf"


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(model, tmp_path_factory.mktemp("exported"))


def answers(folder: Path, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("run_exported.mjs")), str(folder)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def run(model: Path, prompt: str, *options: str) -> str:
    line = [sys.executable, "-m", "oxibonsai", "run", "-m", str(model), "-n", "60"]
    done = subprocess.run([*line, *options, prompt], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ids_are_those_of_the_tokenizer(model: Path, folder: Path) -> None:
    tokenizer = Tokenizer.from_gguf(open_model(model).file)
    found = answers(folder, [{"prompt": p, "options": {"maxTokens": 1}} for p in PROMPTS])
    assert [a["ids"] for a in found] == [list(tokenizer.encode(p)) for p in PROMPTS]


def test_texts_of_ids_are_those_of_the_tokenizer(model: Path, folder: Path) -> None:
    tokenizer = Tokenizer.from_gguf(open_model(model).file)
    ids = [list(tokenizer.encode(p)) for p in PROMPTS]
    assert [a["text"] for a in answers(folder, [{"decode": i} for i in ids])] == list(PROMPTS)


def test_logits_are_those_of_this_machine(model: Path, folder: Path) -> None:
    """Prompts in one piece and in several, behind the state of those before them, and one of less."""
    ids = [int(i) for i in np.random.default_rng(4).integers(3, 4096, 300)]
    lengths = (1, 64, 300, 290)
    found = answers(folder, [{"ids": ids[:n]} for n in lengths])
    device = _core.CpuDevice(1)
    loaded = load_model(open_model(model), device)
    for n, answer in zip(lengths, found, strict=True):
        batch = _core.Batch()
        batch.add(ids[:n], pages=list(range(5)), outputs=1)
        pages = device.make_pages(loaded.graph.paged_layers, "f32", 5)
        wanted = loaded.program(loaded.main_pass).run(batch, [pages])["logits"]
        assert base64.b64decode(answer["logits"]) == wanted.tobytes()


def test_texts_are_those_of_the_command_line(model: Path, folder: Path) -> None:
    requests = [
        {"prompt": STORY, "options": {"maxTokens": 60, "temperature": 0}},
        {"prompt": STORY, "options": {"maxTokens": 60, **DRAWN}},
        {"prompt": STORY, "options": {"maxTokens": 60, "seed": 3}},  # the model's own settings
    ]
    lines = (
        ["--temperature", "0"],
        [
            *("--temperature", "0.9", "--top-k", "30", "--top-p", "0.9", "--min-p", "0.02"),
            *("--seed", str(2**63 + 11)),
        ],
        ["--seed", "3"],
    )
    found = answers(folder, requests)
    wanted = [run(model, STORY, "--raw", *options) for options in lines]
    assert [f"{STORY}{a['text']}\n" for a in found] == wanted
    assert len(set(wanted)) == len(wanted)


def test_answers_are_those_of_the_command_line(model: Path, folder: Path) -> None:
    question = "Tell me about a cat."
    asked = [{"role": "user", "content": question}]
    (found,) = answers(folder, [{"messages": asked, "options": {"maxTokens": 60, "seed": 5}}])
    assert f"{found['text']}\n" == run(model, question, "--seed", "5")


def test_a_conversation_goes_on_as_in_the_engine(model: Path, folder: Path) -> None:
    """The module keeps the state of what the second question shares with the first."""
    first = [{"role": "user", "content": "Tell me about a cat."}]
    second = [
        *first,
        {"role": "assistant", "content": "A cat sat."},
        {"role": "user", "content": "And a dog?"},
    ]
    options = {"maxTokens": 60, "seed": 5}
    found = answers(folder, [{"messages": m, "options": options} for m in (first, second)])
    with load(model) as engine:
        params = replace(engine.recommended.params(None), max_tokens=60, seed=5)
        reply = engine.chat(second, params)
        wanted = "".join(delta.content for delta in reply)
    assert found[1]["text"] == wanted
    assert found[0]["text"] != wanted


def test_what_cannot_be_done_is_an_error_with_a_sentence(model: Path, folder: Path) -> None:
    requests: list[dict[str, Any]] = [
        {"prompt": "a", "options": {"topk": 3}},
        {"prompt": "a", "options": {"seed": -1}},
        {"prompt": "a", "options": {"seed": 2**63 + 11}},
        {"prompt": "a", "options": {"temperature": -1}},
        {"prompt": "a", "options": {"topK": 0.5}},
        {"prompt": "a", "options": {"maxTokens": "60"}},
        {"ids": [5.9]},
        {"ids": [4096]},
        {"ids": [3] * 513},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"messages": [{"role": "tool", "content": "a"}]},
        {"messages": [{"role": "user", "content": "a"}], "options": {"jsonSchema": {}}},
        {
            "messages": [{"role": "user", "content": "a"}],
            "options": {"templateVariables": {"tools": []}},
        },
        {"prompt": "a " * 600},
    ]
    found = [a["error"] for a in answers(folder, requests)]
    assert found[0] == "there is no option topk"
    assert found[1] == "the seed -1 is not within 64 bits"
    assert "give a large one as a string" in found[2]
    assert found[3] == "temperature is -1; it must be a number 0 or more"
    assert found[4] == "topK is 0.5; it must be an integer, 0 or more and at most 2147483647"
    assert found[5].startswith("maxTokens is 60: give a whole number")
    assert "list of token ids" in found[6]
    assert "4096" in found[7]
    assert found[8] == "the text has more than the 512 tokens of its context"
    assert "nothing to answer" in found[9]
    assert found[10] == "messages[0].role is tool, none of system, user, assistant"
    assert found[11] == "there is no option jsonSchema"
    assert found[12] == "a variable of the chat template may not be called tools"
    assert "leave no room for more in a context of 512" in found[13]


USE = """
import { load } from "oxibonsai";
const model = await load(process.argv[1]);
const messages = [{ role: "user", content: "Tell me about a cat." }];
let text = "";
for await (const piece of model.chat(messages, { maxTokens: 60, seed: 5 })) text += piece;
console.log(text);
"""


def test_the_npm_package_runs_a_folder(model: Path, folder: Path, tmp_path: Path) -> None:
    """Packed, installed and imported by its name, on a folder that has nothing but the model."""
    line = [
        sys.executable,
        str(ROOT / "packaging" / "build_npm.py"),
        str(folder),
        str(tmp_path / "npm"),
    ]
    subprocess.run(line, check=True)
    bare = tmp_path / "model"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("*.js", "*.mjs", "*.wasm", "ui"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"private": true, "type": "module"}')

    def done(*command: str) -> str:
        return subprocess.run(
            command, cwd=project, capture_output=True, text=True, check=True
        ).stdout

    archive = json.loads(done("npm", "pack", "--json", str(tmp_path / "npm")))[0]["filename"]
    done("npm", "install", "--offline", "--no-audit", f"./{archive}")
    found = done("node", "--input-type=module", "-e", USE, str(bare))
    assert found == run(model, "Tell me about a cat.", "--seed", "5")
