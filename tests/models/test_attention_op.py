"""The attention operation alone, in a program of its own, against a softmax in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import tiny_model
from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.models.builder import Builder

HEAD_DIM, SCALE = 64, 0.125
HEADS = tiny_model.HIDDEN // HEAD_DIM
Rows = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def embedding(tiny_path: Path) -> _core.Weight:
    return _core.Weight(_core.GgufFile(str(tiny_path)), "token_embd.weight")


def attention_program(embedding: _core.Weight, *, causal: bool, window: int = 0) -> _core.Program:
    """Embeds the tokens and lets them attend to each other: q, k and v are the embedding."""
    builder = Builder()
    h = builder.embed(embedding)
    out = builder.attention(
        h, h, h, layer=0, head_dim=HEAD_DIM, scale=SCALE, causal=causal, window=window
    )
    builder.select_outputs(out)
    return builder.finish().program(_core.ThreadPool(2))


def embedded(embedding: _core.Weight, tokens: list[int]) -> Rows:
    builder = Builder()
    builder.select_outputs(builder.embed(embedding))
    batch = _core.Batch(
        tokens, list(range(len(tokens))), [0] * len(tokens), [[0, 1, 2]], [*range(len(tokens))]
    )
    program = builder.finish().program(_core.ThreadPool(1))
    return program.run(batch, [_core.KvPages(1, HEADS, HEAD_DIM, "f32", 3)])


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
    program = attention_program(embedding, causal=causal)
    texts = [[int(t) for t in np.random.default_rng(n).integers(0, 300, n)] for n in (5, 130, 1)]
    batch = _core.Batch(
        [t for text in texts for t in text],
        [i for text in texts for i in range(len(text))],
        [s for s, text in enumerate(texts) for _ in text],
        [[0], [1, 2, 3], [4]],
        list(range(sum(map(len, texts)))),
    )
    got = program.run(batch, [_core.KvPages(1, HEADS, HEAD_DIM, "f32", 5)])
    want = np.concatenate([expected(embedded(embedding, t), causal=causal) for t in texts])
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    ("kv_type", "tolerance"), [("f32", 1e-5), ("f16", 1e-3), ("q8_0", 1e-2), ("q4_0", 0.15)]
)
def test_every_kv_type_is_as_near_as_its_bits_allow(
    embedding: _core.Weight, kv_type: str, tolerance: float
) -> None:
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 300, 100)]
    batch = _core.Batch(tokens, [*range(100)], [0] * 100, [[0, 1]], [*range(100)])
    program = attention_program(embedding, causal=True)
    got = program.run(batch, [_core.KvPages(1, HEADS, HEAD_DIM, kv_type, 2)])
    want = expected(embedded(embedding, tokens), causal=True)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert error < tolerance


def test_a_window_without_causal_attention_is_refused(embedding: _core.Weight) -> None:
    with pytest.raises(RequestError, match="window"):
        attention_program(embedding, causal=False, window=8)
