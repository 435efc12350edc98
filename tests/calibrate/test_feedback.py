"""Error feedback: GPTQ's loop over columns, blocks that stay exact, layers one behind the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import float_model
import oxibonsai
from oxibonsai import FormatError, RequestError, UnsupportedError, _core
from oxibonsai.calibrate import encode_with_feedback
from oxibonsai.calibrate.second_moments import SecondMoments, collect_moments, diagonal_factor
from oxibonsai.engine import Engine
from oxibonsai.imatrix import collect
from oxibonsai.quantize import TypeRules, find_mix, make_plan, write

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]

# The tables that their encoders search take a second to make.
_SLOW = {"IQ1_S", "IQ2_XS", "IQ3_S"}
TYPES = [
    pytest.param(name, marks=pytest.mark.slow if name in _SLOW else ())
    for name in _core.encoders()
    if _core.takes_feedback(name)
]
ROWS, COLS = 4, 512
WINDOWS = [tuple(w) for w in np.random.default_rng(8).integers(0, 256, (2, 32)).tolist()]


def moments_of(x: Floats) -> SecondMoments:
    moments = SecondMoments(np.zeros((x.shape[1], x.shape[1])))
    moments.add(x)
    return moments


@pytest.fixture(scope="module")
def moments() -> SecondMoments:
    """Of inputs whose columns go together and differ in size."""
    random = np.random.default_rng(3)
    mixed = np.eye(COLS) + 0.1 * random.normal(size=(COLS, COLS))
    x = random.normal(size=(1024, COLS)) @ mixed * np.exp(0.5 * random.normal(size=COLS))
    return moments_of(x.astype(np.float32))


@pytest.fixture(scope="module")
def factor(moments: SecondMoments) -> Floats:
    return moments.feedback_factor()


@pytest.fixture(scope="module")
def weights() -> Floats:
    return np.random.default_rng(5).normal(0, 0.05, (ROWS, COLS)).astype(np.float32)


def output_error(values: Floats, blocks: npt.NDArray[np.uint8], name: str, h: Doubles) -> float:
    """Mean square error of the rows' outputs."""
    difference = values - _core.decode(name, blocks.reshape(-1)).reshape(values.shape)
    return float(np.einsum("ij,jk,ik->", difference, h, difference))


@pytest.mark.parametrize("name", TYPES)
def test_outputs_are_nearer_than_those_of_the_encoder(
    name: str, moments: SecondMoments, factor: Floats, weights: Floats
) -> None:
    importance = np.diag(moments.means()).astype(np.float32)
    plain = _core.encode(weights, name, importance)
    found = _core.encode_with_feedback(weights, name, factor)
    assert found.shape == plain.shape
    h = moments.means()
    assert output_error(weights, found, name, h) < 0.8 * output_error(weights, plain, name, h)


def test_later_weights_of_a_codebooks_block_make_up_for_earlier_ones(
    moments: SecondMoments, weights: Floats
) -> None:
    block = SecondMoments(moments.sums[:256, :256].copy(), moments.rows)
    values, h = np.ascontiguousarray(weights[:, :256]), block.means()
    plain = _core.encode(values, "IQ2_S", np.diag(h).astype(np.float32))
    found = _core.encode_with_feedback(values, "IQ2_S", block.feedback_factor())
    assert output_error(values, found, "IQ2_S", h) < 0.85 * output_error(values, plain, "IQ2_S", h)


@pytest.mark.parametrize("name", ["Q4_0", "IQ2_XXS", "Q2_0_g64"])
def test_bytes_do_not_depend_on_threads(name: str, factor: Floats, weights: Floats) -> None:
    one, five = (_core.encode_with_feedback(weights, name, factor, n) for n in (1, 5))
    assert one.tobytes() == five.tobytes()


