"""The loss of a student: its distance from the teacher, and from the examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from oxibonsai.distill.settings import DistillSettings


@dataclass(frozen=True)
class Seen:
    """Outputs of a model for some tokens.

    Attributes:
        logits: Of the tokens that follow, [tokens, vocabulary].
        hidden: Hidden states of each layer, [tokens, width]; none where nobody compares them.
    """

    logits: torch.Tensor
    hidden: Sequence[torch.Tensor] = ()


@dataclass(frozen=True)
class Stored:
    """A teacher's likeliest tokens.

    Attributes:
        ids: [tokens, k].
        log_probabilities: Of these, [tokens, k], at the temperature.
    """

    ids: torch.Tensor
    log_probabilities: torch.Tensor


def loss(
    student: Seen, teacher: Seen | Stored | None, targets: torch.Tensor, settings: DistillSettings
) -> torch.Tensor:
    """Return the loss of tokens, summed over them.

    Args:
        student: Of the student.
        teacher: Of the teacher; None where neither KL nor hidden states count.
        targets: The tokens that follow, [tokens].
        settings: The weights of the parts.
    """
    total = student.logits.new_zeros(())
    if settings.kl:
        own = functional.log_softmax(student.logits / settings.temperature, dim=-1)
        distance = _divergence(own, teacher, settings.temperature)
        # The square keeps the gradient's size (Hinton, Vinyals, Dean: Distilling the Knowledge in a
        # Neural Network, 2015, section 2).
        total = total + settings.kl * settings.temperature**2 * distance
    if settings.cross_entropy:
        total = total + settings.cross_entropy * functional.cross_entropy(
            student.logits,
            targets,
            reduction="sum",
            label_smoothing=settings.label_smoothing,
        )
    if settings.hidden:
        assert isinstance(teacher, Seen)  # settings refuse stored ones
        distance = _hidden_distance(student.hidden, teacher.hidden, settings.hidden_loss)
        total = total + settings.hidden * len(targets) * distance
    return total


def _divergence(
    own: torch.Tensor, teacher: Seen | Stored | None, temperature: float
) -> torch.Tensor:
    """Return KL(teacher || student), summed over the tokens; what is not stored counts as one token."""
    if isinstance(teacher, Stored):
        taught = with_rest(teacher.log_probabilities)
        own = with_rest(own.gather(1, teacher.ids))
    else:
        assert teacher is not None  # who weights KL has a teacher
        taught = functional.log_softmax(teacher.logits / temperature, dim=-1)
    return functional.kl_div(own, taught, reduction="sum", log_target=True)


def with_rest(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities of some tokens and, behind them, of all others together."""
    # Rounding may leave no rest, or less: then it counts as one unit in the last place.
    rest = 1 - log_probabilities.exp().sum(dim=-1, keepdim=True)
    least = torch.finfo(rest.dtype).eps
    return torch.cat([log_probabilities, rest.clamp(min=least).log()], dim=-1)


def _hidden_distance(
    student: Sequence[torch.Tensor], teacher: Sequence[torch.Tensor], name: str
) -> torch.Tensor:
    """Return the mean distance of hidden states, in units of the teacher's root mean square in a layer."""
    distance = getattr(functional, name)
    parts = []
    for own, taught in zip(student, teacher, strict=True):
        size = taught.square().mean().sqrt()
        parts.append(distance(own / size, taught / size))
    return torch.stack(parts).mean()
