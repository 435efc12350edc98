"""Optimizers and schedules of torch that transformers does not know by a name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import lr_scheduler


class MuonAndAdamW(torch.optim.Optimizer):
    """torch's Muon for some matrices and AdamW for the rest, as one optimizer.

    Muon's updates are scaled to the size of AdamW's, so that both have one learning rate.

    Args:
        matrices: What Muon learns.
        tables: Other matrices, which decay, too.
        vectors: What does not decay.
        lr: The learning rate.
        weight_decay: Of matrices.
    """

    def __init__(
        self,
        matrices: Iterable[torch.Tensor],
        tables: Iterable[torch.Tensor],
        vectors: Iterable[torch.Tensor],
        lr: float,
        weight_decay: float,
    ) -> None:
        muon = torch.optim.Muon(
            matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
        )
        others: list[dict[str, Any]] = [
            {"params": tables},
            {"params": vectors, "weight_decay": 0.0},
        ]
        adamw = torch.optim.AdamW(others, lr=lr, weight_decay=weight_decay)
        self._parts: tuple[torch.optim.Optimizer, ...] = muon, adamw
        super().__init__([g for part in self._parts for g in part.param_groups], {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters; there is no closure."""
        for part in self._parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put back the state of both."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [g for part in self._parts for g in part.param_groups]


def torch_schedule(name: str) -> Any:
    """Return the class of ``torch.optim.lr_scheduler`` of that name; None: there is none."""
    found = getattr(lr_scheduler, name, None)
    is_schedule = isinstance(found, type) and issubclass(found, lr_scheduler.LRScheduler)
    # A plateau is one of held-out losses, which transformers' reduce_lr_on_plateau is told.
    return found if is_schedule and found is not lr_scheduler.ReduceLROnPlateau else None
