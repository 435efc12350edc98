"""The order of the steps.

Biases, banned tokens and the mask of a grammar always come first; mirostat and the draw always come
last. Between them run these, in this order or in that of ``SamplingParams.samplers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from oxibonsai._core import Candidates
from oxibonsai.sampling import steps

if TYPE_CHECKING:
    from oxibonsai.sampling.params import SamplingParams


class Step(NamedTuple):
    """One step: its name in ``samplers``, what it does, and whether a request asks for it."""

    name: str
    apply: Callable[[Candidates, SamplingParams, steps.Context], None]
    active: Callable[[SamplingParams], bool]


def _penalises(p: SamplingParams) -> bool:
    repetition = p.repetition_penalty != 1.0 and p.repetition_window != 0
    return repetition or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0


def _heats(p: SamplingParams) -> bool:
    return not p.greedy and (p.temperature != 1.0 or p.dynatemp_range != 0.0)


CHAIN = (
    Step("penalties", steps.penalties, _penalises),
    Step("dry", steps.dry, lambda p: p.dry_multiplier != 0.0 and p.dry_penalty_last_n != 0),
    Step("xtc", steps.xtc, lambda p: p.xtc_probability != 0.0),
    Step("typ_p", steps.typical, lambda p: p.typical_p != 1.0),
    Step("top_a", steps.top_a, lambda p: p.top_a != 0.0),
    Step("eta", steps.eta, lambda p: p.eta_cutoff != 0.0),
    Step("epsilon", steps.epsilon, lambda p: p.epsilon_cutoff != 0.0),
    Step("temperature", steps.temperature, _heats),
    Step("top_k", steps.top_k, lambda p: p.top_k != 0 and p.mirostat == 0),
    Step("min_p", steps.min_p, lambda p: p.min_p != 0.0 and p.mirostat == 0),
    Step("top_p", steps.top_p, lambda p: p.top_p != 1.0 and p.mirostat == 0),
)

STEP_NAMES = tuple(step.name for step in CHAIN)

_BY_NAME = {step.name: step for step in CHAIN}
_KEEP_THE_TOP = {"top_a", "eta", "epsilon", "top_k", "min_p", "top_p"}


def active_steps(params: SamplingParams) -> list[Step]:
    """Return the steps that the request asks for, in its order; neutral ones are left out."""
    chosen = [step for name in params.samplers if (step := _BY_NAME[name]).active(params)]
    while params.greedy and chosen and chosen[-1].name in _KEEP_THE_TOP:
        chosen.pop()  # the most likely token is taken whatever else they keep
    return chosen
