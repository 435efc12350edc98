"""The steps between logits and a token: pure functions over candidates.

Candidates are token ids in ascending order with their float32 logits or probabilities. Only
operations whose result is the same on every machine are used: exp is the engine's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

Ids = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]


def apply_repetition_penalty(logits: Logits, seen: Sequence[int], penalty: float) -> Logits:
    """Each distinct seen id once: a positive logit is divided, a negative one multiplied."""
    ids = np.unique(np.asarray(seen, dtype=np.int64))
    penalised = logits.copy()
    values = logits[ids]
    factor = np.float32(penalty)
    penalised[ids] = np.where(values > 0, values / factor, values * factor)
    return penalised


def keep_top_k(logits: Logits, k: int) -> tuple[Ids, Logits]:
    """The k largest, ties by lower id; k = 0: all."""
    if k == 0 or k >= len(logits):
        return np.arange(len(logits), dtype=np.int32), logits
    ids = np.sort(_core.top_k(logits, k))
    return ids, logits[ids]


def probabilities(logits: Logits) -> Logits:
    """Softmax, not normalised: the largest is 1."""
    return _core.exp(logits - logits.max())


def keep_min_p(weights: Logits, min_p: float) -> npt.NDArray[np.bool_]:
    """Candidates with at least ``min_p`` times the largest probability."""
    kept: npt.NDArray[np.bool_] = weights >= np.float32(min_p) * weights.max()
    return kept


def keep_top_p(weights: Logits, top_p: float) -> npt.NDArray[np.bool_]:
    """The smallest set of most likely candidates whose mass reaches ``top_p``; ties by lower id."""
    order = np.argsort(-weights, kind="stable")
    mass = np.cumsum(weights[order].astype(np.float64))
    count = int(np.searchsorted(mass, top_p * mass[-1])) + 1
    kept = np.zeros(len(weights), dtype=np.bool_)
    kept[order[:count]] = True
    return kept


def draw(ids: Ids, weights: Logits, u: float) -> int:
    """Inverse of the cumulative distribution at u in [0, 1), candidates in the order of their ids."""
    mass = np.cumsum(weights.astype(np.float64))
    index = int(np.searchsorted(mass, u * mass[-1], side="right"))
    return int(ids[min(index, len(ids) - 1)])
