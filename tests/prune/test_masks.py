"""Masks are those of torch's pruning and of Wanda's own code, and equal scores are told apart by place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai.errors import RequestError
from oxibonsai.prune.masks import Sparsity, magnitude_mask, wanda_mask

torch = pytest.importorskip("torch", reason="needs torch (extra: test)")

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


def weights(rows: int = 24, cols: int = 40) -> Floats:
    return np.random.default_rng(3).normal(size=(rows, cols)).astype(np.float32)


def squares(cols: int = 40) -> Floats:
    return np.random.default_rng(4).uniform(0.01, 9, cols).astype(np.float32)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 0.999])
def test_magnitude_is_that_of_torch(share: float) -> None:
    from torch.nn.utils import prune

    module = torch.nn.Linear(40, 24, bias=False)
    module.weight.data = torch.from_numpy(weights())
    prune.l1_unstructured(module, "weight", amount=share)
    truth = module.weight_mask.numpy() == 0
    assert np.array_equal(magnitude_mask(weights(), Sparsity(share)), truth)


@pytest.mark.parametrize(("structure", "group"), [("2:4", 4), ("4:8", 8)])
def test_groups_are_those_of_torchs_sparsifier(structure: str, group: int) -> None:
    from torch.ao.pruning import WeightNormSparsifier

    module = torch.nn.Sequential(torch.nn.Linear(40, 24, bias=False))
    module[0].weight.data = torch.from_numpy(weights())
    sparsifier = WeightNormSparsifier(
        sparsity_level=1.0, sparse_block_shape=(1, group), zeros_per_block=group // 2
    )
    sparsifier.prepare(module, [{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    truth = ~module[0].parametrizations.weight[0].mask.numpy()
    assert np.array_equal(magnitude_mask(weights(), Sparsity(structure=structure)), truth)


def wandas(weights: Floats, squares: Floats, share: float, group: int) -> Mask:
    """The mask of prune_wanda() in Wanda's lib/prune.py."""
    metric = torch.abs(torch.from_numpy(weights)) * torch.sqrt(
        torch.from_numpy(squares).reshape((1, -1))
    )
    mask = torch.zeros_like(metric) == 1
    if group:
        for first in range(0, metric.shape[1], group):
            part = metric[:, first : first + group].float()
            lowest = torch.topk(part, group // 2, dim=1, largest=False)[1]
            mask.scatter_(1, first + lowest, True)
    else:
        order = torch.sort(metric, dim=-1, stable=True)[1]
        mask.scatter_(1, order[:, : int(metric.shape[1] * share)], True)
    found: Mask = mask.numpy()
    return found


@pytest.mark.parametrize(
    ("share", "structure", "group"), [(0.31, "", 0), (0.5, "2:4", 4), (0.5, "4:8", 8)]
)
def test_wanda_is_that_of_its_authors(share: float, structure: str, group: int) -> None:
    truth = wandas(weights(), squares(), share, group)
    found = wanda_mask(weights(), squares(), Sparsity(share, structure))
    assert np.array_equal(found, truth)
    assert not np.array_equal(found, magnitude_mask(weights(), Sparsity(share, structure)))


def test_of_equal_scores_the_first_are_pruned() -> None:
    equal = np.array([[1, -1, 1, -1, 3, -3, 3, 3]], np.float32)
    assert magnitude_mask(equal, Sparsity(3 / 8)).tolist() == [[True] * 3 + [False] * 5]
    halves = [True, True, False, False]
    assert magnitude_mask(equal, Sparsity(structure="2:4")).tolist() == [halves * 2]
    assert wanda_mask(equal, np.ones(8, np.float32), Sparsity(0.25)).tolist() == [
        [True, True] + [False] * 6
    ]


def test_what_makes_no_mask_is_refused() -> None:
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(RequestError, match="above 0 and below 1"):
            Sparsity(share)
    with pytest.raises(RequestError, match="known are 2:4 and 4:8"):
        Sparsity(structure="1:4")
    with pytest.raises(RequestError, match="leave one of the two out"):
        Sparsity(0.6, "2:4")
