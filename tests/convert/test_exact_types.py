"""Weights that are binary or ternary already: packed without loss, or refused by group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxibonsai import FormatError, _core
from oxibonsai.checkpoint.packs.exact_blocks import EXACT_TYPES, encode_exactly
from oxibonsai.convert.stored_types import encode

# Names of the core and of the truth.
CORE = {"q1_0": "Q1_0", "q2_0_g64": "Q2_0_g64", "pq2_0": "Q2_0_g128", "ptq1_0": "PTQ1_0"}
TRUTH = {"q1_0": "Q1_0", "q2_0_g64": "Q2_0"}
Floats = npt.NDArray[np.float32]


def representable(blocks: Floats, name: str) -> npt.NDArray[np.bool_]:
    """Rows of one size above zero, with zeros only where the type has them."""
    size = np.abs(blocks)
    same = (size == size.max(axis=1, keepdims=True)) | ((size == 0) & (name != "q1_0"))
    return same.all(axis=1) & (size.max(axis=1) > 0)


@pytest.mark.parametrize("name", ["q1_0", "q2_0_g64"])
def test_bytes_are_those_of_llama_cpps_encoder(name: str, truth_folder: Path) -> None:
    truth = np.load(truth_folder / "quant" / f"{TRUTH[name]}.npz")
    kind = EXACT_TYPES[name]
    groups = truth["src"].reshape(-1, kind.group)
    blocks = truth["quantized"].reshape(-1, kind.nbytes)
    halves = (groups == groups.astype(np.float16)).all(axis=1)
    exact = (representable(groups, name) & halves) | ~groups.any(axis=1)
    assert exact.sum() > 4
    found = encode(groups[exact], name, "w").reshape(-1, kind.nbytes)
    assert np.array_equal(found, blocks[exact])


def test_bytes_of_base_three_are_those_of_the_truth(truth_folder: Path) -> None:
    truth = np.load(truth_folder / "quant" / "PTQ1_0.npz")
    positive = truth["raw"][:, -2:].copy().view("<f2")[:, 0] > 0
    raw = truth["raw"][positive]
    found = encode(truth["dequant"][positive], "ptq1_0", "w").reshape(-1, 28)
    # Five digits have 243 numbers, so some of the truth's random bytes are a second way to say one.
    usual = ((raw[:, :24].astype(int) * 243 >> 8) * 256 + 242) // 243 == raw[:, :24]
    assert usual.mean() > 0.9
    assert np.array_equal(found[:, :24][usual], raw[:, :24][usual])
    assert np.array_equal(found[:, 26:], raw[:, 26:])


@pytest.mark.parametrize("name", EXACT_TYPES)
@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_decoder_gives_every_value_back(name: str, seed: int) -> None:
    kind = EXACT_TYPES[name]
    random = np.random.default_rng(seed)
    multiples = random.choice(kind.multiples, (4, 3, kind.group)).astype(np.float32)
    scales = np.abs(random.normal(0, 1, (4, 3, 1))).astype(np.float16).astype(np.float32)
    scales[random.random((4, 3, 1)) < 0.1] = 0.0
    values = (multiples * scales).reshape(4, -1)
    blocks = encode(values, name, "w")
    assert blocks.size == values.size // kind.group * kind.nbytes
    assert np.array_equal(_core.decode(CORE[name], blocks).reshape(4, -1), values)


def test_sizes_are_those_of_the_core() -> None:
    core = {t["name"]: t for t in _core.quant_types()}
    for name, kind in EXACT_TYPES.items():
        known = core[CORE[name]]
        assert (known["group"], known["bytes"]) == (kind.group, kind.nbytes)


@pytest.mark.parametrize("name", EXACT_TYPES)
@pytest.mark.parametrize("group", [0, 3, 5])
@pytest.mark.parametrize("value", [0.5000001, 0.25, -1.5, np.inf, np.nan])
def test_another_value_is_refused_with_its_group(name: str, group: int, value: float) -> None:
    kind = EXACT_TYPES[name]
    values = np.full((2, 3 * kind.group), 0.5, np.float32)
    values.reshape(-1, kind.group)[group, 7] = value
    with pytest.raises(
        FormatError, match=rf"^parameter w: group {group} \(weights .* is not exactly"
    ):
        encode_exactly(values, kind, "parameter w", name)


@pytest.mark.parametrize("scale", [1 / 3, 65536.0, 1e-9])
def test_a_scale_that_float16_lacks_is_refused(scale: float) -> None:
    values = np.full((1, 128), scale, np.float32)
    for name in EXACT_TYPES:
        with pytest.raises(FormatError, match=r"group 0 .*with a float16 s"):
            encode(values, name, "w")


def test_zero_among_signs_is_refused_but_a_group_of_zeros_is_not() -> None:
    values = np.full((1, 256), 0.5, np.float32)
    values[0, 128:] = 0.0
    assert not _core.decode("Q1_0", encode(values, "q1_0", "w"))[128:].any()
    values[0, 5] = 0.0
    with pytest.raises(FormatError, match=r"group 0 .*\{-s, \+s\}"):
        encode(values, "q1_0", "w")


def test_rows_that_no_group_divides_are_refused() -> None:
    with pytest.raises(FormatError, match="groups of 128 do not divide"):
        encode(np.zeros((2, 192), np.float32), "q1_0", "w")
