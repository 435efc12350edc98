"""The loss: cross-entropy of the texts, and the distance from a teacher's logits."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen3ForCausalLM


class Objective(nn.Module):
    """The loss of a batch.

    The distance is the mean over tokens of KL(teacher || network) of logits divided by a temperature,
    times its square, which keeps the gradient's size (Hinton, Vinyals, Dean: Distilling the
    Knowledge in a Neural Network, 2015, section 2).
    """

    def __init__(
        self,
        network: Qwen3ForCausalLM,
        teacher: Qwen3ForCausalLM | None = None,
        distill: float = 0.0,
        temperature: float = 1.0,
    ) -> None:
        """Args as :class:`TrainSettings` has them; the teacher gets no gradient."""
        super().__init__()
        self.network = network
        self.teacher = teacher
        self.distill = distill if teacher is not None else 0.0
        self.temperature = temperature

    def forward(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss, and the cross-entropy in it (nats a token).

        Args:
            windows: [batch, context + 1] ids.
        """
        inputs, targets = windows[:, :-1], windows[:, 1:]
        logits = self.network(input_ids=inputs, use_cache=False).logits.float()
        entropy = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        if self.teacher is None or self.distill == 0.0:
            return entropy, entropy
        with torch.no_grad():
            taught = self.teacher(input_ids=inputs, use_cache=False).logits.float()
        distance = functional.kl_div(
            functional.log_softmax(logits.flatten(0, 1) / self.temperature, dim=-1),
            functional.log_softmax(taught.flatten(0, 1) / self.temperature, dim=-1),
            reduction="batchmean",
            log_target=True,
        )
        loss = (1 - self.distill) * entropy + self.distill * self.temperature**2 * distance
        return loss, entropy
