"""Outside truth: llama.cpp's log-probabilities on the same files (llama_cpp_logprobs.py).

Compared afresh where llama-cpp-python is installed (extra peers), else with what it gave when the
models were made.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai

TRUTH = Path(__file__).parents[1] / "truth"


@pytest.fixture(scope="module")
def theirs(seedling_path: Path) -> dict[str, Any]:
    """What llama.cpp computes of the model."""
    if find_spec("llama_cpp") is None:
        text = (TRUTH / "seedling" / "llama_cpp_logprobs.json").read_text()
    else:
        line = [
            sys.executable,
            str(TRUTH / "make" / "make_seedling_logprobs.py"),
            str(seedling_path),
        ]
        text = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(text)["models"][seedling_path.stem]
    return found


def test_the_record_is_of_this_file(theirs: dict[str, Any], seedling_path: Path) -> None:
    assert theirs["sha256"] == hashlib.sha256(seedling_path.read_bytes()).hexdigest()


def test_texts_become_the_same_ids(theirs: dict[str, Any], seedling: oxibonsai.Engine) -> None:
    text = seedling.tokenizer.decode(theirs["ids"], skip_special=False)
    assert text.startswith("<|im_start|>user\nTell me a story")
    assert seedling.tokenizer.encode(text, parse_special=True) == theirs["ids"]


def test_log_probabilities_agree(theirs: dict[str, Any], seedling: oxibonsai.Engine) -> None:
    """Both round activations to eight bits, each in its own groups: that is all that differs."""
    logits = seedling.logits(theirs["ids"]).astype(np.float64)
    top = logits.max(axis=1, keepdims=True)
    logprobs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    distances, agreed, clear = [], 0, 0
    for row, likeliest in zip(logprobs, theirs["top"], strict=True):
        distances += [abs(row[i] - logprob) for i, logprob in likeliest]
        if likeliest[0][1] - likeliest[1][1] > 0.2:
            clear += 1
            agreed += int(row.argmax()) == likeliest[0][0]
    assert np.mean(distances) < 0.05
    assert clear >= 20
    assert agreed == clear
