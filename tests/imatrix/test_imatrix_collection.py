"""Sums of squared inputs: those of a forward pass in float64, of llama.cpp, of any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import oxibonsai
import tiny_model as tiny
from forked import run_oxibonsai
from oxibonsai import FormatError, RequestError, _core
from oxibonsai.evaluate import cut_windows, text_tokens
from oxibonsai.imatrix import Imatrix, collect

Matrix = npt.NDArray[np.float64]
IDS: list[list[int]] = np.random.default_rng(4).integers(0, 256, (3, 70)).tolist()
F32 = 0


def float_model(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The tiny model with float matrices; returns all its tensors."""
    random = np.random.default_rng(11)
    tiny.write(path)
    file = _core.GgufFile(str(path))
    values = {
        t.name: _core.decode(t.quant_type, file.tensor_bytes(t.name)).reshape(t.shape)
        for t in file.tensors
    }
    for name, held in values.items():
        if held.ndim == 2:
            values[name] = (random.standard_normal(held.shape) * 0.1).astype(np.float32)
    tiny.write(path, tensors={n: (v.shape, F32, v.tobytes()) for n, v in values.items()})
    return values


def norm(x: Matrix, weight: Matrix) -> Matrix:
    scaled: Matrix = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * weight
    return scaled


def rotated(x: Matrix) -> Matrix:
    """Rope of [n, heads, dim], halves of a head paired."""
    half = tiny.HEAD_DIM // 2
    angle = np.arange(len(x))[:, None] * 1e6 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(q: Matrix, k: Matrix, v: Matrix) -> Matrix:
    repeats = tiny.HEADS // tiny.KV_HEADS
    k, v = (np.repeat(m, repeats, axis=1) for m in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(tiny.HEAD_DIM)
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v).reshape(len(q), -1)


def inputs_of(tensors: dict[str, Any], ids: list[int]) -> dict[str, Matrix]:
    """What each linear layer reads, [n, cols], in float64."""
    w = {name: values.astype(np.float64) for name, values in tensors.items()}
    found: dict[str, Matrix] = {}

    def linear(x: Matrix, name: str) -> Matrix:
        found[name] = x
        return x @ w[name].T

    h = w["token_embd.weight"][ids]
    for i in range(tiny.LAYERS):
        b = f"blk.{i}."
        x = norm(h, w[f"{b}attn_norm.weight"])
        q, k, v = (
            linear(x, f"{b}attn_{p}.weight").reshape(len(ids), -1, tiny.HEAD_DIM) for p in "qkv"
        )
        q, k = (rotated(norm(m, w[f"{b}attn_{p}_norm.weight"])) for m, p in ((q, "q"), (k, "k")))
        h = h + linear(attention(q, k, v), f"{b}attn_output.weight")
        x = norm(h, w[f"{b}ffn_norm.weight"])
        gate, up = linear(x, f"{b}ffn_gate.weight"), linear(x, f"{b}ffn_up.weight")
        h = h + linear(gate / (1 + np.exp(-gate)) * up, f"{b}ffn_down.weight")
    found["token_embd.weight"] = norm(h, w["output_norm.weight"])
    return found


def last(engine: oxibonsai.Engine, windows: list[list[int]] = IDS, **options: Any) -> Imatrix:
    return list(collect(engine, windows, **options))[-1]


@pytest.mark.parametrize("head", [False, True])
def test_the_sums_are_those_of_a_forward_pass_in_float64(head: bool, tmp_path: Path) -> None:
    tensors = float_model(tmp_path / "m.gguf")
    engine = oxibonsai.load(tmp_path / "m.gguf", kv_type="f32")
    found = last(engine, datasets=["t"], process_output=head)
    assert (found.datasets, found.chunk_count, found.chunk_size) == (("t",), 3, 70)
    passes = [inputs_of(tensors, ids) for ids in IDS]
    names = {n for n, t in tensors.items() if t.ndim == 2 and (head or n.startswith("blk."))}
    assert found.entries.keys() == names
    for name, entry in found.entries.items():
        truth = sum((p[name] ** 2).sum(axis=0) for p in passes)
        assert entry.counts.tolist() == [210]
        assert np.abs(entry.squares[0] - truth).max() <= 2e-5 * truth.max(), name
        assert np.abs(entry.squares[0] / truth - 1).max() <= 1e-3, name


