"""Named settings, and those that suit the Bonsai models."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from oxibonsai.errors import RequestError
from oxibonsai.sampling.params import GREEDY, SamplingParams

PRESETS = MappingProxyType(
    {
        "greedy": GREEDY,
        "balanced": SamplingParams(temperature=0.7, top_k=40, top_p=0.9),
        "creative": SamplingParams(temperature=1.0, top_k=100, top_p=0.95),
        "code": SamplingParams(temperature=0.2, top_k=10, top_p=0.8),
        "precise": SamplingParams(temperature=0.3, top_k=20, top_p=0.85),
        "conversational": SamplingParams(
            temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.1
        ),
    }
)


def preset(name: str) -> SamplingParams:
    """Return the settings of a name.

    Raises:
        RequestError: No such preset.
    """
    if name not in PRESETS:
        raise RequestError(f"preset is {name!r}; it must be one of {', '.join(PRESETS)}")
    return PRESETS[name]


class ModelPreset(NamedTuple):
    """Settings that a model's makers recommend."""

    params: SamplingParams
    thinking: bool


def bonsai_preset(parameters: int) -> ModelPreset:
    """For a Bonsai model of so many parameters: the 27B thinks, the smaller ones don't."""
    if parameters >= 20_000_000_000:
        return ModelPreset(SamplingParams(temperature=0.7, top_p=0.95, top_k=20), thinking=True)
    return ModelPreset(SamplingParams(temperature=0.5, top_p=0.85, top_k=20), thinking=False)
