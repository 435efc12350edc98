"""Decoded blocks and dot products against ggml's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.errors import RequestError

TYPES = [t["name"] for t in _core.quant_types() if t["name"] != "F32"]
FILE_OF = {"Q2_0_g64": "Q2_0", "Q2_0_g128": "PQ2_0"}


@pytest.mark.parametrize("quant_type", TYPES)
def test_decoding_gives_the_bits_of_the_format(quant_type: str, shared_data: Path) -> None:
    truth = np.load(shared_data / "quant" / f"{FILE_OF.get(quant_type, quant_type)}.npz")
    decoded = _core.decode(quant_type, truth["raw"].ravel())
    assert np.array_equal(decoded.view(np.uint32), truth["dequant"].ravel().view(np.uint32))


@pytest.mark.parametrize("tier", _core.cpu.tiers())
@pytest.mark.parametrize("quant_type", TYPES)
def test_linear_layers_give_the_dot_products_of_rounded_activations(
    quant_type: str, tier: str, shared_data: Path
) -> None:
    file = shared_data / "quant" / f"dot_{FILE_OF.get(quant_type, quant_type)}.npz"
    if not file.exists():
        pytest.skip(f"no dot products of {quant_type} among the truth")
    truth = np.load(file)
    linear = _core.cpu.Linear(tier, quant_type, truth["raw"], 1024, _core.ThreadPool(1))
    linear.set_input(truth["x"][None, :])
    linear.run()
    y = linear.output()[0]
    size = np.abs(truth["dot_x8"]).max()
    assert np.abs(y - truth["dot_x8"]).max() <= 1e-5 * size


@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_activations_are_rounded_half_to_even_in_groups_of_32(tier: str, shared_data: Path) -> None:
    truth = np.load(shared_data / "quant" / "dot_Q1_0.npz")
    q, scale = _core.cpu.quantize(tier, truth["x"])
    assert np.array_equal(q, truth["x8"].ravel())
    assert np.array_equal(scale, truth["x8_scale"])


def test_a_broken_row_of_bytes_is_refused() -> None:
    with pytest.raises(RequestError, match="no whole number of Q1_0 blocks"):
        _core.decode("Q1_0", np.zeros(17, dtype=np.uint8))
    with pytest.raises(RequestError, match="no quant type is called Q9"):
        _core.decode("Q9", np.zeros(18, dtype=np.uint8))
