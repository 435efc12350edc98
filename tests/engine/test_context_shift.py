"""Texts without end: what stays is read again as a text of its own, and said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import RequestError, SamplingParams
from oxibonsai.engine import ContextShift, Engine, Options, Shifted

IDS = [int(i) for i in np.random.default_rng(5).integers(0, 256, 60)]
GREEDY = SamplingParams(temperature=0, max_tokens=250, ignore_eos=True)


@pytest.fixture
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path, ctx_size=128)


def run(engine: Engine, shift: ContextShift | None) -> oxibonsai.engine.Sequence:
    sequence = engine.submit(IDS, GREEDY, Options(shift=shift))
    while not sequence.finished:
        engine.step()
    return sequence


def test_the_text_goes_on_as_that_of_the_shorter_context(engine: Engine) -> None:
    sequence = run(engine, ContextShift(sinks=4, window=60))
    assert sequence.num_generated == 250
    assert sequence.shifts[0] == Shifted(num_generated=68, dropped=64)
    assert len(sequence.shifts) == 3
    text = IDS + sequence.generated
    # 64 positions are kept, so a shift comes every 64 tokens.
    kept = IDS[:4] + text[68:128]
    rest = list(engine.generate_tokens(kept, SamplingParams(temperature=0, max_tokens=64)))
    assert sequence.generated[68 : 68 + len(rest)] == rest
    assert engine.cache.used_bytes == 0


def test_without_it_the_text_ends_at_the_context(engine: Engine) -> None:
    sequence = run(engine, None)
    assert sequence.num_generated == 68
    assert sequence.finish_reason == "length"
    assert sequence.shifts == []


def test_half_of_the_context_is_kept_by_default(engine: Engine) -> None:
    assert run(engine, ContextShift()).shifts[0].dropped == 62


@pytest.mark.parametrize(
    ("sinks", "window", "message"),
    [
        (-1, None, "sinks is -1"),
        (0, 0, "window is 0"),
        (100, 28, "does not fit the context of 128"),
        (128, None, "does not fit the context of 128"),
    ],
)
def test_what_does_not_fit_is_refused(
    engine: Engine, sinks: int, window: int | None, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        engine.submit(IDS, GREEDY, Options(shift=ContextShift(sinks, window)))
