"""The steps that transformers has too, against its own processors over random logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chain_results import OFF, left_by

from oxibonsai import SamplingParams

pytestmark = pytest.mark.hf

torch = pytest.importorskip("torch")
generation = pytest.importorskip("transformers.generation")

Make = Callable[[Any], Any]
HISTORY = [3, 8, 3, 40]
CASES: dict[str, tuple[dict[str, Any], Make]] = {
    "temperature": ({"temperature": 0.6}, lambda g: g.TemperatureLogitsWarper(0.6)),
    "top_k": ({"top_k": 7}, lambda g: g.TopKLogitsWarper(7)),
    "top_p": ({"top_p": 0.7}, lambda g: g.TopPLogitsWarper(0.7)),
    "min_p": ({"min_p": 0.1}, lambda g: g.MinPLogitsWarper(0.1)),
    "typical": ({"typical_p": 0.6}, lambda g: g.TypicalLogitsWarper(0.6)),
    "eta": ({"eta_cutoff": 0.01}, lambda g: g.EtaLogitsWarper(0.01)),
    "epsilon": ({"epsilon_cutoff": 0.01}, lambda g: g.EpsilonLogitsWarper(0.01)),
    "repetition": (
        {"repetition_penalty": 1.4},
        lambda g: g.RepetitionPenaltyLogitsProcessor(1.4),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_the_same_tokens_are_left(name: str, seed: int) -> None:
    fields, make = CASES[name]
    logits = np.random.default_rng(seed).normal(0, 2, 60).astype(np.float32)
    history = torch.tensor([HISTORY])
    theirs = torch.softmax(make(generation)(history, torch.tensor(logits)[None].clone()), -1)[0]
    ours = left_by(SamplingParams(**{**OFF, **fields}), logits, HISTORY)
    assert sorted(ours) == np.flatnonzero(theirs.numpy()).tolist()
    assert [ours[i] for i in sorted(ours)] == pytest.approx(theirs[theirs > 0].tolist(), rel=1e-5)
