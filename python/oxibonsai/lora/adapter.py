"""An adapter: for some matrices of a model, two low-rank ones whose product is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oxibonsai import _core


@dataclass(frozen=True)
class LowRank:
    """The low-rank addition to one matrix W: ``y = W x + scale * B (A x)``.

    Attributes:
        a: [rank, columns of W].
        b: [rows of W, rank].
        scale: The file's alpha / rank; the adapter's own scale multiplies it.
    """

    a: _core.Weight
    b: _core.Weight
    scale: float


@dataclass(frozen=True)
class Adapter:
    """An adapter that fits a model.

    Attributes:
        name: What the user called it.
        scale: How much of it is added; 0: nothing is.
        pairs: By the name of the model's tensor that they change.
        fingerprint: A hash of the content, whatever the files' names.
    """

    name: str
    scale: float
    pairs: Mapping[str, LowRank]
    fingerprint: str


def in_use(adapters: Sequence[Adapter]) -> tuple[Adapter, ...]:
    """Return the adapters that change something."""
    return tuple(a for a in adapters if a.scale != 0.0)
