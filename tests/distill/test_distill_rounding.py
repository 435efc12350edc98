"""What a student computes with: exactly what its file will hold, with the gradient at those values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.quantize.plan import FEW_VALUES

pytest.importorskip("accelerate", reason="needs torch and accelerate (extra: test)")
import torch

from oxibonsai.distill.rounding import Rounding, rounded

pytestmark = pytest.mark.hf


def weights(rows: int, cols: int) -> Any:
    values = np.random.default_rng(2).normal(0, 0.05, (rows, cols)).astype(np.float32)
    values[1] = 0  # a group without a scale
    return torch.from_numpy(values)


def decoded(values: Any, type_name: str) -> Any:
    blocks = _core.encode(values.numpy(), type_name, None, 1)
    return torch.from_numpy(_core.decode(type_name, blocks.reshape(-1))).reshape(values.shape)


@pytest.mark.parametrize("type_name", sorted(FEW_VALUES))
def test_a_type_of_few_values_holds_the_rounded_weights(type_name: str) -> None:
    latent = weights(8, 512)
    found = rounded(latent, type_name)
    assert torch.equal(decoded(found, type_name), found)
    nearer, encoders = ((v - latent).square().sum() for v in (found, decoded(latent, type_name)))
    assert nearer <= encoders
    assert len(set(found[0].tolist())) > 1


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_K"])
def test_other_types_are_rounded_as_their_encoder_does(type_name: str) -> None:
    latent = weights(8, 512)
    assert torch.equal(rounded(latent, type_name), decoded(latent, type_name))


def test_latent_weights_get_the_gradient_at_the_rounded_ones() -> None:
    layer = torch.nn.Linear(64, 8, bias=False)
    x = weights(4, 64)
    kinds = Rounding({"weight": "Q2_0_g64"}, [])
    values = kinds.straight_through(layer)
    torch.func.functional_call(layer, values, (x,)).exp().sum().backward()
    plain = torch.nn.Linear(64, 8, bias=False)
    plain.weight.data = rounded(layer.weight.detach(), "Q2_0_g64")
    plain(x).exp().sum().backward()
    assert not torch.equal(plain.weight, layer.weight)
    found, truth = layer.weight.grad, plain.weight.grad
    assert found is not None
    assert truth is not None
    assert torch.equal(found, truth)
