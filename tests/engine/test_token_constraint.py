"""The engine follows any constraint on tokens that is given to it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.engine import DraftModel, Engine, Options, TokenConstraint

IDS = [int(i) for i in np.random.default_rng(2).integers(0, 256, 40)]
PARAMS = SamplingParams(temperature=1, top_k=0, top_p=1, seed=4, max_tokens=30)


class Countdown:
    """Lets letters come, then forces three tokens, and then ends the text."""

    def __init__(self, free: int, *, banned: frozenset[int], vocabulary: int) -> None:
        self.free = free
        self.closing = [1, 2, 3]
        self.seen: list[int] = []
        self._banned = banned
        self._words = -(-vocabulary // 32)

    def mask(self) -> npt.NDArray[np.uint32] | None:
        mask = np.zeros(self._words, dtype=np.uint32)
        for i in range(ord("a"), ord("h")):
            mask[i // 32] |= np.uint32(1 << i % 32)
        return mask

    def banned(self) -> frozenset[int]:
        return self._banned

    def forced(self) -> list[int]:
        return self.closing if self.free == 0 else []

    def accept(self, token: int) -> None:
        self.seen.append(token)
        if self.free == 0:
            self.closing = self.closing[1:]
        else:
            self.free -= 1

    @property
    def decides_end(self) -> bool:
        return True

    @property
    def may_end(self) -> bool:
        return self.finished

    @property
    def finished(self) -> bool:
        return self.free == 0 and not self.closing

    def fork(self) -> Countdown:
        other = copy.copy(self)
        other.seen = list(self.seen)
        return other


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


def constrain(engine: Engine, free: int) -> Options:
    vocabulary = engine.model.config.vocab_size

    def make(structure: TokenConstraint | None) -> Countdown:
        assert structure is None
        return Countdown(free, banned=frozenset(b"abc"), vocabulary=vocabulary)

    return Options(constrain=make)


def test_its_mask_its_bans_its_forced_tokens_and_its_end_hold(engine: Engine) -> None:
    sequence = engine.submit(IDS, PARAMS, constrain(engine, 12))
    while not sequence.finished:
        engine.step()
    assert set(sequence.generated[:12]) <= set(b"defg")
    assert sequence.generated[12:] == [1, 2, 3]
    assert sequence.finish_reason == "stop"
    assert sequence.complete
    assert isinstance(sequence.constraint, Countdown)
    assert sequence.constraint.seen == sequence.generated


def test_a_text_that_is_cut_is_not_complete(engine: Engine) -> None:
    sequence = engine.submit(IDS, PARAMS, constrain(engine, 100))
    while not sequence.finished:
        engine.step()
    assert sequence.finish_reason == "length"
    assert not sequence.complete


def test_a_draft_model_follows_it(engine: Engine, tiny_path: Path) -> None:
    """A perfect draft that knows the constraint is always right."""
    plain = list(engine.generate_tokens(IDS, PARAMS, constrain(engine, 12)))
    draft = DraftModel(oxibonsai.load(tiny_path), engine, threshold=0.0, length=4)
    options = constrain(engine, 12)
    speculated = Options(constrain=options.constrain, speculate=draft.speculator)
    sequence = engine.submit(IDS, PARAMS, speculated)
    while not sequence.finished:
        engine.step()
    assert sequence.generated == plain
    assert sequence.speculator is not None
    lookahead = sequence.speculator.lookahead
    assert lookahead.proposed == lookahead.accepted > 0
