"""The steps of the chain and their order: what each field asks of the candidates.

Biases, banned tokens and the mask of a grammar always come first; mirostat and the draw always come
last. Between them run the steps of ``CHAIN``, in this order or in that of ``SamplingParams.samplers``.
Formulas and neutral values: docs/sampling.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oxibonsai._core import Candidates
from oxibonsai.sampling.checks import STEP_NAMES
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
    """Penalize repetition over the window, then presence and frequency over what was generated."""
    if p.repetition_penalty != 1.0:
        candidates.penalise_repetition(context.last(p.repetition_window), p.repetition_penalty)
    if p.presence_penalty != 0.0 or p.frequency_penalty != 0.0:
        generated = context.last(context.generated)
        candidates.penalise_presence(generated, p.presence_penalty, p.frequency_penalty)


def dry(candidates: Candidates, p: SamplingParams, context: Context) -> None:
    """Penalize tokens that would make a repeated passage longer."""
    candidates.penalise_dry(
        context.last(p.dry_penalty_last_n),
        p.dry_multiplier,
        p.dry_base,
        p.dry_allowed_length,
        context.breakers,
    )


def xtc(candidates: Candidates, p: SamplingParams, context: Context) -> None:
    """Drop by chance all tokens above the threshold but the least likely."""
    if context.chance < p.xtc_probability:
        candidates.drop_top_choices(p.xtc_threshold)


def typical(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Keep the tokens whose surprisal is closest to the entropy."""
    candidates.keep_typical(p.typical_p)


def top_a(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Keep the tokens with at least ``top_a`` times the squared largest probability."""
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
    """Keep the tokens with at least ``min_p`` times the largest probability."""
    candidates.keep_min_p(p.min_p)


def top_p(candidates: Candidates, p: SamplingParams, _: Context) -> None:
    """Keep the smallest set of most likely tokens whose probabilities sum to at least ``top_p``."""
    candidates.keep_top_p(p.top_p)


class Step(NamedTuple):
    """One step: its name in ``samplers``, what it does, and whether a request asks for it."""

    name: str
    apply: Callable[[Candidates, SamplingParams, Context], None]
    active: Callable[[SamplingParams], bool]


def _penalises(p: SamplingParams) -> bool:
    repetition = p.repetition_penalty != 1.0 and p.repetition_window != 0
    return repetition or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0


def _heats(p: SamplingParams) -> bool:
    return not p.greedy and (p.temperature != 1.0 or p.dynatemp_range != 0.0)


CHAIN = (
    Step("penalties", penalties, _penalises),
    Step("dry", dry, lambda p: p.dry_multiplier != 0.0 and p.dry_penalty_last_n != 0),
    Step("xtc", xtc, lambda p: p.xtc_probability != 0.0),
    Step("typ_p", typical, lambda p: p.typical_p != 1.0),
    Step("top_a", top_a, lambda p: p.top_a != 0.0),
    Step("eta", eta, lambda p: p.eta_cutoff != 0.0),
    Step("epsilon", epsilon, lambda p: p.epsilon_cutoff != 0.0),
    Step("temperature", temperature, _heats),
    Step("top_k", top_k, lambda p: p.top_k != 0 and p.mirostat == 0),
    Step("min_p", min_p, lambda p: p.min_p != 0.0 and p.mirostat == 0),
    Step("top_p", top_p, lambda p: p.top_p != 1.0 and p.mirostat == 0),
)
assert tuple(step.name for step in CHAIN) == STEP_NAMES

_BY_NAME = {step.name: step for step in CHAIN}
_KEEP_THE_TOP = {"top_a", "eta", "epsilon", "top_k", "min_p", "top_p"}


def active_steps(params: SamplingParams) -> list[Step]:
    """Return the steps that the request asks for, in its order; neutral ones are left out."""
    chosen = [step for name in params.samplers if (step := _BY_NAME[name]).active(params)]
    while params.greedy and chosen and chosen[-1].name in _KEEP_THE_TOP:
        chosen.pop()  # the most likely token is taken whatever else they keep
    return chosen
