"""The loss of a student, beside its definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch (extra: test)")
import torch

from oxibonsai.distill.objective import Seen, Stored, loss
from oxibonsai.distill.settings import DistillSettings

pytestmark = pytest.mark.hf
RANDOM = np.random.default_rng(4)
STUDENT, TEACHER = RANDOM.normal(0, 3, (2, 5, 11)).astype(np.float32)
TARGETS = RANDOM.integers(0, 11, 5)


def seen(logits: Any, hidden: Any = ()) -> Seen:
    return Seen(torch.from_numpy(logits), [torch.from_numpy(h) for h in hidden])


def found(teacher: Any, **settings: Any) -> float:
    student = seen(STUDENT)
    return float(loss(student, teacher, torch.from_numpy(TARGETS), DistillSettings(**settings)))


def probabilities(logits: Any) -> Any:
    e = np.exp(logits.astype(np.float64))
    return e / e.sum(axis=-1, keepdims=True)


def divergence(p: Any, q: Any) -> float:
    return float((p * np.log(p / q)).sum())


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_kl_is_that_of_all_tokens_at_the_temperature(temperature: float) -> None:
    p, q = probabilities(TEACHER / temperature), probabilities(STUDENT / temperature)
    wanted = 0.5 * temperature**2 * divergence(p, q)
    assert found(seen(TEACHER), kl=0.5, temperature=temperature) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("k", [3, 10])
def test_stored_tokens_count_with_the_rest_as_one_more(k: int) -> None:
    p, q = probabilities(TEACHER), probabilities(STUDENT)
    ids = np.argsort(-p, axis=-1)[:, :k]
    kept = [np.take_along_axis(v, ids, -1) for v in (p, q)]
    wanted = divergence(*(np.hstack([v, 1 - v.sum(-1, keepdims=True)]) for v in kept))
    log = torch.from_numpy(np.log(kept[0]).astype(np.float32))
    stored = Stored(torch.from_numpy(ids), log)
    assert found(stored, top_k=k) == pytest.approx(wanted, rel=1e-3)
    whole = divergence(p, q)
    assert wanted == pytest.approx(whole) if k == 10 else wanted < 0.99 * whole


def test_cross_entropy_has_smoothed_targets() -> None:
    log = np.log(probabilities(STUDENT))
    hard = -log[np.arange(5), TARGETS].sum()
    wanted = 2 * (0.9 * hard - 0.1 * log.mean(-1).sum())
    assert found(None, kl=0.0, cross_entropy=2.0, label_smoothing=0.1) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
def test_hidden_states_are_compared_in_units_of_the_teachers_size(name: str) -> None:
    own, taught = (RANDOM.normal(0, size, (2, 5, 7)).astype(np.float32) for size in (1, 30))
    settings = DistillSettings(kl=0.0, hidden=3.0, hidden_loss=name)
    student, teacher = seen(STUDENT, own), seen(TEACHER, taught)
    total = float(loss(student, teacher, torch.from_numpy(TARGETS), settings))
    size = np.sqrt((taught**2).mean(axis=(1, 2), keepdims=True))
    error = np.abs(own - taught) / size
    mean = (error**2 if name == "mse_loss" else error).mean()
    assert total == pytest.approx(3.0 * 5 * mean, rel=1e-5)  # for each of five tokens
