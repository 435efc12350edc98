"""What a batch says of its rows: positions on several axes, segments, blocks, rows of an input."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import Qwen2VLTextConfig, Qwen3VLTextConfig
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph import AxialRope, Builder, RopeConfig, Rotation, section_axes

Rows = npt.NDArray[np.float32]
DIM, HEADS, ROWS = 32, 3, 70
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((ROWS, HEADS * DIM), dtype=np.float32)
POSITIONS = RANDOM.integers(0, 900, (ROWS, 4)).astype(np.int32)


def devices() -> list[_core.CpuDevice]:
    cpus = [_core.CpuDevice(t, tier) for tier in _core.cpu.tiers() for t in (1, 3)]
    return cpus


def runs(builder: Builder, batch: _core.Batch, *pages: str) -> Rows:
    """The output ``y``, the same on every tier, with several threads."""
    results = []
    for device in devices():
        pools = [device.make_pages(builder.graph.paged_layers, t, 16) for t in pages]
        results.append(device.compile(builder.graph).run(batch, pools)["y"])
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()
    return results[0]


def rotated(rope: Rotation, positions: npt.NDArray[np.int32] | None) -> Rows:
    b = Builder()
    b.output("y", b.rope(b.input("x", X.shape[1]), rope, DIM))
    batch = _core.Batch()
    batch.add_span(ROWS)
    batch.set_input("x", X)
    if positions is not None:
        batch.set_positions(positions)
    return runs(b, batch)


def expected(rope: Rotation, positions: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """In float64: each pair turned by the position on its axis."""
    f = np.array(rope.frequencies())
    angles = positions[:, list(rope.axes)] * f
    x = X.reshape(ROWS, HEADS, DIM).astype(np.float64)
    pairs = len(f)
    first = np.arange(0, 2 * pairs, 2) if rope.interleaved else np.arange(pairs)
    second = first + 1 if rope.interleaved else first + pairs
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    y = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y.reshape(X.shape)


ROPES = [
    AxialRope((16, 16), 10000.0),
    AxialRope((8, 8, 8, 8), 2000.0, interleaved=True),
    RopeConfig(DIM, theta=1e6, axes=section_axes((6, 5, 5), 16, interleaved=False)),
    RopeConfig(24, theta=1e6, axes=section_axes((4, 4, 4), 12, interleaved=True)),
]


@pytest.mark.parametrize("rope", ROPES)
def test_each_pair_reads_the_position_on_its_axis(rope: Rotation) -> None:
    np.testing.assert_allclose(rotated(rope, POSITIONS), expected(rope, POSITIONS), atol=3e-4)


@pytest.mark.parametrize("rope", ROPES)
def test_without_positions_all_axes_have_the_one_in_the_sequence(rope: Rotation) -> None:
    own = np.tile(np.arange(ROWS, dtype=np.int32)[:, None], 4)
    assert rotated(rope, None).tobytes() == rotated(rope, own).tobytes()


def test_a_text_has_the_bytes_of_plain_rope() -> None:
    plain = RopeConfig(DIM, theta=1e6)
    sections = RopeConfig(DIM, theta=1e6, axes=section_axes((6, 5, 5), 16, interleaved=True))
    assert rotated(plain, None).tobytes() == rotated(sections, None).tobytes()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("sections", [(8, 4, 4), (6, 5, 5), (11, 11, 10)])
def test_sections_are_those_of_transformers(
    sections: tuple[int, int, int], interleaved: bool
) -> None:
    pairs = sum(sections)
    parameters = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections)}
    dims = {"head_dim": 2 * pairs, "hidden_size": 4 * pairs, "num_attention_heads": 2}
    if interleaved:
        config = Qwen3VLTextConfig(rope_parameters=parameters, **dims)
        rotary = modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding(config)
    else:
        config = Qwen2VLTextConfig(rope_parameters=parameters, **dims)
        rotary = modeling_qwen2_vl.Qwen2VLRotaryEmbedding(config)
    axis_of_pair = torch.arange(3.0)[:, None, None, None].expand(3, 1, 1, pairs).clone()
    mixed = rotary.recomposition_frequencies(axis_of_pair).flatten().tolist()
    assert mixed == 2 * list(section_axes(sections, pairs, interleaved=interleaved))


def test_positions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RequestError, match="4 axes, the batch has 3"):
        rotated(ROPES[1], POSITIONS[:, :3])
    with pytest.raises(RequestError, match="needs positions for each"):
        rotated(ROPES[1], POSITIONS[:-1])
    with pytest.raises(RequestError, match="no positions of several axes"):
        rotated(RopeConfig(DIM, theta=1e4), POSITIONS)
    with pytest.raises(RequestError, match="negative"):
        rotated(ROPES[1], -1 - POSITIONS)


def softmax_attention(
    seen: npt.NDArray[np.bool_], slopes: Rows | None = None
) -> npt.NDArray[np.float64]:
    heads = X.astype(np.float64).reshape(ROWS, HEADS, DIM)
    scores = np.einsum("qhd,khd->hqk", heads, heads) * 0.2
    if slopes is not None:
        distance = np.abs(np.arange(ROWS) - np.arange(ROWS)[:, None])
        scores -= slopes[:, None, None] * distance
    scores[:, ~seen] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, heads).reshape(X.shape)


def local(counts: list[int] | None, spans: list[int]) -> Rows:
    b = Builder()
    x = b.input("x", X.shape[1])
    b.output("y", b.attend_local(x, x, x, head_dim=DIM, scale=0.2, segments="windows"))
    batch = _core.Batch()
    for count in spans:
        batch.add_span(count)
    batch.set_input("x", X)
    if counts is not None:
        batch.set_segments("windows", counts)
    return runs(b, batch)


def test_rows_of_a_segment_see_each_other_and_no_others() -> None:
    counts = [3, 1, 40, 26]
    of_row = np.repeat(np.arange(4), counts)
    want = softmax_attention(of_row[:, None] == of_row)
    got = local(counts, [4, 66])
    np.testing.assert_allclose(got, want, atol=1e-5)
    assert got.tobytes() == local(counts, [ROWS]).tobytes()


@pytest.mark.parametrize("counts", [None, [70, 1], [69], [5, 65], [4, 0, 66], []])
def test_segments_that_do_not_divide_the_spans_are_refused(counts: list[int] | None) -> None:
    with pytest.raises(RequestError, match="segments windows"):
        local(counts, [4, 66])


@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("slopes", [None, np.array([0.5, 0.25, 0.125], np.float32)])
def test_rows_of_a_block_see_each_other(window: int, slopes: Rows | None) -> None:
    """Causal but for the block that a row lies in, and back as far as the window."""
    blocks = [(5, 20), (20, 31), (66, 70)]
    at = np.arange(ROWS)
    seen = at <= at[:, None]
    for first, end in blocks:
        seen[first:end, first:end] = True
    if window:
        seen &= at > at[:, None] - window
    b = Builder()
    x = b.input("x", X.shape[1])
    y = b.attention(x, x, x, layer=0, head_dim=DIM, scale=0.2, window=window, slopes=slopes)
    b.output("y", y)
    whole = block_rows(b, [(0, ROWS)], blocks)
    np.testing.assert_allclose(whole, softmax_attention(seen, slopes), atol=2e-5)
    assert block_rows(b, [(0, 31), (31, 70)], blocks).tobytes() == whole.tobytes()
    # Rows of a block whose first rows are cached.
    assert block_rows(b, [(0, 20), (20, 70)], blocks).tobytes() == whole.tobytes()


def block_rows(b: Builder, chunks: list[tuple[int, int]], blocks: list[tuple[int, int]]) -> Rows:
    """All rows, chunk after chunk, on every device."""
    results = []
    for device in devices():
        executable = device.compile(b.graph)
        pools = [device.make_pages(b.graph.paged_layers, "f32", 2)]
        rows = []
        for first, end in chunks:
            batch = _core.Batch()
            inside = [block for block in blocks if block[1] <= end]
            batch.add_span(end - first, first=first, pages=[1, 0], blocks=inside)
            batch.set_input("x", X[first:end])
            rows.append(executable.run(batch, pools)["y"])
        results.append(np.concatenate(rows))
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()
    return results[0]


def test_a_block_that_does_not_end_in_its_span_is_refused() -> None:
    b = Builder()
    x = b.input("x", X.shape[1])
    b.output("y", b.attention(x, x, x, layer=0, head_dim=DIM, scale=0.2))
    for blocks in ([(60, 71)], [(5, 5)], [(5, 9), (8, 12)]):
        batch = _core.Batch()
        batch.add_span(ROWS, pages=[0, 1], blocks=blocks)
        batch.set_input("x", X)
        with pytest.raises(RequestError, match="rows that see each other"):
            runs(b, batch, "f32")


@pytest.mark.parametrize("added", [False, True])
def test_rows_of_an_input_take_the_place_of_tokens(added: bool) -> None:
    table = RANDOM.standard_normal((11, 8), dtype=np.float32)
    weight = _core.Weight.from_blocks("table", "F32", table.view(np.uint8), 8)
    rows = RANDOM.standard_normal((5, 20), dtype=np.float32)
    tokens = [3, -1, -5, 10, -3]
    b = Builder()
    inserted = b.input("pictures", 20, own_rows=True)
    h = b.insert_rows(b.embed(weight), inserted, 7, added=added)
    b.output("y", h)
    batch = _core.Batch()
    batch.add(tokens)
    batch.set_input("pictures", rows)
    want = np.stack([table[t] if t >= 0 else rows[-1 - t, 7:15] for t in tokens])
    np.testing.assert_array_equal(runs(b, batch), want)
    batch = _core.Batch()
    batch.add([3, -6])
    batch.set_input("pictures", rows)
    with pytest.raises(RequestError, match="no row 5"):
        runs(b, batch)


def test_a_graph_for_text_refuses_tokens_that_stand_for_rows() -> None:
    table = _core.Weight.from_blocks("table", "F32", np.zeros((2, 16), np.uint8), 4)
    b = Builder()
    b.output("y", b.embed(table))
    batch = _core.Batch()
    batch.add([-1])
    with pytest.raises(RequestError, match="outside the vocabulary"):
        runs(b, batch)
