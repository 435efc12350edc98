"""The order of the steps: repetition penalty, temperature, top_k, min_p, top_p, draw."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from oxibonsai import _core
from oxibonsai.sampling import steps
from oxibonsai.sampling.params import SamplingParams


class Sampler:
    """Chooses the tokens of one sequence.

    The draw of step t is a function of (seed, t) alone, so a sequence's text doesn't depend on what
    runs beside it.

    Attributes:
        seed: The request's, or one made for it.
    """

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.seed = secrets.randbits(64) if params.seed is None else params.seed

    def choose(self, logits: steps.Logits, history: Sequence[int], step: int) -> int:
        """The next token.

        Args:
            logits: float32 [vocabulary].
            history: Prompt and generated tokens.
            step: How many tokens have been generated.
        """
        p = self.params
        window = history if p.repetition_window < 0 else history[-p.repetition_window :]
        if p.repetition_penalty != 1.0 and p.repetition_window != 0 and window:
            logits = steps.apply_repetition_penalty(logits, window, p.repetition_penalty)
        if p.temperature == 0.0:
            return _core.argmax(logits)
        if p.temperature != 1.0:
            logits = logits / np.float32(p.temperature)
        ids, kept = steps.keep_top_k(logits, p.top_k)
        weights = steps.probabilities(kept)
        if p.min_p > 0.0:
            mask = steps.keep_min_p(weights, p.min_p)
            ids, weights = ids[mask], weights[mask]
        if p.top_p < 1.0:
            mask = steps.keep_top_p(weights, p.top_p)
            ids, weights = ids[mask], weights[mask]
        return steps.draw(ids, weights, _core.uniform(self.seed, step))
