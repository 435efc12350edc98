"""From logits to tokens."""

from oxibonsai.sampling.params import GREEDY, SamplingParams, bounds
from oxibonsai.sampling.presets import PRESETS, ModelPreset, bonsai_preset, preset
from oxibonsai.sampling.sampler import (
    Sampler,
    TokenLogprobs,
    breaker_ids,
    token_logprobs,
    word_tokens,
)
from oxibonsai.sampling.top_logits import TopLogits

__all__ = [
    "GREEDY",
    "PRESETS",
    "ModelPreset",
    "Sampler",
    "SamplingParams",
    "TokenLogprobs",
    "TopLogits",
    "bonsai_preset",
    "bounds",
    "breaker_ids",
    "preset",
    "token_logprobs",
    "word_tokens",
]
