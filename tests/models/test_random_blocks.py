"""The decoders that the random models are built with, against ggml's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_blocks import FORMATS, INTEGER_TYPES, decode, random_rows

from oxibonsai import _core

_FILE_OF = {"Q2_0_g64": "Q2_0", "Q2_0_g128": "PQ2_0"}
_WITHOUT_DECODER = ("Q8_1", "Q8_K")  # in ggml
_DECODED = [t for t in ("F16", "BF16", *INTEGER_TYPES) if t not in _WITHOUT_DECODER]


@pytest.mark.parametrize("quant_type", _DECODED)
def test_decoding_gives_the_values_of_the_format(quant_type: str, truth_folder: Path) -> None:
    truth = np.load(truth_folder / "quant" / f"{_FILE_OF.get(quant_type, quant_type)}.npz")
    assert np.array_equal(decode(quant_type, truth["raw"]), truth["dequant"].ravel())


@pytest.mark.parametrize("quant_type", INTEGER_TYPES)
def test_random_rows_have_mean_zero_and_the_deviation_asked_for(quant_type: str) -> None:
    raw, values = random_rows(np.random.default_rng(1), quant_type, 64, 512, 0.1)
    assert raw.shape == (64, 512 // FORMATS[quant_type].group * FORMATS[quant_type].bytes)
    assert values.shape == (64, 512)
    assert abs(values.mean()) < 0.003
    coarse = quant_type in ("MXFP4", "NVFP4")  # scales of few bits
    assert abs(values.std() - 0.1) < (0.01 if coarse else 0.001)


def test_every_integer_type_of_the_package_is_among_them() -> None:
    names = {t["name"] for t in _core.quant_types() if t["group"] > 1}
    assert names - {"F8_E4M3", "F8_E5M2"} == set(INTEGER_TYPES)
