"""Learn from preferences: of two answers to a prompt, which one is better (DPO, arXiv 2305.18290)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch.nn import functional

from oxibonsai.finetune.examples import IGNORED, Preference
from oxibonsai.finetune.trainer import batch


def preference_batch(pairs: Sequence[Preference]) -> dict[str, torch.Tensor]:
    """Return the answers of pairs as tensors: all that were chosen, then all that were rejected."""
    return batch([*(p.chosen for p in pairs), *(p.rejected for p in pairs)])


def preference_loss(learnt: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """Return the mean loss of pairs: trl's ``sigmoid``.

    Args:
        learnt: Log-probabilities of the answers, the chosen ones first: [2 * pairs].
        reference: Those of the model as it was.
        beta: How much a distance from that model costs.
    """
    chosen, rejected = (learnt - reference).chunk(2)
    return -functional.logsigmoid(beta * (chosen - rejected)).mean()


def answer_log_probabilities(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum of the log-probabilities of the tokens of each answer: [rows].

    Args:
        logits: [rows, tokens, vocabulary].
        labels: The tokens, ``IGNORED`` where they are no answer: [rows, tokens].
    """
    targets = labels[:, 1:]
    losses = functional.cross_entropy(
        logits[:, :-1].float().transpose(1, 2), targets, ignore_index=IGNORED, reduction="none"
    )
    return -losses.sum(dim=1)


class PreferenceTrainer(transformers.Trainer):
    """Trains an adapter to prefer the chosen answers; the model without it is the reference.

    Args:
        beta: As of :func:`preference_loss`.
        *arguments, **more: As of ``transformers.Trainer``.
    """

    def __init__(self, beta: float, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._beta = beta
        # A mean over pairs: batches of an update count alike, however long the answers.
        self.model_accepts_loss_kwargs = False

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Implement ``transformers.Trainer.compute_loss``."""
        given = {name: value for name, value in inputs.items() if name != "labels"}
        learnt = answer_log_probabilities(model(**given).logits, inputs["labels"])
        with torch.no_grad(), model.disable_adapter():
            reference = answer_log_probabilities(model(**given).logits, inputs["labels"])
        loss = preference_loss(learnt, reference, self._beta)
        return (loss, {}) if return_outputs else loss
