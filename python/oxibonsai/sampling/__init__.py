"""From logits to tokens."""

from oxibonsai.sampling.chain import Sampler
from oxibonsai.sampling.params import GREEDY, SamplingParams

__all__ = ["GREEDY", "Sampler", "SamplingParams"]
