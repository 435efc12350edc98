"""Writes small models that mostly follow one order of the tokens, and drafters that know it.

Usage: make_following_models.py FOLDER

The head's row of a token is the embedding of the one before it in the order, so the logits of a token
favour the next one, and the layers, which are random, disturb that. So drafters are right in part, in every
program alike. `hybrid.gguf` is a Qwen3.5 with a layer for multi-token prediction, `attention.gguf` a
Qwen3-MoE; `bench/draft_counts.py` takes both, their drafters `*-dspark.gguf`, `*-dflash2.gguf` and
`*-eagle3.gguf`, and `attention-small.gguf`, a model with other disturbances.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import block_drafters
import dense_models
import drafting_models
import eagle_drafters
import expert_models
import numpy as np
import numpy.typing as npt

import gguf_copy
from oxibonsai import _core
from oxibonsai.convert.language_model import convert

Floats = npt.NDArray[np.float32]
_RANK = 64  # of DSpark's two matrices, and values that EAGLE-3's attention keeps
_BRANCHES = ("attn_output", "ssm_out", "ffn_down", "ffn_down_exps")
_PROMPTS = (
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve,",
    "def add(a, b): return a + b def subtract(a, b): return a - b def multiply(a, b):",
    "Once upon a time there was a small village at the foot of a mountain, where",
    "To bake bread you need flour, water, salt and yeast. First",
    "The lamp in the kitchen is on. The lamp in the hall is off. The lamp in the",
    "Question: Why is the sky blue? Answer:",
    "Monday: work. Tuesday: work. Wednesday: sport. Thursday: work. Friday: friends. Monday:",
)


def main(folder: str) -> None:
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        hybrid = drafting_models.make("qwen35", Path(temporary) / "hybrid").path
        follow(hybrid, out / "hybrid.gguf", noise=0.25)
        tokens = tokenizer_keys(hybrid)
        case = next(c for c in expert_models.CASES if c.name == "qwen3moe")
        size = len(tokens["tokenizer.ggml.tokens"][0])
        case = replace(case, options={**case.options, "vocab_size": size})
        dense_models.save(case, Path(temporary) / "attention")
        plain = Path(temporary) / "attention.gguf"
        convert(Path(temporary) / "attention", plain, dtype="f32")
        follow(plain, out / "attention.gguf", noise=0.5, keys=tokens)
        follow(plain, out / "attention-small.gguf", noise=0.5, keys=tokens, other=0.5)
    for name, taps in (("hybrid", (0, 1, 2)), ("attention", (0, 1))):
        target = out / f"{name}.gguf"
        write_dspark(target, out / f"{name}-dspark.gguf", taps[-2:], tokens)
        write_dflash2(target, out / f"{name}-dflash2.gguf", taps[-2:], tokens)
        write_eagle(target, out / f"{name}-eagle3.gguf", tokens)
    words = [prompt.split() for prompt in _PROMPTS]
    cut = [" ".join(w[: len(w) // part]) for w in words for part in (1, 2, 3)]
    (out / "prompts.txt").write_text("\n".join(cut) + "\n")


def tokenizer_keys(path: Path) -> dict[str, tuple[Any, str]]:
    """Return a file's keys of the tokenizer with their types."""
    file = _core.GgufFile(str(path))
    keys = [k for k in file.keys() if k.startswith("tokenizer.")]  # noqa: SIM118 - not a dict
    return {k: (file.get(k), gguf_copy.type_of(file, k)) for k in keys}


def order(rows: int) -> npt.NDArray[np.int64]:
    """Return the token that follows each."""
    return np.random.default_rng(1).permutation(rows)


def read(path: Path, name: str) -> Floats:
    """Return a float tensor."""
    file = _core.GgufFile(str(path))
    values: Floats = _core.decode("F32", file.tensor_bytes(name))
    return values.reshape(file.tensor(name).shape)


def follow(
    source: Path,
    target: Path,
    *,
    noise: float,
    keys: dict[str, tuple[Any, str]] | None = None,
    other: float = 0.0,
) -> None:
    """Write a model whose tokens follow the order.

    Args:
        source: A random model in float32 with a head of its own.
        target: The file to write.
        noise: The factor of what the layers add.
        keys: To replace.
        other: Of further noise in the weights of what they add.
    """
    file = _core.GgufFile(str(source))
    shapes = {t.name: t.shape for t in file.tensors}
    rows, hidden = shapes["token_embd.weight"]
    random = np.random.default_rng(2)
    table = random.normal(0, 1, (rows, hidden)).astype(np.float32)
    head = np.empty_like(table)
    head[order(rows)] = table
    tensors = {"token_embd.weight": table, "output.weight": head}
    for name in shapes:
        if name.split(".")[-2] in _BRANCHES:
            values = read(source, name)
            further = other * values.std() * random.normal(0, 1, values.shape)
            tensors[name] = (noise * (values + further)).astype(np.float32)
        if name.endswith("nextn.enorm.weight"):
            tensors[name] = np.ones(hidden, np.float32)
        if name.endswith("nextn.shared_head_norm.weight"):
            tensors[name] = read(source, "output_norm.weight")
        if name.endswith("nextn.eh_proj.weight"):
            of_states = 0.3 * random.normal(0, hidden**-0.5, (hidden, hidden))
            tensors[name] = np.concatenate([np.eye(hidden), of_states], 1).astype(np.float32)
    without = tuple(k for k in tokenizer_keys(source) if keys and k not in keys)
    given = {name: (0, values) for name, values in tensors.items()}
    gguf_copy.copy(source, target, keys=keys, tensors=given, without=without)


