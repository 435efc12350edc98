"""oxibonsai.kernels: against torch, and the same bytes on every tier and for any number of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core, kernels
from oxibonsai.errors import FormatError, RequestError, UnsupportedError

torch = pytest.importorskip("torch", reason="torch (extra: test) is not installed")
pytestmark = pytest.mark.hf

Floats = npt.NDArray[np.float32]
TIERS = _core.cpu.tiers()


def random(*shape: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def rounded(x: Floats) -> Floats:
    """What a linear layer reads: int8 in groups of 32, and back."""
    q, scale = _core.cpu.quantize("scalar", x.reshape(-1))
    return (q.reshape(-1, 32) * scale[:, None]).astype(np.float32).reshape(x.shape)


@pytest.fixture(scope="module")
def matrix() -> kernels.QuantizedMatrix:
    return kernels.quantize(random(77, 384), threads=2)


def test_a_product_is_that_of_the_rounded_row_and_the_decoded_weights(
    matrix: kernels.QuantizedMatrix,
) -> None:
    x = random(5, 384, seed=2)
    wanted = rounded(x).astype(np.float64) @ matrix.dequantize().astype(np.float64).T
    np.testing.assert_allclose(kernels.gemm_tq2(matrix, x), wanted, rtol=1e-4, atol=1e-4)
    assert kernels.gemv(matrix, x[3]).tobytes() == kernels.gemm_tq2(matrix, x)[3].tobytes()


@pytest.mark.parametrize("quant_type", ["TQ2_0", "Q1_0", "Q2_0_g64", "Q4_K", "Q8_0", "F16"])
def test_a_product_has_the_same_bytes_on_every_tier(quant_type: str) -> None:
    matrix = kernels.quantize(random(33, 512), quant_type, threads=1)
    x = random(512, seed=3)
    first, *others = (
        kernels.gemv(matrix, x, device=_core.CpuDevice(1 + i % 2, tier)).tobytes()
        for i, tier in enumerate(TIERS)
    )
    assert set(others) <= {first}


def test_results_are_of_the_kind_that_came_in(matrix: kernels.QuantizedMatrix) -> None:
    x = random(2, 384)
    y = kernels.gemm_tq2(matrix, torch.from_numpy(x))
    assert isinstance(y, torch.Tensor)
    assert y.numpy().tobytes() == kernels.gemm_tq2(matrix, x).tobytes()
    assert isinstance(kernels.gemv(matrix, x[0]), np.ndarray)


def attention(q: Floats, k: Floats, v: Floats, causal: bool, window: int, cap: float) -> Floats:
    """The definition of softmax attention in float64."""
    queries, keys, values = (torch.from_numpy(a).double() for a in (q, k, v))
    repeat = q.shape[-3] // k.shape[-3]
    keys, values = keys.repeat_interleave(repeat, -3), values.repeat_interleave(repeat, -3)
    scores = queries @ keys.mT / q.shape[-1] ** 0.5
    scores = cap * torch.tanh(scores / cap) if cap else scores
    n, m = scores.shape[-2:]
    distance = torch.arange(m - n, m)[:, None] - torch.arange(m)
    hidden = torch.zeros(n, m, dtype=torch.bool)
    if causal:
        hidden = (distance < 0) | ((distance >= window) if window else hidden)
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values).float().numpy()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "n", "m", "dim", "window", "softcap"),
    [
        (4, 2, 9, 130, 32, 0, 0.0),
        (3, 3, 1, 64, 80, 0, 0.0),
        (4, 1, 65, 65, 64, 0, 0.0),
        (2, 2, 3, 600, 32, 40, 5.0),
    ],
)
def test_causal_attention_is_the_definition(
    heads: int, kv_heads: int, n: int, m: int, dim: int, window: int, softcap: float
) -> None:
    q, k, v = (
        random(2, heads, n, dim),
        random(2, kv_heads, m, dim, seed=2),
        random(2, kv_heads, m, dim),
    )
    out = kernels.flash_attention(q, k, v, window=window, softcap=softcap)
    wanted = attention(q, k, v, True, window, softcap)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=2e-6)
    alone = kernels.flash_attention(q[1, :, -1:], k[1], v[1], window=window, softcap=softcap)
    assert alone.tobytes() == np.ascontiguousarray(out[1, :, -1:]).tobytes()


def test_attention_that_is_not_causal_sees_all_keys() -> None:
    q, k, v = random(4, 70, 48), random(2, 70, 48, seed=2), random(2, 70, 48, seed=3)
    out = kernels.flash_attention(torch.from_numpy(q), torch.from_numpy(k), v, causal=False)
    assert isinstance(out, torch.Tensor)
    np.testing.assert_allclose(out, attention(q, k, v, False, 0, 0), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("kv_type", _core.KV_TYPES)
def test_attention_has_the_same_bytes_on_every_tier(kv_type: str) -> None:
    q, k, v = random(4, 2, 64), random(2, 70, 64, seed=2), random(2, 70, 64, seed=3)
    first, *others = (
        kernels.flash_attention(q, k, v, kv_type=kv_type, device=_core.CpuDevice(2, t)).tobytes()
        for t in TIERS
    )
    assert set(others) <= {first}


def test_what_does_not_fit_is_refused_in_words(matrix: kernels.QuantizedMatrix) -> None:
    q = random(4, 3, 32)
    with pytest.raises(RequestError, match="383"):
        kernels.gemv(matrix, random(383))
    with pytest.raises(RequestError, match="x is float64; it must be float32"):
        kernels.gemv(matrix, np.zeros(384))
    with pytest.raises(RequestError, match="x has 1 dimensions; it must have 2"):
        kernels.gemm_tq2(matrix, random(384))
    with pytest.raises(RequestError, match="the matrix is Q8_0"):
        kernels.gemm_tq2(kernels.quantize(random(2, 32), "Q8_0"), random(1, 32))
    with pytest.raises(RequestError, match="x cannot be read"):
        kernels.gemv(matrix, torch.zeros(384, requires_grad=True))
    with pytest.raises(RequestError, match="do not fit"):
        kernels.flash_attention(q, random(3, 3, 32), random(3, 3, 32))
    with pytest.raises(RequestError, match="do not fit"):
        kernels.flash_attention(q, random(4, 2, 32), random(4, 2, 32))
    with pytest.raises(UnsupportedError, match="not causal has no window"):
        kernels.flash_attention(q, q, q, causal=False, window=2)
    with pytest.raises(RequestError, match="no quant type is called Q9"):
        kernels.quantize(random(2, 32), "Q9")
    with pytest.raises(RequestError, match="no multiple"):
        kernels.quantize(random(2, 100), "TQ2_0_g128")
    with pytest.raises(FormatError, match="row 1"):
        kernels.quantize(np.array([[1.0] * 128, [np.nan] * 128], np.float32))
    with pytest.raises(RequestError, match="blocks"):
        kernels.QuantizedMatrix(np.zeros((2, 33), np.uint8), "TQ2_0_g128", 128)
    with pytest.raises(RequestError, match="auto is for whole models"):
        kernels.gemv(matrix, random(384), device="auto")
