"""What a chain leaves of given logits: ids and probabilities just before the draw."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from oxibonsai import SamplingParams, _core
from oxibonsai.sampling.steps import Context, active_steps

OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
"""Every step neutral."""


def left_by(
    params: SamplingParams,
    logits: Sequence[float],
    history: Sequence[int] = (),
    generated: int = 0,
    *,
    chance: float = 0.0,
    breakers: Collection[int] = (),
) -> dict[int, float]:
    """Probability of each token that is left, by id."""
    candidates = _core.Candidates()
    candidates.start(np.asarray(logits, dtype=np.float32))
    context = Context(history, generated, chance, np.array(sorted(breakers), dtype=np.int32))
    for step in active_steps(params):
        step.apply(candidates, params, context)
    pairs = zip(candidates.ids(), candidates.probabilities(), strict=True)
    return {i: p for i, p in pairs if p > 0.0}