def test_codes_are_those_of_the_papers_loop(factor: Floats, weights: Floats) -> None:
    """Algorithm 1 of the paper, column by column in float64, with the scales of the blocks."""
    blocks = _core.encode_with_feedback(weights, "Q4_0", factor)
    scales = blocks.reshape(ROWS, -1, 18)[:, :, :2].copy().view(np.float16)[:, :, 0]
    w, expected = weights.astype(np.float64), np.empty((ROWS, COLS))
    for j in range(COLS):
        d = scales[:, j // 32].astype(np.float64)
        expected[:, j] = d * np.clip(np.rint(w[:, j] / d), -8, 7)
        w -= np.outer((w[:, j] - expected[:, j]) / factor[j, j], factor[j])
    assert np.array_equal(_core.decode("Q4_0", blocks.reshape(-1)).reshape(ROWS, COLS), expected)


def test_the_factor_is_a_root_of_the_inverse(moments: SecondMoments) -> None:
    factor = moments.feedback_factor(damping=0.02).astype(np.float64)
    h = moments.means()
    h += 0.02 * np.diag(h).mean() * np.eye(COLS)
    assert not np.tril(factor, -1).any()
    assert np.allclose(factor.T @ factor, np.linalg.inv(h), rtol=1e-4, atol=1e-4)


def test_inputs_that_are_all_zero_count_alike() -> None:
    factor = moments_of(np.zeros((4, 32), np.float32)).feedback_factor()
    assert np.array_equal(factor, np.eye(32, dtype=np.float32))


def test_the_factor_of_columns_that_do_not_go_together_needs_their_squares_alone() -> None:
    squares = np.random.default_rng(7).exponential(size=32).astype(np.float32)
    whole = SecondMoments(np.diag(squares).astype(np.float64), 1)
    assert np.allclose(diagonal_factor(squares), whole.feedback_factor(), rtol=1e-6, atol=0)
    assert np.array_equal(diagonal_factor(np.zeros(32, np.float32)), np.eye(32))


def test_what_is_no_factor_is_refused(weights: Floats) -> None:
    factor, damaged = np.eye(COLS, dtype=np.float32), weights.copy()
    factor[7, 7], damaged[2, 3] = 0, np.nan
    with pytest.raises(FormatError, match="row 7, column 7"):
        _core.encode_with_feedback(weights, "Q4_0", factor)
    with pytest.raises(RequestError, match="512"):
        _core.encode_with_feedback(weights, "Q4_0", np.eye(32, dtype=np.float32))
    with pytest.raises(UnsupportedError, match="Q8_0"):
        _core.encode_with_feedback(weights, "Q8_0", np.eye(COLS, dtype=np.float32))
    with pytest.raises(FormatError, match="row 2, column 3"):
        _core.encode_with_feedback(damaged, "Q4_0", np.eye(COLS, dtype=np.float32))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The tiny model in float32."""
    path = tmp_path_factory.mktemp("floats") / "floats.gguf"
    float_model.write(path)
    return oxibonsai.load(path, parallel=1, ctx_size=64)


def test_moments_are_those_of_what_the_layers_read(engine: Engine) -> None:
    *_, imatrix = collect(engine, WINDOWS)
    found = collect_moments(engine.model, engine.kv_type, WINDOWS, list(imatrix.entries))
    assert found.keys() == imatrix.entries.keys()
    assert found["blk.0.attn_q.weight"] is found["blk.0.attn_k.weight"]
    for name, moments in found.items():
        assert moments.rows == 2 * 32
        assert np.allclose(moments.sums, moments.sums.T)
        importance = imatrix.importance(name)
        assert importance is not None
        assert np.allclose(np.diag(moments.means()), importance, rtol=1e-4)


def test_a_model_with_other_matrices_is_the_file_that_holds_them(
    engine: Engine, tmp_path: Path
) -> None:
    file = engine.model.weights.checkpoint.file
    plan = make_plan(file, TypeRules(find_mix("F32"), patterns=[("ffn_", "Q4_0")]), None)
    write(plan, tmp_path / "m.gguf")
    stored = oxibonsai.load(tmp_path / "m.gguf", parallel=1, ctx_size=64)
    others = {
        c.tensor.name: stored.model.weights.checkpoint.file.weight(c.tensor.name)
        for c in plan.choices
        if not c.kept
    }
    assert len(others) == 6
    ids, model = list(WINDOWS[0]), engine.model
    before = engine.logits(ids)
    try:
        engine.model = model.with_matrices(others)
        found = engine.logits(ids)
    finally:
        engine.model = model
    assert np.array_equal(found, stored.logits(ids))
    assert not np.array_equal(found, before)
    assert np.array_equal(engine.logits(ids), before)


def encoded(engine: Engine, mix: str, layers_at_once: int) -> dict[str, bytes]:
    plan = make_plan(engine.model.weights.checkpoint.file, TypeRules(find_mix(mix)), None)
    found = encode_with_feedback(
        engine.model,
        engine.kv_type,
        plan,
        WINDOWS,
        layers_at_once=layers_at_once,
        threads=2,
        progress=lambda *_: None,
    )
    return {name: blocks.tobytes() for name, (blocks, _) in found.items()}


def test_a_layer_is_rounded_for_what_the_rounded_ones_before_it_give(engine: Engine) -> None:
    one, both = encoded(engine, "Q4_0", 1), encoded(engine, "Q4_0", 2)
    assert one.keys() == both.keys()
    assert len(one) == 14
    first = [name for name in one if name.startswith("blk.0.")]
    second = [name for name in one if name.startswith("blk.1.")]
    assert all(one[name] == both[name] for name in first)
    assert all(one[name] != both[name] for name in second)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "IQ4_NL", "TQ2_0"])
def test_errors_that_overflow_are_refused(weights: Floats, name: str) -> None:
    factor = np.eye(COLS, dtype=np.float32)
    factor[300, 300] = 1e-45
    with pytest.raises(FormatError, match="out of range"):
        _core.encode_with_feedback(weights, name, factor)
    factor = np.eye(COLS, dtype=np.float32) + np.triu(np.full((COLS, COLS), 1e30, np.float32), 1)
    with pytest.raises(FormatError, match="out of range"):
        _core.encode_with_feedback(weights, name, factor)


@pytest.mark.parametrize("name", ["Q5_0", "Q4_0", "TQ2_0", "Q2_0_g64"])
def test_weights_that_a_type_holds_exactly_stay(name: str) -> None:
    signs = np.where(np.random.default_rng(5).random((ROWS, COLS)) < 0.5, -1, 1)
    weights = (30_000 * signs).astype(np.float32)
    even = np.ones(COLS, np.float32)
    plain = _core.decode(name, _core.encode(weights, name, even).reshape(-1))
    found = _core.encode_with_feedback(weights, name, np.eye(COLS, dtype=np.float32))
    error = np.abs(_core.decode(name, found.reshape(-1)) - weights.reshape(-1)).max()
    assert error <= np.abs(plain - weights.reshape(-1)).max()
