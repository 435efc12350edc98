"""Training of Qwen3 networks whose weights are binary or ternary while they learn (extra ``train``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oxibonsai.train.settings import FORMATS, NetworkShape, TrainSettings

if TYPE_CHECKING:
    from oxibonsai.train.run import Result, Sources, train

__all__ = ["FORMATS", "NetworkShape", "Result", "Sources", "TrainSettings", "train"]


def __getattr__(name: str) -> Any:
    """Import the parts that need torch, which the settings alone do not."""
    if name in ("Result", "Sources", "train"):
        from oxibonsai.train import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
