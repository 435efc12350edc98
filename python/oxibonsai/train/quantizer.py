"""Weights rounded to a scale times -1, (0,) +1 in groups, with a gradient that passes through."""

from __future__ import annotations

import torch
from torch import nn

from oxibonsai.train.settings import WeightFormat

# Sizes below this share of a group's mean size become zero: what minimizes the squared error for
# normal weights, to three digits 0.7 (Li, Zhang, Liu: Ternary Weight Networks, 2016, section 2.2).
_THRESHOLD = 0.7


class GroupQuantizer(nn.Module):
    """A parametrization of a matrix: what the network computes with, of what is learnt.

    A group's scale is the mean size of its weights that are not zero, rounded to float16, so that a
    file holds exactly these values.
    """

    def __init__(self, kind: WeightFormat) -> None:
        """Args: kind: Values that the weights may have."""
        super().__init__()
        self.kind = kind

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the rounded matrix; its gradient goes to ``weight`` as it is (straight-through)."""
        # The difference is zero, so that the values stay exact, and carries the gradient.
        return quantized(weight.detach(), self.kind) + (weight - weight.detach())


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
