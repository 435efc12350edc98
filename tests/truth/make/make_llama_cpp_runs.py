"""Records whether ``oxibonsai run`` continues a text as llama.cpp does, and puts it into
docs/architectures.md.

    export PYTHONPATH=LLAMA_CPP:LLAMA_CPP/gguf-py
    python tests/truth/make make_llama_cpp_runs PYTHON [NAME ...]

PYTHON is an interpreter that has llama-cpp-python; LLAMA_CPP its folder, with conversion/ and
gguf-py/. With names of models, only they are run anew.

Each file is made by llama.cpp's own converter, from a random folder of the tests. Both sides take the
likeliest token each time. From where two tokens are about equally likely, they may differ.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dense_models
import encoder_models
import expert_models
import hf_folders
import make_architecture_table
import make_llama_cpp_conversions
import numpy as np
import random_vision
import recurrent_models
import remote_folders
import safetensors.torch
import transformers
from click.testing import CliRunner

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.cli.run import run as oxibonsai_run

RECORDED = make_architecture_table.RUNS
COUNT = 24  # tokens
CLEAR = 2e-3  # a lead, as a share of the largest logit; llama.cpp's tables of GELU cost 5e-4
CHARACTERS = list("abcdefghijklmnopqrstuvwxyz0123456789,;:+-*/%")
# Further ones are for models that soon find two tokens equally likely.
TEXTS = ["".join(np.random.default_rng(i).choice(CHARACTERS, 70)) for i in (3, 4, 5)]
# Structures that llama.cpp runs otherwise than transformers does.
LEFT_OUT = {
    "command-r-plus": "norms of queries and keys are read in models of 64 layers alone",
    "deepseek2-groups": "groups are ranked by their two best experts, not the best one",
    "deepseek2-lite": "it is told by its number of layers",
    "ernie4_5-biases": "biases of the feed-forward part are not read",
    "ernie4_5-moe": "the converter writes another width of the shared experts",
    "exaone": "the converter writes no epsilon of the norms",
    "exaone4-windows": "windows are those of models of 64 layers",
    "gemma3n": "sizes are those of the published models",
    "gpt-oss": "the bounds of YaRN's ramp are whole numbers, which its configuration forbids",
    "granitehybrid": "it aborts",
    "minimax-m2": "it aborts",
    "nemotron_h": "it aborts",
    "qwen3vlmoe": "it does not load",
    "olmo3-magnitude": "the magnitude of cos and sin is not read",
    "olmoe": "there are as many keys as queries",
    "phimoe": "experts are chosen by their probabilities among all",
    "phimoe-long": "the same",
    "plamo2": "it does not end where the first layer has no attention",
    "qwen35 tied, other heads": "heads of keys and of values are equally wide",
    "qwen": "the converter writes no epsilon of the norms",
    "phi3": "its window is not applied",
    "phi3-short": "contexts are at least 256 tokens, so the long factors are taken",
}


_EXPERTS = {case.name: case for case in expert_models.CASES}
_PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1e4}
# The same architectures within those limits.
WITHIN = [
    replace(
        _EXPERTS["ernie4_5-moe"],
        name="ernie4_5-moe within limits",
        options={**_EXPERTS["ernie4_5-moe"].options, "intermediate_size": 128},
    ),
    replace(
        _EXPERTS["gpt-oss"],
        name="gpt-oss within limits",
        options={**_EXPERTS["gpt-oss"].options, "rope_parameters": _PLAIN_ROPE},
    ),
    replace(
        _EXPERTS["olmoe"],
        name="olmoe within limits",
        options={**_EXPERTS["olmoe"].options, "num_key_value_heads": dense_models.HEADS},
    ),
]


def folders() -> Iterator[tuple[str, Callable[[Path], Any]]]:
    """Names of models, and what writes their folders."""
    for plain in hf_folders.CASES:
        yield (
            f"plain {plain.name}",
            lambda folder, c=plain: hf_folders.save(c, folder, tokenizer=False),
        )
    for case in (*dense_models.CASES, *expert_models.CASES, *WITHIN):
        if case.converted_by_llama_cpp:
            yield case.name, lambda folder, c=case: dense_models.save(c, folder)
    for hybrid in recurrent_models.CASES:
        yield hybrid.name, hybrid.save
    for remote in remote_folders.FOLDERS:
        if remote.converted_by_llama_cpp:
            yield remote.name, lambda folder, r=remote: remote_folders.save(r, folder)
    for name in ("qwen2vl", "qwen2.5vl", "qwen3vl", "qwen3vlmoe"):
        yield name, lambda folder, n=name: save_eyed(n, folder)
    yield "bitnet-silu", save_bitnet
    for t5 in encoder_models.SEQ2SEQ:
        yield t5.name, lambda folder, c=t5: encoder_models.save(c, folder)


def save_eyed(name: str, folder: Path) -> None:
    """A model with eyes; its converted files are not used here."""
    folder.mkdir()
    model = random_vision.MODELS[name](folder).truth
    model.save_pretrained(folder)


def save_bitnet(folder: Path) -> None:
    """A model with the names of the first BitNet, the only ones that the converter knows."""
    (case,) = (c for c in dense_models.CASES if c.name == "bitnet-silu")
    dense_models.save(case, folder)
    file = folder / "model.safetensors"
    names = {"attn_sub_norm": "inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}
    renamed = {}
    for name, tensor in safetensors.torch.load_file(file).items():
        for theirs, first in names.items():
            name = name.replace(theirs, first)
        renamed[name] = tensor
    safetensors.torch.save_file(renamed, file)


def write_vocabulary(model: Any) -> None:
    """Every printable character is a token, then fillers; any text can be told apart."""
    count = model.find_hparam(["vocab_size", "padded_vocab_size"])
    characters = [chr(i) for i in range(0x21, 0x7F)] + [chr(0x120), "he"]  # and a space
    tokens = characters + [f"<{i}>" for i in range(count - len(characters) - 1)] + ["<end>"]
    writer = model.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (count - 1) + [3])
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(count - 1)
    writer.add_add_bos_token(False)


def run(path: Path, text: str) -> dict[str, Any]:
    """What ``oxibonsai run`` says."""
    arguments = ["--model", str(path), "--raw", "--temperature", "0"]
    arguments += ["--max-tokens", str(COUNT), "--json", "--prompt", text]
    result = CliRunner().invoke(oxibonsai_run, arguments)
    if result.exit_code != 0:
        raise RuntimeError(f"{result.output} {result.exception!r}")
    said: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return said


def compare(python: str, path: Path, text: str) -> int:
    """How many tokens of the two are equal, or all that could be.

    Raises:
        RuntimeError: They differ where one token leads clearly.
    """
    program = Path(__file__).with_name("llama_cpp_greedy.py")
    command = [python, str(program), str(path), text, str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"llama.cpp: {done.returncode} {done.stderr[-600:]}")
    theirs, ours = json.loads(done.stdout.splitlines()[-1]), run(path, text)
    if ours["prompt_tokens"] != theirs["prompt"]:
        raise RuntimeError(f"the prompt is {ours['prompt_tokens']}, not {theirs['prompt']}")
    for i, lead in enumerate(theirs["leads"]):
        found, wanted = (x["tokens"][i : i + 1] for x in (ours, theirs))
        if found != wanted:
            if lead > CLEAR:
                raise RuntimeError(f"token {i} is {found}, not {wanted}, which leads by {lead:.1e}")
            return i
    return len(theirs["leads"])


def main(python: str, *names: str) -> None:
    """Runs the models and writes the page."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    recorded = json.loads(RECORDED.read_text()) if names and RECORDED.exists() else {}
    failed: set[str] = set()
    for name, save in folders():
        if name in LEFT_OUT or (names and name not in names):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder, path = Path(temporary) / "model", Path(temporary) / "model.gguf"
            try:
                save(folder)
                config = json.loads((folder / "config.json").read_text())
                if pattern := config.get("hybrid_override_pattern"):
                    config["num_hidden_layers"] = len(pattern)
                    (folder / "config.json").write_text(json.dumps(config))
                size = {**config, **config.get("text_config", {})}["vocab_size"]
                make_llama_cpp_conversions.count_tokens(folder, size)
                make_llama_cpp_conversions.convert(folder, path, write_vocabulary)
                architecture = Checkpoint(path).architecture
                tokens = 0
                for text in TEXTS:
                    if tokens < COUNT:
                        tokens = max(tokens, compare(python, path, text))
                recorded.setdefault(architecture, {})[name] = tokens
                print(name, architecture, tokens, flush=True)
            except Exception as e:  # one model must not hide the others
                failed.add(name)
                print(name, "FAILED", repr(e)[:900], flush=True)
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    make_architecture_table.write(make_architecture_table.written_rows())
    if failed:
        raise SystemExit(f"not as llama.cpp: {', '.join(sorted(failed))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
