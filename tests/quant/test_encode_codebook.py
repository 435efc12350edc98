"""Encoders of the types with a codebook: errors beside llama.cpp's, edges, the same bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import codebook_cases as cases
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from oxibonsai import _core
from oxibonsai.errors import FormatError, RequestError

# Relative squared errors of llama.cpp's encoders (record_codebook_errors.py).
PEER = json.loads((Path(__file__).parents[1] / "truth/quant/codebook_errors.json").read_text())
MODES = [(t, mode) for t in cases.TYPES for mode in PEER[t]]
RANDOM = cases.random_matrices()
IMPORTANCE = cases.importance_of_columns()
EVEN = np.ones(cases.SHAPE[1], dtype=np.float32)

# SHA-256 of all blocks of RANDOM, weighted: the same on every machine.
DIGESTS = {
    "IQ1_S": "0127e058e670f5fa9b5fd3b9d744ecf47ef694f7d6bd2b4a6bc2e1ef67e39bfa",
    "IQ1_M": "bb120cbd5d2b336c2a9d77ae7cbf7623a107e93d164ef6e1e10985ac90e3de2f",
    "IQ2_XXS": "8bf1d83f58da7a4ae8988101ca6fdb9e1b609ca7655dbd290d5681ef57fe5e19",
    "IQ2_XS": "3ee71df3035b84ab03b258e557fea9957c73168a14cb4717268db24b703d6af5",
    "IQ2_S": "0ebe20ce780137f5e65cdac83fad57e4fbce047d1631072f986117f370eb211e",
    "IQ3_XXS": "2f61a396a64e284f374c6ef36131923ccfa87b6f7c284fc2c6d32c563e981a63",
    "IQ3_S": "5541f99a3d6430a7c902ccebac500872db724e07261f2034099cb2a7376bc618",
}


def encoded_error(values: cases.Floats, quant_type: str, mode: str) -> float:
    importance = IMPORTANCE if mode == "weighted" else None
    blocks = _core.encode(values, quant_type, importance)
    return cases.relative_error(values, quant_type, blocks, importance)


def decoded(values: cases.Floats, quant_type: str, importance: cases.Floats) -> cases.Floats:
    blocks = _core.encode(values, quant_type, importance)
    return _core.decode(quant_type, blocks.ravel()).reshape(values.shape)


@pytest.mark.parametrize(("quant_type", "mode"), MODES)
@pytest.mark.parametrize("name", RANDOM)
def test_errors_are_below_those_of_llama_cpp(quant_type: str, mode: str, name: str) -> None:
    assert encoded_error(RANDOM[name], quant_type, mode) <= PEER[quant_type][mode][name]


@pytest.mark.release
@pytest.mark.parametrize(("quant_type", "mode"), MODES)
def test_errors_on_gemma_are_below_those_of_llama_cpp(
    quant_type: str, mode: str, gemma_path: Path
) -> None:
    for name, values in cases.gemma_matrices(gemma_path).items():
        assert encoded_error(values, quant_type, mode) <= PEER[quant_type][mode][name], name


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_what_was_decoded_is_encoded_with_a_small_error(
    quant_type: str, truth_folder: Path
) -> None:
    truth = np.load(truth_folder / "quant" / f"{quant_type}.npz")["dequant"]
    error = cases.relative_error(
        truth, quant_type, _core.encode(truth, quant_type, EVEN[:256]), None
    )
    bell = encoded_error(RANDOM["bell"], quant_type, "weighted")
    assert error < bell / 2


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_the_bytes_are_the_same_on_every_machine(quant_type: str) -> None:
    values = np.concatenate(list(RANDOM.values()))
    blocks = _core.encode(values, quant_type, IMPORTANCE)
    assert hashlib.sha256(blocks.tobytes()).hexdigest() == DIGESTS[quant_type]


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_threads_rows_and_the_scale_of_importance_do_not_change_the_bytes(quant_type: str) -> None:
    values = RANDOM["heavy tails"]
    expected = _core.encode(values, quant_type, IMPORTANCE)
    assert np.array_equal(_core.encode(values, quant_type, IMPORTANCE, 3), expected)
    assert np.array_equal(_core.encode(values, quant_type, IMPORTANCE * 1024), expected)
    assert np.array_equal(_core.encode(values[5:6], quant_type, IMPORTANCE), expected[5:6])


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_importance_lowers_the_error_that_it_weighs(quant_type: str) -> None:
    values = RANDOM["bell"]
    weighted = _core.encode(values, quant_type, IMPORTANCE)
    even = _core.encode(values, quant_type, EVEN)
    errors = [cases.relative_error(values, quant_type, b, IMPORTANCE) for b in (weighted, even)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_importance_is_asked_for_where_llama_cpp_asks_for_it(quant_type: str) -> None:
    needed = "plain" not in PEER[quant_type]
    assert _core.encoders()[quant_type] == ("needed" if needed else "optional")
    if needed:
        with pytest.raises(RequestError, match=f"{quant_type} needs the importance"):
            _core.encode(RANDOM["bell"], quant_type)
    else:
        expected = _core.encode(RANDOM["bell"], quant_type, EVEN)
        assert np.array_equal(_core.encode(RANDOM["bell"], quant_type), expected)


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_zeros_stay_zeros(quant_type: str) -> None:
    zeros = np.zeros((1, 512), dtype=np.float32)
    zeros[0, ::2] = -0.0
    assert not decoded(zeros, quant_type, EVEN).any()


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_a_power_of_two_goes_to_the_scales(quant_type: str) -> None:
    values = RANDOM["heavy tails"]
    expected = decoded(values, quant_type, IMPORTANCE) * np.float32(256)
    assert np.array_equal(decoded(values * np.float32(256), quant_type, IMPORTANCE), expected)


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_weights_below_the_smallest_scale_become_zeros(quant_type: str) -> None:
    values = RANDOM["bell"] * np.float32(2.0**-100)
    assert not decoded(values, quant_type, IMPORTANCE).any()


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_equal_weights_stay_nearly_equal(quant_type: str) -> None:
    for value in (0.25, -3.0):
        values = np.full((1, 512), value, dtype=np.float32)
        assert np.abs(decoded(values, quant_type, EVEN) / value - 1).max() < 0.05


# The highest level; the least sum of squares of the other levels with it in a group; that of other
# groups' levels where their scale is the lowest.
ONE_WEIGHT = {
    "IQ1_S": (9, 31, 224 / 15**2),
    "IQ1_M": (9, 15, 240 / 15**2),
    "IQ2_XXS": (43, 31 * 8**2, 224 * 8**2 / 31**2),
    "IQ2_XS": (43, 15 * 8**2, 240 * 8**2 / 31**2),
    "IQ2_S": (43, 15 * 8**2, 240 * 8**2 / 31**2),
    "IQ3_XXS": (62, 30 * 4**2 + 12**2, 224 * 4**2 / 31**2),  # 62, 4, 4, 4 is no entry
    "IQ3_S": (15, 31, 224 / 31**2),
}


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_one_weight_among_zeros_is_met_as_well_as_the_levels_allow(quant_type: str) -> None:
    high, others, elsewhere = ONE_WEIGHT[quant_type]
    least = 1 - high**2 / (high**2 + others + elsewhere)
    for at in (0, 100, 511):
        values = np.zeros((1, 512), dtype=np.float32)
        values[0, at] = -1.0
        error = np.square(decoded(values, quant_type, EVEN) - values).sum()
        assert error == pytest.approx(least, rel=0.01)


@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_weights_are_refused_where_the_scale_ends(quant_type: str) -> None:
    values = np.full((1, 512), 1e6, dtype=np.float32)
    assert np.abs(decoded(values, quant_type, EVEN) / values - 1).max() < 0.05
    values[0, 300] = 1e8
    with pytest.raises(FormatError, match=f"column 300 is too large for {quant_type}"):
        _core.encode(values, quant_type, EVEN)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quant_type", cases.TYPES)
def test_what_is_not_finite_is_refused_with_its_place(quant_type: str, bad: float) -> None:
    values = RANDOM["bell"].copy()
    values[3, 77] = bad
    with pytest.raises(FormatError, match="row 3, column 77"):
        _core.encode(values, quant_type, IMPORTANCE)


FLOATS = st.floats(-1e4, 1e4, width=32)


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(
    st.sampled_from(cases.TYPES),
    arrays.arrays(np.float32, (1, 256), elements=FLOATS),
    arrays.arrays(np.float32, 256, elements=st.floats(0.125, 8, width=32)),
)
def test_errors_never_exceed_those_of_zeros(
    quant_type: str, values: cases.Floats, importance: cases.Floats
) -> None:
    result = decoded(values, quant_type, importance).astype(np.float64)
    assert np.isfinite(result).all()
    error = (importance * (result - values) ** 2).sum()
    assert error <= (importance * values.astype(np.float64) ** 2).sum() * (1 + 1e-6)
