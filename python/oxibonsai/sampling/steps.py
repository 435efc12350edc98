"""The steps of the chain: what each field asks of the candidates, which the core holds.

Formulas and neutral values: docs/sampling.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai._core import Candidates

if TYPE_CHECKING:
    from oxibonsai.sampling.params import SamplingParams


@dataclass(frozen=True)
class Context:
    """The context of a step besides the candidates and the request.

    Attributes:
        history: Prompt and generated tokens.
        generated: How many of the last ones were generated.
        chance: XTC's own random number in [0, 1).
        breakers: Ids that end a match of DRY, ascending.
    """

    history: Sequence[int]
    generated: int
    chance: float
    breakers: npt.NDArray[np.int32]

    def last(self, count: int) -> Sequence[int]:
        """Return the last ``count`` tokens; -1: all."""
        return self.history if count < 0 else self.history[max(len(self.history) - count, 0) :]


def penalties(candidates: Candidates, p: SamplingParams, context: Context) -> None:
    """Repetition over the window, then presence and frequency over what was generated."""
    if p.repetition_penalty != 1.0:
        candidates.penalise_repetition(context.last(p.repetition_window), p.repetition_penalty)
    if p.presence_penalty != 0.0 or p.frequency_penalty != 0.0:
        generated = context.last(context.generated)
        candidates.penalise_presence(generated, p.presence_penalty, p.frequency_penalty)


def dry(candidates: Candidates, p: SamplingParams, context: Context) -> None:
    """Against tokens that would make a repeated passage longer."""
    candidates.penalise_dry(
        context.last(p.dry_penalty_last_n),
        p.dry_multiplier,
        p.dry_base,
        p.dry_allowed_length,
        context.breakers,
    )


def xtc(candidates: Candidates, p: SamplingParams, context: Context) -> None:
    """By chance, of the tokens above the threshold only the least likely stays."""
    if context.chance < p.xtc_probability:
        candidates.drop_top_choices(p.xtc_threshold)


def typical(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Tokens whose surprisal is closest to the entropy."""
    candidates.keep_typical(p.typical_p)


def top_a(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Tokens with at least ``top_a`` times the squared largest probability."""
    candidates.keep_top_a(p.top_a)


def eta(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Cut off tokens by a threshold that falls with the entropy."""
    candidates.keep_eta(p.eta_cutoff)


def epsilon(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Cut off tokens below a probability."""
    candidates.keep_epsilon(p.epsilon_cutoff)


def temperature(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Apply a fixed temperature, or one by the entropy within ``dynatemp_range`` of it."""
    if p.dynatemp_range == 0.0:
        candidates.divide(p.temperature)
        return
    low = max(0.0, p.temperature - p.dynatemp_range)
    high = p.temperature + p.dynatemp_range
    candidates.divide_by_entropy(low, high, p.dynatemp_exponent)


def top_k(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Keep the k most likely tokens, ties by lower id."""
    candidates.keep_top_k(p.top_k)


def min_p(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Tokens with at least ``min_p`` times the largest probability."""
    candidates.keep_min_p(p.min_p)


def top_p(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Keep the smallest set of most likely tokens whose probabilities sum to at least ``top_p``."""
    candidates.keep_top_p(p.top_p)
