"""The largest logits, the others being on a device: the tokens that all logits give, fetched only
where the largest do not decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import RequestError, SamplingParams, _core
from oxibonsai.sampling.sampler import Sampler, TopLogits, token_logprobs

Logits = npt.NDArray[np.float32]
VOCABULARY = 500
GREEDY = SamplingParams(temperature=0)
DRAWN = SamplingParams(seed=3, temperature=0.7, top_k=20, top_p=0.95)


class Device:
    """Holds a row of logits, and counts how often all of it is fetched."""

    def __init__(self, logits: Logits) -> None:
        self.logits = logits
        self.fetched = 0

    def top(self, k: int) -> TopLogits:
        ids = _core.top_k(self.logits, k)
        return TopLogits(ids, self.logits[ids], len(self.logits), self._fetch)

    def _fetch(self) -> Logits:
        self.fetched += 1
        return self.logits


def rows(kind: str, count: int = 200) -> list[Logits]:
    random = np.random.default_rng(2)
    logits = random.normal(0, 3, (count, VOCABULARY)).astype(np.float32)
    if kind == "ties":  # which the lower id wins
        logits = np.round(logits)
    elif kind == "ties of a temperature":
        # Neighbouring numbers, of which some are equal when divided.
        logits = (np.uint32(0x41000000) + random.integers(0, 40, logits.shape)).astype(np.uint32)
        logits = logits.view(np.float32)
    elif kind == "holes":
        logits[random.random(logits.shape) < 0.99] = -np.inf
        logits[:, :30] = np.nan
        logits[:, 77] = 1
    elif kind == "infinite":
        logits[:, 100:140] = np.where(random.random((count, 40)) < 0.5, np.inf, 3e38)
    return list(logits)


def tokens(sampler: Sampler, given: list[Any]) -> list[int]:
    history: list[int] = []
    for t, row in enumerate(given):
        history.append(sampler.choose(row, history, t))
    return history


@pytest.mark.parametrize("kind", ["plain", "ties", "ties of a temperature", "holes", "infinite"])
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {},
        {"top_k": 1},
        {"temperature": 1.0},
        {"temperature": 3.0},
        {"temperature": 1e-10},
        {"min_p": 0.05, "typical_p": 1.0},
        {"samplers": ("top_k", "typ_p", "temperature"), "typical_p": 0.5},
        {"samplers": ("top_k", "xtc", "top_p"), "xtc_probability": 0.5},
        {"samplers": ("top_k",)},
    ],
    ids=str,
)
def test_the_same_tokens_as_of_all_logits(kind: str, fields: dict[str, Any]) -> None:
    params = replace(DRAWN, **fields)
    sampler = Sampler(params)
    wanted = sampler.top_wanted
    assert wanted is not None
    given = rows(kind)
    found = tokens(sampler, [Device(row).top(wanted) for row in given])
    assert found == tokens(Sampler(params), given)


def test_what_decides_is_not_fetched() -> None:
    for params in (GREEDY, DRAWN):
        devices = [Device(row) for row in rows("plain")]
        sampler = Sampler(params)
        assert sampler.top_wanted == (1 if params.greedy else 21)
        tokens(sampler, [d.top(sampler.top_wanted) for d in devices])
        assert sum(d.fetched for d in devices) == 0


def test_a_tie_at_the_border_is_fetched() -> None:
    # The k-th and the one behind it are equal once they are divided, and then id 0 comes first.
    low, high = np.float32(1.5), np.nextafter(np.float32(1.5), np.float32(2))
    while low / np.float32(3) != high / np.float32(3):
        low, high = high, np.nextafter(high, np.float32(2))
    device = Device(np.float32([low, 0, high]))
    assert Sampler(replace(DRAWN, top_k=1, temperature=3.0)).choose(device.top(2), [], 0) == 0
    assert device.fetched == 1


def test_more_of_the_largest_than_needed_decide_as_well() -> None:
    # As in a step with a sequence that needs more.
    given = rows("ties of a temperature", 50)
    for params in (GREEDY, DRAWN):
        found = tokens(Sampler(params), [Device(row).top(60) for row in given])
        assert found == tokens(Sampler(params), given)


def test_a_vocabulary_of_few_tokens() -> None:
    row = np.float32([1, 3, 2])
    for params in (GREEDY, DRAWN):
        device = Device(row)
        assert Sampler(params).choose(device.top(3), [], 0) == Sampler(params).choose(row, [], 0)
        assert device.fetched == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {1: 3.0}},
        {"banned_tokens": (1,)},
        {"allowed_tokens": (1, 2)},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.5},
        {"dry_multiplier": 0.8},
        {"top_k": 0},
        {"top_k": 64},
        {"typical_p": 0.5},
        {"dynatemp_range": 0.2},
        {"mirostat": 2},
        {"samplers": ("temperature", "top_p", "top_k")},
        {"logprobs": True},
        {"temperature": 0, "repetition_penalty": 1.1},
        {"temperature": 0, "logit_bias": {1: 3.0}},
    ],
    ids=str,
)
def test_what_looks_at_other_logits_wants_all(fields: dict[str, Any]) -> None:
    params = replace(DRAWN, **fields)
    sampler = Sampler(params)
    assert sampler.top_wanted is None
    # And gives their tokens, if it is handed the largest all the same.
    given = rows("plain", 20)
    found = tokens(sampler, [Device(row).top(5) for row in given])
    assert found == tokens(Sampler(params), given)


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_masks_and_bans_look_at_all_logits(params: SamplingParams) -> None:
    (row,) = rows("plain", 1)
    mask = np.full(VOCABULARY // 32 + 1, 0x0F0F0F0F, dtype=np.uint32)
    best = (int(row.argmax()),)
    for options in ({"mask": mask}, {"banned": best}):
        top = Device(row).top(21)
        found = Sampler(params).choose(top, [], 0, **options)  # type: ignore[arg-type]
        assert found == Sampler(params).choose(row, [], 0, **options)  # type: ignore[arg-type]


def test_log_probabilities_are_of_all_logits() -> None:
    (row,) = rows("plain", 1)
    assert token_logprobs(Device(row).top(2), 7, 3) == token_logprobs(row, 7, 3)


def test_no_token_left_is_an_error() -> None:
    with pytest.raises(RequestError, match="no token is left"):
        Sampler(GREEDY).choose(Device(np.full(5, -np.inf, np.float32)).top(1), [], 0)


def test_ids_must_be_of_the_vocabulary() -> None:
    candidates = _core.Candidates()
    with pytest.raises(RequestError, match="token 5 is outside the vocabulary of 5"):
        candidates.start_with(np.int32([1, 5]), np.float32([0, 0]), 5)
    with pytest.raises(RequestError, match="one logit for each id"):
        candidates.start_with(np.int32([1, 2]), np.float32([0]), 5)