def test_weights_that_read_the_same_have_the_same_sums(tiny_path: Path) -> None:
    found = last(oxibonsai.load(tiny_path)).entries
    for group in (("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up")):
        sums = [found[f"blk.1.{part}.weight"].squares for part in group]
        assert all(np.array_equal(s, sums[0]) for s in sums)
    assert not np.array_equal(found["blk.1.attn_q.weight"].squares, sums[0])


def test_each_window_adds_to_the_sums(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path)
    grown = list(collect(engine, IDS))
    assert [g.chunk_count for g in grown] == [1, 2, 3]
    for count, found in enumerate(grown, 1):
        alone = last(engine, IDS[:count])
        for name, entry in alone.entries.items():
            assert np.array_equal(found.entries[name].squares, entry.squares)
            assert found.entries[name].counts == [70 * count]


def test_the_steps_do_not_show(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = oxibonsai.load(tiny_path)
    whole = last(engine, process_output=True)
    for rows in (1, 13, 64):
        monkeypatch.setattr("oxibonsai.engine.windows._STEP_ROWS", rows)
        cut = last(engine, process_output=True)
        for name, entry in whole.entries.items():
            assert np.array_equal(cut.entries[name].squares, entry.squares), (rows, name)


def test_wrong_windows_are_refused(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, ctx_size=80)
    for windows in ([], [[1, 2], [1]], [[]], [[10**6]], [[1] * 81]):
        with pytest.raises(RequestError):
            last(engine, windows)


def test_inputs_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    tensors = float_model(tmp_path / "m.gguf")
    shape, name = (tiny.FF, tiny.HIDDEN), "blk.0.ffn_gate.weight"
    huge = np.full(shape, 3e38, np.float32)
    floats = {n: (v.shape, F32, v.tobytes()) for n, v in tensors.items()}
    tiny.write(tmp_path / "m.gguf", tensors=floats | {name: (shape, F32, huge.tobytes())})
    with pytest.raises(FormatError, match=r"inputs of blk\.0\.ffn_down\.weight"):
        last(oxibonsai.load(tmp_path / "m.gguf", parity="off"))


TEXT = Path(__file__).resolve().parents[2] / "LICENSE"


def test_every_tier_and_thread_count_writes_the_same_file(tiny_path: Path, tmp_path: Path) -> None:
    options = ["-f", TEXT, "-c", "96", "--chunks", "2", "-o"]
    runs = [(tier, "1") for tier in _core.cpu.tiers()] + [(_core.cpu.tiers()[-1], "3")]
    files = set()
    for i, (tier, threads) in enumerate(runs):
        out = tmp_path / f"{i}.gguf"
        done = run_oxibonsai("imatrix", tiny_path, *options, out, "-t", threads, OXIBONSAI_ISA=tier)
        assert done.returncode == 0, done.stderr
        files.add(out.read_bytes())
    assert len(files) == 1


# What llama_cpp_imatrix.py finds with llama-cpp-python 0.3.36 for the first window of 512 tokens of
# LICENSE: the sum over all columns, and the columns with the largest sums.
LLAMA_CPP: dict[str, tuple[float, list[int]]] = {
    "blk.0.attn_q.weight": (707.52, [471, 481, 387]),
    "blk.0.ffn_down.weight": (23088.4, [173, 97, 1020]),
    "blk.14.attn_output.weight": (19211.9, [214, 342, 278]),
    "blk.14.ffn_down.weight": (25284.6, [1273, 148, 75]),
    "blk.29.attn_k.weight": (43457.6, [17, 322, 243]),
    "blk.29.ffn_up.weight": (48605.9, [17, 507, 322]),
    "blk.29.ffn_down.weight": (8.69662e06, [1267, 1512, 545]),
}


@pytest.mark.slow
def test_the_sums_are_llama_cpps(smollm2_path: Path) -> None:
    engine = oxibonsai.load(smollm2_path, ctx_size=512, kv_type="f32")
    tokens = text_tokens(engine.tokenizer, TEXT.read_bytes().decode())
    windows = cut_windows(tokens, 512, None, chunks=1)
    found = last(engine, [list(w.inputs) for w in windows])
    assert len(found.entries) == 210
    for name, (total, largest) in LLAMA_CPP.items():
        squares = found.entries[name].squares[0].astype(np.float64)
        assert squares.sum() == pytest.approx(total, rel=0.01), name
        assert np.argsort(-squares)[: len(largest)].tolist() == largest, name
