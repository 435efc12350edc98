"""Round weights to binary or ternary values, with a gradient."""

from __future__ import annotations

import torch

from oxibonsai.train.settings import WeightFormat

# Sizes below this share of a group's mean size become zero: what minimizes the squared error for
# normal weights, to three digits 0.7 (Li, Zhang, Liu: Ternary Weight Networks, 2016, section 2.2).
_THRESHOLD = 0.7


def quantized(weight: torch.Tensor, kind: WeightFormat) -> torch.Tensor:
    """Return the nearest matrix of that format, float32.

    Args:
        weight: [rows, cols]; the group divides cols.
        kind: The format.
    """
    groups = weight.float().reshape(-1, kind.group)
    size = groups.abs()
    mean = size.mean(dim=1, keepdim=True)
    sign = torch.where(groups < 0, -1.0, 1.0)
    if kind.ternary:
        held = (size > _THRESHOLD * mean).float()
        scale = (size * held).sum(dim=1, keepdim=True) / held.sum(dim=1, keepdim=True).clamp(min=1)
        sign = sign * held
    else:
        scale = mean
    return (sign * scale.half().float()).reshape(weight.shape)


def straight_through(weight: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    """Return ``rounded``, whose gradient goes to ``weight`` as it is.

    Args:
        weight: The values that are learnt.
        rounded: What they are rounded to, without a gradient.
    """
    # The difference is zero, so that the values stay exact, and carries the gradient.
    return rounded + (weight - weight.detach())