def write_dspark(
    target: Path, out: Path, taps: tuple[int, ...], tokens: dict[str, tuple[Any, str]]
) -> None:
    """Write a DSpark drafter whose bias by the token before favours the one that follows."""
    rows, hidden = _core.GgufFile(str(target)).tensor("token_embd.weight").shape
    block_drafters.RANK = _RANK
    drafter = block_drafters.Drafter("dspark", hidden, rows, target_layers=taps, block=5)
    part = out.with_name(out.name + ".part")
    drafter.write(part, vocab_size=(rows, "u32"))
    before = (0.6 * np.random.default_rng(3).normal(0, 1, (rows, _RANK))).astype(np.float32)
    after = np.empty_like(before)
    after[order(rows)] = before
    tensors = {"markov_w1.weight": (0, before), "markov_w2.weight": (0, after)}
    gguf_copy.copy(part, out, keys=tokens, tensors=tensors)
    part.unlink()


def write_dflash2(
    target: Path, out: Path, taps: tuple[int, ...], tokens: dict[str, tuple[Any, str]]
) -> None:
    """Write a DFlash 2 drafter whose selector favours what follows the token before.

    All rows that propose are of the mask, so its embedding is a direction that their states share.
    """
    rows, hidden = _core.GgufFile(str(target)).tensor("token_embd.weight").shape
    # llama.cpp keeps the scores of all pairs of candidates in a row.
    most = max(k for k in range(1, hidden) if k * (k + 1) <= hidden)
    block_drafters.RANK, block_drafters.TOP_K = _RANK, most
    drafter = block_drafters.Drafter("dflash2", hidden, rows, target_layers=taps, block=5)
    part = out.with_name(out.name + ".part")
    drafter.write(part)
    before = np.random.default_rng(3).normal(0, 1, (rows, _RANK)).astype(np.float32)
    after = np.empty_like(before)
    after[order(rows)] = before
    mask = read(target, "token_embd.weight")[drafter.mask]
    tensors = {
        "selector_predecessor.weight": before,
        "selector_successor.weight": after,
        "selector_hidden.weight": np.tile(mask / np.linalg.norm(mask), (_RANK, 1)),
    }
    for name in drafter.tensors:
        if name.split(".")[-2] in ("attn_output", "ffn_down"):
            tensors[name] = 0.3 * drafter.tensors[name]
    given = {name: (0, v.astype(np.float32)) for name, v in tensors.items()}
    gguf_copy.copy(part, out, keys=tokens, tensors=given)
    part.unlink()


def write_eagle(target: Path, out: Path, tokens: dict[str, tuple[Any, str]]) -> None:
    """Write an EAGLE-3 drafter whose attention reads the embedding of its own position."""
    rows, hidden = _core.GgufFile(str(target)).tensor("token_embd.weight").shape
    drafter = eagle_drafters.Drafter(hidden, hidden, rows, target_layers=(0, 1, 2)).draw()
    random = np.random.default_rng(3)
    keys = np.zeros((_RANK, 2 * hidden), np.float32)
    keys[:, :hidden] = 3 * random.normal(0, hidden**-0.5, (_RANK, hidden))
    values = np.zeros((_RANK, 2 * hidden), np.float32)
    values[:, :hidden] = np.linalg.qr(random.normal(0, 1, (hidden, _RANK)))[0].T
    halves = np.split(
        np.arange(_RANK), 2
    )  # a head of keys and values; two heads of queries share it
    heads = np.concatenate([halves[0], halves[0], halves[1], halves[1]])
    own = {
        "attn_k": keys, "attn_q": keys[heads], "attn_v": values,
        "attn_output": values[heads, :hidden].T.copy(),
    }  # fmt: skip
    drafter.tensors |= {f"blk.0.{name}.weight": v for name, v in own.items()}
    for name in ("fc.weight", "blk.0.ffn_down.weight"):
        drafter.tensors[name] = drafter.tensors[name] * np.float32(0.05)
    drafter.tensors["output.weight"] = read(target, "output.weight")
    drafter.write(out, **tokens)


if __name__ == "__main__":
    main(*sys.argv[1:])
