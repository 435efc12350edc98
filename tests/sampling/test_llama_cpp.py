"""Every step that llama.cpp has too, against what its samplers leave of the same logits.

make_llama_cpp_samplers.py made the expected values.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_results import OFF, left_by

from oxibonsai import SamplingParams
from oxibonsai.sampling.sampler import Sampler

TRUTH = json.loads((Path(__file__).parents[1] / "truth/sampling/llama_cpp.json").read_text())


def case_name(case: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in case["params"].items())


@pytest.mark.parametrize("case", TRUTH["filters"], ids=case_name)
def test_the_same_candidates_with_the_same_probabilities_are_left(case: dict[str, Any]) -> None:
    params = {**OFF, **case["params"]}
    history = case["history"]
    ours = left_by(SamplingParams(**params), case["logits"], history, len(history))
    theirs = {int(i): logit for i, logit in case["left"].items()}
    weights = {i: np.exp(logit - max(theirs.values())) for i, logit in theirs.items()}
    total = sum(weights.values())
    # Weights below e^-87 are 0 here.
    expected = {i: w / total for i, w in weights.items() if w > np.exp(-87.0) or i in ours}
    assert ours.keys() == expected.keys()
    assert ours == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("case", TRUTH["mirostat"], ids=lambda c: f"{c['mirostat']} {c['tau']}")
def test_mirostat_draws_from_the_same_tokens(case: dict[str, Any]) -> None:
    logits = np.float32(case["logits"])
    drawn = set()
    for seed in range(3000):
        params = SamplingParams(
            **OFF, mirostat=case["mirostat"], mirostat_tau=case["tau"], seed=seed
        )
        drawn.add(Sampler(params).choose(logits, [], 0))
    assert sorted(drawn) == case["kept"]
