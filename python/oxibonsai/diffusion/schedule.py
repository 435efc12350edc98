"""Noise levels of the steps: flow matching with a shift that depends on the image's size."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

Floats = npt.NDArray[np.float32]

MOST_STEPS = 1000


def shift(tokens: int, steps: int) -> float:
    """Return the exponent of the time shift: linear in the tokens, and between 10 and 200 steps.

    Images of more than 4300 tokens use the line of 200 steps for any number of steps.
    """
    at_200 = 0.00016927 * tokens + 0.45666666
    if tokens > 4300:
        return at_200
    at_10 = 8.73809524e-05 * tokens + 1.89833333
    slope = (at_200 - at_10) / 190.0
    return slope * steps + (at_200 - 200.0 * slope)


def sigmas(steps: int, tokens: int) -> Floats:
    """Return shares of noise before each step and after the last, from 1 down to 0: float32 [steps + 1].

    Args:
        steps: At least 1.
        tokens: Of the image, without text and references.

    Raises:
        RequestError: ``steps`` is out of range.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise RequestError(f"{steps} steps: give 1 to {MOST_STEPS}")
    stretch = math.exp(shift(tokens, steps))
    even = np.linspace(1.0, 1.0 / steps, steps)
    shifted = stretch / (stretch + (1.0 / even - 1.0))
    return np.append(shifted, 0.0).astype(np.float32)


def first_step(steps: int, strength: float) -> int:
    """Return the step that an image drawn from another one starts with.

    Args:
        steps: Of the whole schedule.
        strength: From 0 to 1: how much of the given image is kept, as mflux counts; 0 draws from
            noise alone.

    Raises:
        RequestError: ``strength`` is out of range, or no step is left.
    """
    if not 0.0 <= strength <= 1.0:
        raise RequestError(f"strength {strength} is out of range: give 0 to 1")
    if strength == 0.0:
        return 0
    start = max(1, int(steps * strength))
    if start >= steps:
        raise RequestError(
            f"strength {strength} leaves none of {steps} steps: give more steps or less strength"
        )
    return start
