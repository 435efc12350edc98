"""Attention alone, in a graph of its own, against a softmax in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import tiny_model
from oxibonsai import _core
from oxibonsai.graph import Builder

HEAD_DIM, SCALE = 64, 0.125
HEADS = tiny_model.HIDDEN // HEAD_DIM
Rows = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def embedding(tiny_path: Path) -> _core.Weight:
    return _core.Weight(_core.GgufFile(str(tiny_path)), "token_embd.weight")


LAYERS = [(HEADS, HEAD_DIM, HEAD_DIM)]


def attention(embedding: _core.Weight, *, causal: bool) -> _core.Executable:
    """Embeds the tokens and lets them attend to each other: q, k and v are the embedding."""
    builder = Builder()
    h = builder.embed(embedding)
    if causal:
        out = builder.attention(h, h, h, layer=0, head_dim=HEAD_DIM, scale=SCALE)
    else:
        out = builder.attend_local(h, h, h, head_dim=HEAD_DIM, scale=SCALE)
    builder.output("out", builder.select_outputs(out))
    return _core.CpuDevice(2).compile(builder.graph)


def embedded(embedding: _core.Weight, tokens: list[int]) -> Rows:
    builder = Builder()
    builder.output("out", builder.select_outputs(builder.embed(embedding)))
    batch = _core.Batch()
    batch.add(tokens, outputs=len(tokens))
    return _core.CpuDevice(1).compile(builder.graph).run(batch)["out"]


def expected(x: Rows, *, causal: bool) -> npt.NDArray[np.float64]:
    heads = x.astype(np.float64).reshape(len(x), HEADS, HEAD_DIM)
    scores = np.einsum("qhd,khd->hqk", heads, heads) * SCALE
    if causal:
        scores[:, ~np.tri(len(x), dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, heads).reshape(x.shape)


@pytest.mark.parametrize("causal", [True, False])
def test_each_row_sees_what_its_mask_says(embedding: _core.Weight, causal: bool) -> None:
    executable = attention(embedding, causal=causal)
    texts = [[int(t) for t in np.random.default_rng(n).integers(0, 300, n)] for n in (5, 130, 1)]
    batch = _core.Batch()
    for text, pages in zip(texts, ([0], [1, 2, 3], [4]), strict=True):
        batch.add(text, pages=pages, outputs=len(text))
    got = executable.run(batch, [_core.KvPages(LAYERS, "f32", 5)] if causal else [])["out"]
    want = np.concatenate([expected(embedded(embedding, t), causal=causal) for t in texts])
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    ("kv_type", "tolerance"), [("f32", 1e-5), ("f16", 1e-3), ("q8_0", 1e-2), ("q4_0", 0.15)]
)
def test_every_kv_type_is_as_near_as_its_bits_allow(
    embedding: _core.Weight, kv_type: str, tolerance: float
) -> None:
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 300, 100)]
    batch = _core.Batch()
    batch.add(tokens, pages=[0, 1], outputs=100)
    pages = _core.KvPages(LAYERS, kv_type, 2)
    got = attention(embedding, causal=True).run(batch, [pages])["out"]
    want = expected(embedded(embedding, tokens), causal=True)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert error < tolerance
