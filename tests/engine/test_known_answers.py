"""Drafts of a drafter that knows the answer with some probability: no byte changes, no row is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
import recurrent_model
from oxibonsai import SamplingParams
from oxibonsai.engine import Engine, Lookahead, Options, Sequence
from oxibonsai.structured import Structure

IDS = [int(i) for i in np.random.default_rng(3).integers(0, 256, 150)]
GREEDY = SamplingParams(temperature=0, max_tokens=61, ignore_eos=True, logprobs=True)
DRAWN = replace(GREEDY, temperature=1, top_k=0, top_p=0.98, seed=11)
CASES: dict[str, tuple[SamplingParams, Options]] = {
    "greedy": (GREEDY, Options()),
    "drawn": (DRAWN, Options()),
    "penalties": (replace(DRAWN, repetition_penalty=1.3, presence_penalty=0.5), Options()),
    "stop string": (replace(DRAWN, stop=("a", "e"), ignore_eos=False), Options()),
    "grammar": (DRAWN, Options(structure=Structure.regex("([a-f]{3} ){4,9}"))),
    "few tokens": (replace(DRAWN, max_tokens=7), Options()),
}


class Knowing:
    """Proposes the text that it was told, each token right with a probability."""

    def __init__(self, text: list[int], probability: float, length: int = 5) -> None:
        self.lookahead = Lookahead(length)
        self.shared = self.reader = None
        random = np.random.default_rng(len(text))
        wrong = random.random(len(text)) >= probability
        self._text = [(t + 1) % 256 if w else t for t, w in zip(text, wrong, strict=True)]

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """The next of its tokens."""
        done = sequence.num_generated
        return self._text[done : done + most]

    def close(self) -> None:
        """Holds nothing."""


@pytest.fixture(scope="module", params=["attention", *recurrent_model.FAMILIES])
def load_any(
    request: pytest.FixtureRequest,
    _registered: None,
    tiny_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Engine]:
    """Loads a model with attention alone, or one with recurrent state."""
    path = tiny_path
    if request.param != "attention":
        path = tmp_path_factory.mktemp("model") / "model.gguf"
        recurrent_model.write(path, request.param)

    def load(**options: Any) -> Engine:
        return oxibonsai.load(path, **({"threads": 2, "parity": "off"} | options))

    return load


def told(s: Sequence) -> tuple[object, ...]:
    assert s.error is None
    return s.generated, s.logprobs, s.text, s.finish_reason, s.matched_stop


def finish(engine: Engine, *sequences: Sequence) -> None:
    while not all(s.finished for s in sequences):
        engine.step()
    assert engine.cache.used_bytes == 0
    assert engine.cache.slots is None or engine.cache.slots.used == 0


def plain(engine: Engine, prompt: list[int], case: str) -> Sequence:
    sequence = engine.submit(prompt, *CASES[case])
    finish(engine, sequence)
    return sequence


@pytest.mark.parametrize("probability", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_texts_of_several_sequences_are_the_same_and_no_row_is_computed_twice(
    load_any: Callable[..., Engine], case: str, probability: float
) -> None:
    prompts = [IDS, IDS[:1], IDS[20:84], IDS[7:]]
    alone = load_any(threads=1, prefix_cache=False)
    wanted = [plain(alone, prompt, case) for prompt in prompts]
    engine = load_any(parallel=4, prefix_cache=False)
    params, options = CASES[case]
    sequences = []
    for prompt, known in zip(prompts, wanted, strict=True):
        make = lambda text=known.generated: Knowing(text, probability)  # noqa: E731
        sequences.append(engine.submit(prompt, params, replace(options, speculate=make)))
    finish(engine, *sequences)
    assert [told(s) for s in sequences] == [told(s) for s in wanted]
    counts = engine.counts
    assert 0 < counts.accepted_tokens <= counts.draft_tokens
    # Prompts, and for each token that no draft had right the row behind which it was chosen.
    chosen = sum(s.num_generated for s in sequences) - counts.accepted_tokens
    assert counts.rows == sum(map(len, prompts)) + chosen - len(prompts) + counts.draft_tokens
    lookaheads = [s.speculator.lookahead for s in sequences if s.speculator is not None]
    assert sum(k.proposed for k in lookaheads) == counts.draft_tokens
    assert sum(k.accepted for k in lookaheads) == counts.accepted_tokens
    if probability == 1.0 and case in ("greedy", "drawn", "penalties"):  # of others most end early
        assert counts.accepted_tokens > 0.9 * counts.draft_tokens


def test_a_sequence_that_gave_way_goes_on_with_drafts(load_any: Callable[..., Engine]) -> None:
    known = plain(load_any(threads=1), IDS, "drawn")
    engine = load_any()
    params, options = CASES["drawn"]
    options = replace(options, speculate=lambda: Knowing(known.generated, 0.8))
    sequence = engine.submit(IDS, params, options)
    while sequence.num_generated < 20:
        engine.step()
    sequence.paused = True
    engine.step()
    assert engine.num_running == 0
    sequence.paused = False
    finish(engine, sequence)
    assert told(sequence) == told(known)
    assert engine.counts.preemptions == 1


def test_a_draft_that_is_always_right_costs_few_steps(load_any: Callable[..., Engine]) -> None:
    known = plain(load_any(threads=1), IDS, "drawn")
    engine = load_any()
    params, options = CASES["drawn"]
    make = lambda: Knowing(known.generated, 1.0, length=9)  # noqa: E731
    sequence = engine.submit(IDS, params, replace(options, speculate=make))
    finish(engine, sequence)
    assert told(sequence) == told(known)
    assert engine.counts.steps < 15
