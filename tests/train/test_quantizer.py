"""What the network computes with while it learns: exactly what a file can hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize

from oxibonsai.checkpoint.packs.exact_blocks import EXACT_TYPES, encode_exactly
from oxibonsai.errors import RequestError
from oxibonsai.train.network import (
    GroupQuantizer,
    exact_state,
    learnt_state,
    new_network,
    quantize,
)
from oxibonsai.train.rounding import quantized
from oxibonsai.train.settings import FORMATS, NetworkShape, WeightFormat

KINDS = {name: kind for name, kind in FORMATS.items() if kind is not None}


def test_a_binary_group_is_its_signs_times_its_mean_size() -> None:
    weight = torch.tensor([[0.5, -1.0, 0.0, -2.5]])
    found = quantized(weight, WeightFormat(4, ternary=False))
    assert found.tolist() == [[1.0, -1.0, 1.0, -1.0]]


def test_a_ternary_group_drops_small_weights_and_takes_the_mean_size_of_the_others() -> None:
    weight = torch.tensor([[0.5, -1.0, 0.1, -1.5, 0.0, 0.0, 0.0, 3.5]])  # mean 0.825, limit 0.5775
    found = quantized(weight, WeightFormat(8, ternary=True))
    assert found.tolist() == [[0.0, -2.0, 0.0, -2.0, 0.0, 0.0, 0.0, 2.0]]


def test_groups_have_scales_of_their_own() -> None:
    weight = torch.tensor([[1.0, 1.0, 4.0, -4.0], [8.0, 8.0, -2.0, 2.0]])
    assert torch.equal(quantized(weight, WeightFormat(2, ternary=False)), weight)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_holds_exactly_these_values(name: str) -> None:
    weight = torch.randn(8, 256, generator=torch.Generator().manual_seed(1)) * 0.02
    weight[0] = 0.0
    values = quantized(weight, KINDS[name]).numpy()
    encode_exactly(values, EXACT_TYPES[name], "weight", name)  # refuses anything else
    scales = np.unique(np.abs(values))
    assert np.array_equal(scales, scales.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("name", KINDS)
def test_rounding_again_changes_nothing(name: str) -> None:
    weight = torch.randn(4, 256, generator=torch.Generator().manual_seed(2))
    once = quantized(weight, KINDS[name])
    assert torch.equal(quantized(once, KINDS[name]), once)


@pytest.mark.parametrize("name", KINDS)
def test_the_gradient_passes_straight_through(name: str) -> None:
    weight = torch.randn(2, 128, requires_grad=True)
    factor = torch.randn(2, 128)
    (GroupQuantizer(KINDS[name])(weight) * factor).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, factor)


@pytest.mark.parametrize("name", KINDS)
def test_a_quantized_network_computes_with_exact_values_in_every_matrix(
    name: str, shape: NetworkShape
) -> None:
    network = new_network(shape, 272, 64, seed=3, eos=0)
    quantize(network, name)
    learnt, exact = learnt_state(network), exact_state(network, name)
    matrices = [n for n, value in learnt.items() if value.ndim == 2]
    assert len(matrices) == 9  # the table twice, four of attention, three of the feed-forward part
    modules = dict(network.named_modules())
    for matrix in matrices:
        weight = modules[matrix.removesuffix(".weight")].weight
        assert torch.equal(weight, exact[matrix])
        assert not torch.equal(weight, learnt[matrix])


def test_input_and_output_tables_stay_one(shape: NetworkShape) -> None:
    network = new_network(shape, 272, 64, seed=3, eos=0)
    quantize(network, "q1_0")
    names = [n for n, _ in network.named_parameters()]
    assert sum("embed_tokens" in n or "lm_head" in n for n in names) == 1
    assert parametrize.is_parametrized(network.lm_head)


def test_a_width_that_groups_do_not_divide_is_refused() -> None:
    narrow = NetworkShape(64, 1, 1, 1, 64, 128)
    with pytest.raises(RequestError, match="hidden_size is 64; q1_0 needs a multiple of its group"):
        narrow.check("q1_0")
    with pytest.raises(RequestError, match="rows of 64; pq2_0 needs a multiple of 128"):
        quantize(new_network(narrow, 272, 64, seed=0, eos=0), "pq2_0")
