"""From logits to tokens: the parameters; what draws with them is in ``sampler``.

Importing this loads neither numpy nor the core: settings and command lines need no more.
"""

from oxibonsai.sampling.params import (
    GREEDY,
    PARAMETERS,
    PRESETS,
    Parameter,
    SamplingParams,
    preset,
)

__all__ = [
    "GREEDY",
    "PARAMETERS",
    "PRESETS",
    "Parameter",
    "SamplingParams",
    "preset",
]
