"""Checkpoints of a run: files ``step-N.pt`` that appear whole, from which it goes on as if never ended."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import torch
from torch.optim import Optimizer, lr_scheduler
from transformers import Qwen3ForCausalLM

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.whole_file import written_whole
from oxibonsai.train.network import learnt_state, load_learnt_state, read_checkpoint
from oxibonsai.train.settings import TrainSettings

# What may differ between a run and its continuation: it changes no number.
_FREE = {"save_every", "keep"}


def save(
    folder: Path,
    step: int,
    network: Qwen3ForCausalLM,
    settings: TrainSettings,
    optimizers: list[Optimizer],
    schedules: list[lr_scheduler.LRScheduler],
) -> Path:
    """Write the state after ``step`` updates, then remove what is older than ``settings.keep``."""
    stored = {
        "config": network.config.to_dict(),
        "network": learnt_state(network),
        "settings": asdict(settings),
        "step": step,
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "schedules": [schedule.state_dict() for schedule in schedules],
    }
    place = folder / f"step-{step:06d}.pt"
    with written_whole(place) as out:
        torch.save(stored, out)
    if settings.keep:
        for old in found(folder)[: -settings.keep]:
            old.unlink()
    return place


def found(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the oldest first."""
    return sorted(p for p in folder.glob("step-*.pt") if re.fullmatch(r"step-\d{6,}\.pt", p.name))


def restore(
    file: Path,
    network: Qwen3ForCausalLM,
    settings: TrainSettings,
    optimizers: list[Optimizer],
    schedules: list[lr_scheduler.LRScheduler],
) -> int:
    """Put everything as it was; return the number of updates that were done.

    Raises:
        RequestError: The run had other settings, which are named: the result would be another.
        FormatError: The file is broken or another network's.
    """
    stored = read_checkpoint(file)
    old, new = stored["settings"], asdict(settings)
    other = sorted(k for k in new if k not in _FREE and old.get(k) != new[k])
    if other:
        changes = ", ".join(f"{k} was {old.get(k)!r}, not {new[k]!r}" for k in other)
        raise RequestError(f"{file} is of a run with other settings: {changes}")
    load_learnt_state(network, stored["network"])
    try:
        for optimizer, state in zip(optimizers, stored["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        for schedule, state in zip(schedules, stored["schedules"], strict=True):
            schedule.load_state_dict(state)
    except (ValueError, KeyError, RuntimeError) as e:
        raise FormatError(f"{file} does not fit this network's optimizers: {e}") from e
    return int(stored["step"])
