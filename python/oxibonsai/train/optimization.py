"""torch's optimizers and schedules for a network."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from transformers import Qwen3ForCausalLM

from oxibonsai.train.settings import TrainSettings


def optimizers(network: nn.Module, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """Return AdamW for tables and vectors, and Muon, where it is asked for, for the layers' matrices."""
    layers, tables, vectors = [], [], []
    for name, parameter in network.named_parameters():
        if parameter.ndim != 2:
            vectors.append(parameter)
        elif ".layers." in name and settings.optimizer == "muon":
            layers.append(parameter)
        else:
            tables.append(parameter)
    adamw = torch.optim.AdamW(
        [
            {"params": tables, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(0.9, 0.95),
    )
    if not layers:
        return [adamw]
    muon = torch.optim.Muon(
        layers, lr=settings.muon_learning_rate, weight_decay=settings.weight_decay
    )
    return [adamw, muon]


def schedule(optimizer: torch.optim.Optimizer, settings: TrainSettings) -> lr_scheduler.LRScheduler:
    """Return the learning rates of each step, from the settings."""
    return lr_scheduler.LambdaLR(optimizer, lambda step: height(step, settings))


def height(step: int, settings: TrainSettings) -> float:
    """Share of the full learning rate that an update has, above 0 to 1.

    Args:
        step: Updates before it.
        settings: Schedule, steps and warm-up.
    """
    if step < settings.warmup:
        return (step + 1) / (settings.warmup + 1)
    if settings.schedule == "cosine":
        done = (step - settings.warmup) / (settings.steps - settings.warmup)
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    falling = max(1, round(settings.steps * settings.decay))
    return min(1.0, max(1, settings.steps - step) / falling)


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
        """Take arguments as :class:`TrainSettings` has them; the teacher gets no gradient."""
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
