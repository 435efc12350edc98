"""Seeds draw what mflux and diffusers draw."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.diffusion.latents import noise
from oxibonsai.errors import RequestError

RECORDED = json.loads((Path(__file__).parents[1] / "truth" / "threefry.json").read_text())


def sha256(values: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounded to nearest even, as uint16."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


@pytest.mark.parametrize(
    "record", RECORDED["latents"], ids=lambda r: f"{r['seed']}-{r['image_hw']}"
)
def test_the_noise_of_a_picture_is_that_of_mlx_bit_for_bit(record: dict[str, Any]) -> None:
    _, channels, rows, cols = record["nchw"]
    tokens = noise(record["seed"], channels, rows, cols)
    assert tokens.shape == (rows * cols, channels)
    assert sha256(tokens) == record["sha256_f32_packed"]
    assert sha256(bfloat16(tokens)) == record["sha256_bf16_packed"]
    planes = np.ascontiguousarray(tokens.T)
    assert sha256(planes) == record["sha256_f32_nchw"]
    assert sha256(bfloat16(planes)) == record["sha256_bf16_nchw"]


def test_arrays_of_any_shape_are_those_of_mlx() -> None:
    assert len(RECORDED["normal"]) == 36
    for record in RECORDED["normal"]:
        drawn = _core.mlx_normals(record["seed"], int(np.prod(record["shape"])))
        assert [f"{bits:08x}" for bits in drawn.view(np.uint32)] == record["hex"]


def test_a_seed_has_64_bits_and_negative_ones_wrap() -> None:
    assert np.array_equal(noise(-1, 8, 2, 2), noise(2**64 - 1, 8, 2, 2))
    assert not np.array_equal(noise(2**32, 8, 2, 2), noise(0, 8, 2, 2))
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(RequestError, match="out of range"):
            noise(seed, 8, 2, 2)


def test_an_unknown_generator_is_refused() -> None:
    with pytest.raises(RequestError, match="mlx, torch"):
        noise(0, 8, 2, 2, "cuda")


@pytest.mark.parametrize(
    ("seed", "shape"), [(42, (128, 32, 32)), (7, (32, 5, 7)), (2**40 + 3, (4, 2, 3))]
)
def test_torch_draws_the_same_within_its_own_rounding(
    seed: int, shape: tuple[int, int, int]
) -> None:
    import torch

    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).numpy()
    ours = noise(seed, *shape, "torch")
    # Its vectorised logarithm and sine err by some units in the last place.
    assert np.abs(ours - drawn.reshape(shape[0], -1).T).max() < 2e-6
