"""Training of Qwen3 networks whose weights are binary or ternary while they learn (extra ``train``)."""

from __future__ import annotations

from oxibonsai.train.run import Result, Sources, train
from oxibonsai.train.settings import FORMATS, NetworkShape, TrainSettings

__all__ = ["FORMATS", "NetworkShape", "Result", "Sources", "TrainSettings", "train"]
