"""torch's optimizers and schedules for a network."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim import lr_scheduler

from oxibonsai.train.settings import TrainSettings


def optimizers(network: nn.Module, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """AdamW for tables and vectors, and Muon, where it is asked for, for the layers' matrices."""
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
