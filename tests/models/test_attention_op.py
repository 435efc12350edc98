"""Attention alone, in a graph of its own, against a softmax in float64."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import tiny_model
from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder, KeyPattern

HEAD_DIM, SCALE = 64, 0.125
HEADS = tiny_model.HIDDEN // HEAD_DIM
Rows = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def embedding(tiny_path: Path) -> _core.Weight:
    return _core.Weight(_core.GgufFile(str(tiny_path)), "token_embd.weight")


LAYERS = [_core.PagedLayer(HEADS, HEAD_DIM, HEAD_DIM)]


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
    ("kv_type", "tolerance"),
    [("f32", 1e-5), ("f16", 1e-3), ("q8_0", 1e-2), ("q4_0", 0.15), ("fp8_e4m3", 0.05)],
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


class Projected:
    """Queries, keys and values that are inputs of the graph, each of any width."""

    def __init__(
        self,
        layer: _core.PagedLayer,
        heads: int,
        *,
        window: int = 0,
        sinks: Rows | None = None,
        pattern: KeyPattern | None = None,
    ) -> None:
        self.layer, self.heads, self.window, self.sinks = layer, heads, window, sinks
        self.pattern = pattern
        g = Builder()
        q = g.input("q", heads * layer.key_dim)
        k = g.input("k", layer.kv_heads * layer.key_dim)
        v = None if layer.value_in_key else g.input("v", layer.kv_heads * layer.value_dim)
        out = g.attention(
            q,
            k,
            v,
            layer=0,
            head_dim=layer.key_dim,
            value_dim=layer.value_dim,
            scale=layer.key_dim**-0.5,
            window=window,
            sinks=sinks,
            pattern=pattern,
        )
        g.output("out", g.select_outputs(out))
        self.graph = g.graph
        random = np.random.default_rng(layer.key_dim)
        widths = {"q": q.cols, "k": k.cols} | ({} if v is None else {"v": v.cols})
        self.inputs = {
            name: random.standard_normal((700, cols), dtype=np.float32)
            for name, cols in widths.items()
        }

    def run(self, tier: str, threads: int, kv_type: str, chunks: list[int]) -> Rows:
        """All rows, in steps that end at ``chunks``."""
        executable = _core.CpuDevice(threads, tier).compile(self.graph)
        pages = _core.KvPages([self.layer], kv_type, 11)
        rows, first = [], 0
        for last in chunks:
            batch = _core.Batch()
            batch.add_span(last - first, first=first, pages=list(range(11)), outputs=last - first)
            for name, values in self.inputs.items():
                batch.set_input(name, np.ascontiguousarray(values[first:last]))
            rows.append(executable.run(batch, [pages])["out"])
            first = last
        return np.concatenate(rows)

    def expected(self, n: int) -> npt.NDArray[np.float64]:
        layer, group = self.layer, self.heads // self.layer.kv_heads
        q, k = (
            self.inputs[name][:n].astype(np.float64).reshape(n, -1, layer.key_dim) for name in "qk"
        )
        if layer.value_in_key:
            v = k[:, :, : layer.value_dim]
        else:
            v = self.inputs["v"][:n].astype(np.float64).reshape(n, -1, layer.value_dim)
        scores = np.einsum("qhd,khd->hqk", q, k.repeat(group, axis=1))
        scores *= layer.key_dim**-0.5
        for head in range(self.heads):
            scores[head, ~self.seen(n, head)] = -np.inf
        if self.sinks is not None:
            column = np.broadcast_to(self.sinks[:, None, None], (self.heads, n, 1))
            scores = np.concatenate([scores, column], axis=2)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights[:, :, :n], v.repeat(group, axis=1)).reshape(n, -1)

    def seen(self, n: int, head: int) -> npt.NDArray[np.bool_]:
        """Which keys each query of a head sees, by the words of the papers: [queries, keys]."""
        q, k = np.arange(n)[:, None], np.arange(n)[None, :]
        causal, window, p = k <= q, self.window or n, self.pattern
        if p is None:
            return causal & (q - k < window)
        if p.block_size:  # Phi-3-small's: some blocks before the query's, and strides of each head
            blocks = q // p.block_size - k // p.block_size
            strided = (k // p.block_size + 1 + head * p.head_step) % p.block_stride == 0
            return causal & ((blocks < window // p.block_size) | strided | (k < p.global_tokens))
        # Longformer's: gaps of dilation - 1 between the keys of a window, and the first tokens.
        dilated = np.isin(q - k, np.arange(0, window, p.dilation))
        return causal & (dilated | (k < p.global_tokens))


PATTERNS = [
    Projected(_core.PagedLayer(2, 32, 32), 4, window=90, pattern=pattern)
    for pattern in (
        KeyPattern(dilation=3),
        KeyPattern(global_tokens=5),
        KeyPattern(dilation=7, global_tokens=70),
        KeyPattern(block_size=30, block_stride=4, head_step=1),
        KeyPattern(block_size=45, block_stride=3, global_tokens=2),
    )
]
SHAPES = [
    *PATTERNS,
    Projected(_core.PagedLayer(2, 48, 32), 4),
    Projected(_core.PagedLayer(1, 16, 80), 3),
    Projected(_core.PagedLayer(1, 576, 512, value_in_key=True), 4),
    Projected(_core.PagedLayer(2, 40, 24, value_in_key=True), 4, window=90),
    Projected(
        _core.PagedLayer(2, 32, 32), 4, window=40, sinks=np.array([3, -1, 0.5, 60], np.float32)
    ),
]


def _shape_name(p: Projected) -> str:
    if (s := p.pattern) is not None:
        return "-".join(f"{name}{n}" for name, n in asdict(s).items() if n > 1)
    kind = "in-key" if p.layer.value_in_key else "sinks" if p.sinks is not None else "values"
    return f"{p.layer.key_dim}-{p.layer.value_dim}-{kind}"


@pytest.mark.parametrize("projected", SHAPES, ids=_shape_name)
@pytest.mark.parametrize(
    ("kv_type", "tolerance"),
    [("f32", 1e-5), ("f16", 2e-3), ("q8_0", 2e-2), ("q4_0", 0.3), ("fp8_e4m3", 0.1)],
)
def test_values_of_any_width_and_sinks_are_what_their_formulas_say(
    projected: Projected, kv_type: str, tolerance: float
) -> None:
    got = projected.run(_core.cpu.tiers()[0], 2, kv_type, [130])
    want = projected.expected(130)
    assert np.abs(got - want).max() < tolerance * np.abs(want).max()


@pytest.mark.parametrize("projected", SHAPES, ids=_shape_name)
@pytest.mark.parametrize("kv_type", _core.KV_TYPES)
def test_values_of_any_width_have_the_same_bytes_in_every_tier_and_cut(
    projected: Projected, kv_type: str
) -> None:
    truth = projected.run("scalar", 1, kv_type, [67, 130])
    for tier in _core.cpu.tiers():
        for threads, chunks in ((1, [130]), (3, [1, 64, 65, 130]), (2, [7, 128, 130])):
            assert projected.run(tier, threads, kv_type, chunks).tobytes() == truth.tobytes()


@pytest.mark.parametrize("projected", SHAPES, ids=_shape_name)
def test_a_long_context_is_cut_among_threads_into_the_same_bytes(projected: Projected) -> None:
    alone = projected.run(_core.cpu.tiers()[0], 1, "f16", [699, 700])
    assert projected.run(_core.cpu.tiers()[0], 3, "f16", [699, 700]).tobytes() == alone.tobytes()


@pytest.mark.parametrize("projected", PATTERNS, ids=_shape_name)
def test_a_pattern_holds_over_many_parts_of_a_context(projected: Projected) -> None:
    want = projected.expected(700)
    got = projected.run(_core.cpu.tiers()[0], 2, "f32", [3, 650, 699, 700])
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def _fp8(x: Rows) -> Rows:
    """What torch keeps of numbers within the range of E4M3."""
    torch = pytest.importorskip("torch")
    bounded = torch.from_numpy(x).clamp(-448.0, 448.0)
    kept: Rows = bounded.to(torch.float8_e4m3fn).float().numpy()
    return kept


def test_fp8_rounds_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    # A query that sees its own position alone has its value as the result.
    projected = Projected(_core.PagedLayer(1, 16, 64), 1, window=1)
    codes = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    ties = (codes[1:] + codes[:-1]) / 2
    numbers = np.concatenate([codes, ties, np.nextafter(ties, 0), np.nextafter(ties, 1e9)])
    numbers = np.concatenate([numbers, [463.9, 464, 1e9, np.inf, 1e-30], -numbers, [np.nan]])
    values = projected.inputs["v"].reshape(-1)
    values *= 10.0 ** np.random.default_rng(3).integers(-4, 4, len(values))
    values[: len(numbers)] = numbers
    want = _fp8(projected.inputs["v"])
    for tier in _core.cpu.tiers():
        got = projected.run(tier, 2, "fp8_e4m3", [700])
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("projected", SHAPES, ids=_shape_name)
def test_fp8_is_a_cache_of_rounded_numbers(projected: Projected) -> None:
    got = projected.run("scalar", 2, "fp8_e4m3", [130])
    rounded = copy.copy(projected)
    rounded.inputs = {n: x if n == "q" else _fp8(x) for n, x in projected.inputs.items()}
    assert got.tobytes() == rounded.run("scalar", 2, "f32", [130]).tobytes()


def test_a_value_in_its_key_is_not_stored_besides() -> None:
    layer = _core.PagedLayer(1, 576, 512, value_in_key=True)
    assert _core.kv_page_bytes([layer], "f16") == 576 * 2 * _core.PAGE_POSITIONS
    assert _core.kv_page_bytes([layer], "q8_0") == 576 * 8.5 / 8 * _core.PAGE_POSITIONS


def test_shapes_that_make_no_sense_are_refused() -> None:
    wide = _core.PagedLayer(1, 32, 33, value_in_key=True)
    for call in (
        lambda: _core.KvPages([wide], "f16", 1),
        lambda: _core.Graph().add_paged_layer(wide),
    ):
        with pytest.raises(RequestError, match="cannot have more dims than the key"):
            call()
    g = _core.Graph()
    latent = g.add_paged_layer(_core.PagedLayer(1, 32, 16, value_in_key=True))
    plain = g.add_paged_layer(_core.PagedLayer(1, 32, 16))
    k, v = g.input("k", 32), g.input("v", 16)
    with pytest.raises(RequestError, match="take values from keys, so there is no v"):
        g.store_kv(k, v, latent)
    with pytest.raises(RequestError, match="the pages need a v"):
        g.store_kv(k, None, plain)
    with pytest.raises(RequestError, match="vector"):
        g.attend(k, plain, 1, 1.0, sinks=np.zeros(2, np.float32))
    for wrong, problem in (
        ({"dilation": 0}, "a dilation is not above 0"),
        ({"global_tokens": 2}, "a pattern of keys is that of a window"),
        ({"window": 8, "block_size": 4}, "blocks need a stride"),
        ({"window": 8, "head_step": 1}, "but there are none"),
        ({"window": 6, "block_size": 4, "block_stride": 2}, "ends inside of one"),
    ):
        with pytest.raises(RequestError, match=problem):
            g.attend(k, plain, 1, 1.0, **wrong)
