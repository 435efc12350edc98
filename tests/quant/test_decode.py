"""Decoded blocks and dot products against ggml's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.errors import RequestError

# Types that ggml has no decoder for.
OWN_TYPES = ["Q8_1", "Q8_K", "F8_E4M3", "F8_E5M2"]
TYPES = [t["name"] for t in _core.quant_types() if t["name"] not in ("F32", *OWN_TYPES)]
FILE_OF = {"Q2_0_g64": "Q2_0", "Q2_0_g128": "PQ2_0"}
# Types with recorded dot products.
MULTIPLIED = [
    *("Q1_0", "Q2_0_g64", "TQ1_0", "TQ2_0"),
    *("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K"),
]


@pytest.mark.parametrize("quant_type", TYPES)
def test_decoding_gives_the_bits_of_the_format(quant_type: str, truth_folder: Path) -> None:
    truth = np.load(truth_folder / "quant" / f"{FILE_OF.get(quant_type, quant_type)}.npz")
    decoded = _core.decode(quant_type, truth["raw"].ravel())
    assert np.array_equal(decoded.view(np.uint32), truth["dequant"].ravel().view(np.uint32))


def bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).ravel()


@pytest.mark.parametrize(
    ("quant_type", "scale", "group", "size"), [("Q8_1", "<f2", 32, 36), ("Q8_K", "<f4", 256, 292)]
)
def test_bytes_times_a_scale_are_decoded(
    quant_type: str, scale: str, group: int, size: int
) -> None:
    random = np.random.default_rng(1)
    raw = random.integers(0, 256, (50, size), dtype=np.uint8)
    d = random.normal(0, 0.1, 50).astype(scale)
    raw[:, : d.itemsize] = d.view(np.uint8).reshape(50, -1)
    q = raw[:, 4 : 4 + group].view(np.int8)
    expected = d.astype(np.float32)[:, None] * q.astype(np.float32)
    assert np.array_equal(bits(_core.decode(quant_type, raw.ravel())), bits(expected))


@pytest.mark.hf
@pytest.mark.parametrize(
    ("quant_type", "kind"), [("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2")]
)
def test_all_codes_of_8_bit_floats_are_decoded_as_torch_does(quant_type: str, kind: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch (extra: test)")
    codes = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(codes).view(getattr(torch, kind)).float().numpy()
    for scale in (1.0, -0.3, 6e-8, 0.0):
        d = np.float16(scale)
        blocks = [bytes(block) + d.tobytes() for block in codes.reshape(8, 32)]
        decoded = _core.decode(quant_type, np.frombuffer(b"".join(blocks), dtype=np.uint8))
        with np.errstate(invalid="ignore"):  # 0 * inf
            expected = np.float32(d) * values
        finite = np.isfinite(expected)
        assert np.array_equal(np.isnan(decoded), np.isnan(expected))
        assert np.array_equal(bits(decoded[finite]), bits(expected[finite]))


@pytest.mark.parametrize("tier", _core.cpu.tiers())
@pytest.mark.parametrize("quant_type", MULTIPLIED)
def test_linear_layers_give_the_dot_products_of_rounded_activations(
    quant_type: str, tier: str, truth_folder: Path
) -> None:
    truth = np.load(truth_folder / "quant" / f"dot_{FILE_OF.get(quant_type, quant_type)}.npz")
    linear = _core.cpu.Linear(tier, quant_type, truth["raw"], 1024, _core.ThreadPool(1))
    linear.set_input(truth["x"][None, :])
    linear.run()
    y = linear.output()[0]
    size = np.abs(truth["dot_x8"]).max()
    assert np.abs(y - truth["dot_x8"]).max() <= 1e-5 * size


@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_activations_are_rounded_half_to_even_in_groups_of_32(
    tier: str, truth_folder: Path
) -> None:
    truth = np.load(truth_folder / "quant" / "dot_Q1_0.npz")
    q, scale = _core.cpu.quantize(tier, truth["x"])
    assert np.array_equal(q, truth["x8"].ravel())
    assert np.array_equal(scale, truth["x8_scale"])


def test_a_broken_row_of_bytes_is_refused() -> None:
    with pytest.raises(RequestError, match="no whole number of Q1_0 blocks"):
        _core.decode("Q1_0", np.zeros(17, dtype=np.uint8))
    with pytest.raises(RequestError, match="no quant type is called Q9"):
        _core.decode("Q9", np.zeros(18, dtype=np.uint8))
