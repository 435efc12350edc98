"""From float32 to blocks: the reference's bytes where they are fixed, its error or less elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pseudo_weights
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oxibonsai import _core
from oxibonsai.errors import FormatError, RequestError

Floats = pseudo_weights.Floats

ENCODERS = _core.encoders()
GROUPS = {t["name"]: t["group"] for t in _core.quant_types()}
SAME_BYTES = {
    **{name: name for name in ("F16", "BF16", "Q8_0", "Q4_0", "Q1_0", "TQ1_0", "TQ2_0")},
    "Q2_0_g64": "Q2_0",
}
TERNARY = ["Q2_0_g64", "Q2_0_g128", "TQ2_0_g128", "PTQ1_0", "TQ1_0", "TQ2_0"]
WEIGHTED = [name for name, use in ENCODERS.items() if use != "unused"]
PLAIN = [name for name, use in ENCODERS.items() if use != "needed"]

# The root of the mean square of the error, as a share of the largest weight of a row: half a step
# where the range is used in full, and something for the rounding of scales.
LARGEST_ERROR = {
    **{"F32": 0.0, "F16": 0.0005, "BF16": 0.004, "F8_E4M3": 0.04, "F8_E5M2": 0.07},
    **{"Q8_0": 0.0045, "Q8_1": 0.0045, "Q8_K": 0.0045},
    **{"Q4_0": 0.13, "Q4_1": 0.075, "Q5_0": 0.07, "Q5_1": 0.04},
    **{"Q2_K": 0.45, "Q3_K": 0.3, "Q4_K": 0.1, "Q5_K": 0.06, "Q6_K": 0.04},
    **{"IQ4_NL": 0.12, "IQ4_XS": 0.15, "MXFP4": 0.25, "NVFP4": 0.2},
}
_LEAST_SCALE = 2.0**-25  # a smaller one is zero in binary16
SMALLEST_STEP = {
    "NVFP4": 0.012,  # its scales end at 2^-9
    # A scale times the largest number that it multiplies.
    **{"Q4_K": 63 * 15 * _LEAST_SCALE, "Q5_K": 63 * 31 * _LEAST_SCALE},
    **{"Q6_K": 127 * 32 * _LEAST_SCALE, "IQ4_XS": 32 * 127 * _LEAST_SCALE},
    **{"F8_E4M3": 448 * _LEAST_SCALE, "F8_E5M2": 1024 * _LEAST_SCALE},
}
FITTED = [name for name in LARGEST_ERROR if name in ENCODERS]


def round_trip(values: Floats, name: str, importance: Floats | None = None) -> Floats:
    blocks = _core.encode(values, name, importance)
    return _core.decode(name, blocks.ravel()).reshape(values.shape)


@pytest.mark.parametrize("name", SAME_BYTES)
def test_types_with_one_right_answer_have_the_bytes_of_the_reference(
    name: str, truth_folder: Path
) -> None:
    truth = np.load(truth_folder / "quant" / f"{SAME_BYTES[name]}.npz")
    assert np.array_equal(_core.encode(truth["src"], name), truth["quantized"])


@pytest.mark.parametrize("name", TERNARY)
@pytest.mark.parametrize("sizes", ["ordinary", "powers of two", "smallest"])
def test_ternary_weights_are_kept_exactly(name: str, sizes: str) -> None:
    random = np.random.default_rng(3)
    groups = {
        "ordinary": random.uniform(0.001, 2, 64),
        "powers of two": 2.0 ** random.integers(-20, 16, 64),
        "smallest": random.integers(1, 9, 64) * 2.0**-24,
    }
    scales = groups[sizes].astype(np.float16).astype(np.float32)
    digits = random.integers(-1, 2, (64, GROUPS[name])).astype(np.float32)
    digits[0] = 0
    values = (digits * scales[:, None]).reshape(4, -1)
    assert np.array_equal(round_trip(values, name), values)


@pytest.mark.parametrize("name", ["PTQ1_0", "TQ2_0_g128"])
def test_blocks_without_truth_of_an_encoder_come_back(name: str, truth_folder: Path) -> None:
    values = np.load(truth_folder / "quant" / f"{name}.npz")["dequant"]
    assert np.array_equal(round_trip(values, name), values)


def test_binary_weights_are_kept_exactly() -> None:
    random = np.random.default_rng(4)
    scales = random.uniform(0.001, 2, (64, 1)).astype(np.float16).astype(np.float32)
    values = (random.choice([-1.0, 1.0], (64, 128)) * scales).astype(np.float32)
    assert np.array_equal(round_trip(values, "Q1_0"), values)


@pytest.mark.parametrize("name", ["Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4", "NVFP4", "Q4_K"])
def test_weights_that_a_type_holds_come_back(name: str) -> None:
    held = round_trip(pseudo_weights.matrices()["bell"], name)
    again = round_trip(held, name)
    assert pseudo_weights.error(again, held, None) <= 1e-5 * float(np.square(held).mean())


@pytest.mark.parametrize("name", FITTED)
@given(
    values=hnp.arrays(np.float32, (2, 512), elements=st.floats(-100, 100, width=32)),
    weighted=st.booleans(),
)
def test_weights_are_near_what_they_were(name: str, values: Floats, weighted: bool) -> None:
    if weighted and ENCODERS[name] == "unused":
        return
    importance = np.ones(512, dtype=np.float32) if weighted else None
    off = round_trip(values, name, importance).astype(np.float64) - values
    largest = np.abs(values).max(axis=1)
    smallest_step = SMALLEST_STEP.get(name, 1e-5)
    limit = LARGEST_ERROR[name] * largest + smallest_step
    assert np.all(np.sqrt(np.square(off).mean(axis=1)) <= limit)


@pytest.mark.parametrize("name", FITTED)
def test_zeros_of_both_signs_are_zeros(name: str) -> None:
    values = np.zeros((2, 512), dtype=np.float32)
    values[1] = -0.0
    assert not round_trip(values, name).any()


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("outlier", [1.0, -1.0, 300.0])
def test_a_single_weight_survives_among_zeros(name: str, outlier: float) -> None:
    values = np.zeros((1, 512), dtype=np.float32)
    values[0, 300] = outlier
    limit = (0.17 if name == "MXFP4" else 0.05) * abs(outlier)  # whose scales are powers of two
    off = np.abs(round_trip(values, name) - values)
    assert off.max() <= limit


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("constant", [0.375, -0.375])
def test_equal_weights_stay_near_each_other(name: str, constant: float) -> None:
    values = np.full((1, 512), constant, dtype=np.float32)
    assert np.abs(round_trip(values, name) - constant).max() <= 0.04 * abs(constant)


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-20, 1e-9])
def test_tiny_weights_stay_tiny_and_finite(name: str, size: float) -> None:
    values = (pseudo_weights.matrices()["bell"][:2] * np.float32(size)).astype(np.float32)
    decoded = round_trip(values, name, np.ones(1024, dtype=np.float32))
    assert np.abs(decoded).max() <= 2 * size


@pytest.mark.parametrize("name", WEIGHTED)
def test_importance_lowers_the_error_that_it_weighs(name: str) -> None:
    importance = pseudo_weights.importance()
    for values in pseudo_weights.matrices().values():
        weighted = round_trip(values, name, importance)
        if ENCODERS[name] == "needed":
            plain = round_trip(values, name, np.ones_like(importance))
        else:
            plain = round_trip(values, name)
        error = pseudo_weights.error(weighted, values, importance)
        assert error < pseudo_weights.error(plain, values, importance)


@pytest.mark.parametrize("name", WEIGHTED)
def test_only_the_ratios_of_importance_count(name: str) -> None:
    values = pseudo_weights.matrices()["bell"]
    importance = pseudo_weights.importance()
    expected = _core.encode(values, name, importance)
    for factor in (2.0**40, 2.0**-60):
        scaled = (importance * factor).astype(np.float32)
        assert np.array_equal(_core.encode(values, name, scaled), expected)


@pytest.mark.parametrize("name", PLAIN)
def test_no_importance_at_all_is_as_if_all_were_alike(name: str) -> None:
    values = pseudo_weights.matrices()["bell"]
    alike = _core.encode(values, name, np.ones(1024, dtype=np.float32))
    assert np.array_equal(_core.encode(values, name, np.zeros(1024, dtype=np.float32)), alike)


@pytest.mark.parametrize("name", ENCODERS)
def test_threads_and_neighbouring_rows_do_not_change_bytes(name: str) -> None:
    values = pseudo_weights.matrices()["heavy"]
    importance = pseudo_weights.importance() if ENCODERS[name] == "needed" else None
    expected = _core.encode(values, name, importance)
    for threads in (2, 5):
        assert np.array_equal(_core.encode(values, name, importance, threads), expected)
    assert np.array_equal(_core.encode(values[7:8], name, importance)[0], expected[7])


def recorded_errors() -> list[Any]:
    file = Path(__file__).parents[1] / "truth/quant/llama_cpp_errors.json"
    found = json.loads(file.read_text())
    return [
        pytest.param(name, kind, label, error, id=f"{name}-{kind}-{label}")
        for name, kinds in found.items()
        for kind, labels in kinds.items()
        for label, error in labels.items()
    ]


@pytest.mark.parametrize(("name", "kind", "label", "error"), recorded_errors())
def test_the_error_is_at_most_that_of_llama_cpp(
    name: str, kind: str, label: str, error: float
) -> None:
    values = pseudo_weights.matrices()[label]
    importance = pseudo_weights.importance() if kind == "weighted" else None
    decoded = round_trip(values, name, importance)
    assert pseudo_weights.error(decoded, values, importance) <= error * (1 + 1e-9)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_named(name: str, bad: float) -> None:
    values = np.zeros((3, 512), dtype=np.float32)
    values[2, 17] = bad
    importance = np.ones(512, dtype=np.float32)
    with pytest.raises(FormatError, match="row 2, column 17 is not finite"):
        _core.encode(values, name, importance, 2)


@pytest.mark.parametrize("name", [n for n in FITTED if n not in ("F32", "Q8_K")])
def test_a_weight_that_is_too_large_is_named(name: str) -> None:
    values = np.zeros((3, 512), dtype=np.float32)
    values[1, 5] = -3.4e38
    with pytest.raises(FormatError, match=f"row 1, column 5 is too large for {name}"):
        _core.encode(values, name)


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("sign", [1, -1])
def test_large_weights_are_finite_when_decoded(name: str, sign: int) -> None:
    values = np.full((1, 512), sign * 2000, dtype=np.float32)
    values[0, ::3] = sign * (60000 if name != "NVFP4" else 2600)
    for importance in (None, np.arange(512, dtype=np.float32)):
        decoded = round_trip(values, name, importance)
        assert np.isfinite(decoded).all()
        assert np.abs(decoded - values).max() <= 0.6 * np.abs(values).max()


def test_no_rows_are_no_blocks() -> None:
    for name in PLAIN:
        assert _core.encode(np.zeros((0, 512), dtype=np.float32), name).shape[0] == 0


def test_calls_that_make_no_sense_are_refused() -> None:
    values = np.zeros((2, 512), dtype=np.float32)
    with pytest.raises(RequestError, match="no quant type is called Q9_9"):
        _core.encode(values, "Q9_9")
    with pytest.raises(RequestError, match="not of 1 dimensions"):
        _core.encode(values[0], "Q8_0")
    with pytest.raises(RequestError, match="no multiple of Q4_K's group of 256"):
        _core.encode(values[:, :128].copy(), "Q4_K")
    with pytest.raises(RequestError, match="one number for each of the 512 columns"):
        _core.encode(values, "Q4_K", np.ones(511, dtype=np.float32))
    with pytest.raises(RequestError, match="threads must be at least 1"):
        _core.encode(values, "Q4_K", None, 0)
    for bad in (-1.0, np.nan, np.inf):
        importance = np.ones(512, dtype=np.float32)
        importance[9] = bad
        with pytest.raises(RequestError, match="importance of column 9 is negative or not finite"):
            _core.encode(values, "Q4_K", importance)
