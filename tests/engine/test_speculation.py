"""Speculation changes the speed of a text and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oxibonsai
import tiny_model
from oxibonsai import RequestError, SamplingParams
from oxibonsai.engine import DraftModel, Engine, Lookahead, NgramSpeculator, Options
from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.lookahead import StepCosts
from oxibonsai.engine.token_sampling import sample_tokens
from oxibonsai.sampling.sampler import Sampler

IDS = [int(i) for i in np.random.default_rng(2).integers(0, 256, 40)] * 2
GREEDY = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
DRAWN = replace(GREEDY, temperature=0.8, top_k=20, seed=4)


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


class Fixed:
    """Proposes what it was told, right or wrong."""

    def __init__(self, text: list[int], prompt: int) -> None:
        self.lookahead = Lookahead(8)
        self.shared = self.reader = None
        self.text, self.prompt = text, prompt

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        done = sequence.num_generated
        return self.text[done : done + min(most, 8)]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        DRAWN,
        replace(DRAWN, mirostat=2),
        replace(DRAWN, repetition_penalty=1.3, presence_penalty=0.5, dry_multiplier=0.8),
        replace(DRAWN, logprobs=True, top_logprobs=3),
        replace(DRAWN, xtc_probability=0.5, xtc_threshold=0.05),
        replace(DRAWN, min_tokens=5, stop=("a",), ignore_eos=False),
    ],
    ids=["greedy", "drawn", "mirostat", "penalties", "logprobs", "xtc", "stops"],
)
@pytest.mark.parametrize("errors", [0, 1, 3, 60])
def test_texts_are_the_same_however_many_proposals_are_wrong(
    engine: Engine, params: SamplingParams, errors: int
) -> None:
    plain = engine.submit(IDS, params)
    while not plain.finished:
        engine.step()
    wrong = list(plain.generated)
    for i in np.random.default_rng(errors).permutation(len(wrong))[:errors]:
        wrong[i] = (wrong[i] + 1) % 256
    options = Options(speculate=lambda: Fixed(wrong, len(IDS)))
    guessed = engine.submit(IDS, params, options)
    steps = 0
    while not guessed.finished:
        engine.step()
        steps += 1
    assert guessed.generated == plain.generated
    assert guessed.logprobs == plain.logprobs
    assert guessed.text == plain.text
    assert guessed.finish_reason == plain.finish_reason
    if errors == 0 and plain.num_generated > 20:
        assert steps < plain.num_generated / 4


def test_ngrams_propose_what_followed_the_latest_occurrence() -> None:
    sequence = Sequence([1, 2, 3, 9, 1, 2, 3, 4, 5, 6, 1, 2, 3], SamplingParams(), Options())
    ngrams = NgramSpeculator(longest=3, shortest=2, length=3)
    assert ngrams.propose(sequence, 10) == [4, 5, 6]
    assert ngrams.propose(sequence, 2) == [4, 5]
    sequence.append(8)
    assert ngrams.propose(sequence, 10) == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 5))
def test_ngram_proposals_are_what_a_search_finds(tokens: list[int], step: int) -> None:
    sequence = Sequence(tokens[:1], SamplingParams(), Options())
    ngrams = NgramSpeculator(longest=3, shortest=1, length=4)
    for i, token in enumerate(tokens[1:]):
        sequence.append(token)
        if i % step == 0:
            found = ngrams.propose(sequence, 4)
    text = sequence.history
    found = ngrams.propose(sequence, 4)
    expected: list[int] = []
    for n in (3, 2, 1):
        starts = [s for s in range(len(text) - n) if text[s : s + n] == text[-n:]]
        if n <= len(text) and starts:
            expected = text[starts[-1] + n : starts[-1] + n + 4]
            break
    assert found == expected


def test_ngram_text_is_the_plain_text(engine: Engine) -> None:
    for params in (GREEDY, DRAWN):
        plain = list(engine.generate_tokens(IDS, params))
        options = Options(speculate=NgramSpeculator)
        assert list(engine.generate_tokens(IDS, params, options)) == plain


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_draft_model_changes_no_text_and_a_perfect_one_is_always_right(
    engine: Engine, tiny_path: Path, tmp_path: Path, params: SamplingParams
) -> None:
    tiny_model.write(tmp_path / "other.gguf", seed=9)
    plain = list(engine.generate_tokens(IDS, params))
    for path, perfect in ((tiny_path, True), (tmp_path / "other.gguf", False)):
        draft = DraftModel(oxibonsai.load(path), engine, threshold=0.0, length=4)
        sequence = engine.submit(IDS, params, Options(speculate=draft.speculator))
        assert list(engine.follow_tokens(sequence)) == plain
        assert sequence.speculator is not None
        lookahead = sequence.speculator.lookahead
        assert lookahead.proposed > 0
        assert (lookahead.accepted == lookahead.proposed) == perfect
        assert draft.cache.used_bytes == 0


def test_the_proposals_of_several_sequences_share_the_passes_of_the_draft_model(
    engine: Engine, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [IDS, IDS[7:], IDS[:300:2] * 3, IDS[:9]]
    alone = [list(engine.generate_tokens(p, DRAWN)) for p in prompts]
    draft = DraftModel(oxibonsai.load(tiny_path, parallel=4), engine, threshold=0.0, length=4)
    passes = []
    run = draft.model.run

    def counting(*args: Any) -> np.ndarray:
        passes.append(args)
        return run(*args)

    monkeypatch.setattr(draft.model, "run", counting)
    sequences = [engine.submit(p, DRAWN, Options(speculate=draft.speculator)) for p in prompts]
    while any(s.num_generated == 0 for s in sequences):
        engine.step()
    engine.step()
    while not all(s.finished for s in sequences):
        before = len(passes)
        engine.step()
        assert len(passes) - before <= 4
    assert [s.generated for s in sequences] == alone
    for s in sequences:
        assert s.speculator is not None
        assert s.speculator.lookahead.accepted == s.speculator.lookahead.proposed > 0
    assert draft.cache.used_bytes == 0


def test_a_sequence_without_pages_for_its_proposal_costs_the_others_none(
    engine: Engine, tiny_path: Path
) -> None:
    """The cache of the draft model has room for one of the two."""
    alone = list(engine.generate_tokens(IDS, GREEDY))
    small = oxibonsai.load(tiny_path, ctx_size=192, parallel=1)
    draft = DraftModel(small, engine, threshold=0.0, length=4)
    sequences = [engine.submit(IDS, GREEDY, Options(speculate=draft.speculator)) for _ in "ab"]
    while not all(s.finished for s in sequences):
        engine.step()
    assert [s.generated for s in sequences] == [alone, alone]
    proposed = [s.speculator.lookahead.proposed for s in sequences if s.speculator is not None]
    assert max(proposed) > 0


def test_a_draft_of_another_vocabulary_is_refused(engine: Engine, tmp_path: Path) -> None:
    tokens, types = tiny_model._tokens()
    tokens[-1] = "ba"
    changes = {
        "tokenizer.ggml.tokens": (tokens, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.merges": (["b a"], "arr[str]"),
    }
    tiny_model.write(tmp_path / "other.gguf", changes=changes)
    with pytest.raises(RequestError, match="another vocabulary"):
        DraftModel(oxibonsai.load(tmp_path / "other.gguf"), engine)


class Clock:
    """Steps of an engine whose rows take what is said, of one sequence whose proposals are right so often.

    Args:
        seconds: Of a step, by its rows.
        probability: That a proposed token is right, if those before it are.
        drafting: Seconds of the making of a proposed token.
    """

    def __init__(
        self, seconds: Callable[[int], float], probability: float, drafting: float = 0.0
    ) -> None:
        self.seconds, self.probability, self.drafting = seconds, probability, drafting
        self.costs, self.lookahead = StepCosts(), Lookahead()
        self.random = np.random.default_rng(1)
        self.elapsed, self.tokens = 0.0, 0

    def step(self) -> int:
        length = self.lookahead.plan(self.costs, 1)
        right = self.random.random(length) < self.probability
        accepted = length if right.all() else int(right.argmin())
        times = self.drafting * length, self.seconds(1 + length)
        if length > 0:
            self.lookahead.observe(length, accepted)
        self.costs.observe(1 + length, length, length, *times)
        self.elapsed += sum(times)
        self.tokens += 1 + accepted
        return length

    def speed(self, steps: int = 3000) -> float:
        """Tokens a second, plain decoding's being 1 / seconds(1)."""
        for _ in range(steps):
            self.step()
        return self.tokens / self.elapsed


def memory_bound(rows: int) -> float:
    return 1.0 + 0.02 * (rows - 1)


def compute_bound(rows: int) -> float:
    return float(rows)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("drafting", [0.0, 0.3])
def test_proposals_that_do_not_pay_cost_next_to_nothing(
    probability: float, drafting: float
) -> None:
    assert Clock(compute_bound, probability, drafting).speed() > 0.98


@pytest.mark.parametrize(("probability", "least"), [(0.5, 1.6), (0.8, 3.2), (0.95, 6.0)])
def test_proposals_that_pay_are_nearly_as_long_as_is_best(probability: float, least: float) -> None:
    best = max(sum(probability**i for i in range(n + 1)) / memory_bound(n + 1) for n in range(13))
    assert least < Clock(memory_bound, probability).speed() > 0.9 * best


def test_lengths_follow_what_is_accepted_and_what_steps_cost() -> None:
    clock = Clock(memory_bound, 0.9)
    assert [clock.step() for _ in range(3)] == [0, 0, 0]  # what plain decoding costs
    assert clock.step() == 1  # of many rows at once nothing is known
    for _ in range(100):
        clock.step()
    assert clock.lookahead.length > 6
    clock.probability = 0.0
    lengths = [clock.step() for _ in range(300)]
    assert lengths[-100:].count(0) > 90
    assert any(lengths[-250:])  # it tries again, now and then
    clock.probability = 0.95
    for _ in range(2000):
        clock.step()
    assert clock.lookahead.length > 6
    clock.seconds = compute_bound
    for _ in range(1500):
        clock.step()
    assert clock.lookahead.length <= 1
    with pytest.raises(RequestError, match="from 1 to 64"):
        Lookahead(0)


def test_drafts_that_are_too_short_are_dropped(engine: Engine) -> None:
    plain = list(engine.generate_tokens(IDS, GREEDY))
    for least, proposed in ((3, True), (9, False)):
        fixed = Fixed(plain, len(IDS))
        fixed.lookahead = Lookahead(None, least)
        fixed.lookahead.plan = lambda costs, sequences: 8  # type: ignore[method-assign]
        sequence = engine.submit(IDS, GREEDY, Options(speculate=lambda given=fixed: given))
        assert list(engine.follow_tokens(sequence)) == plain
        assert (fixed.lookahead.proposed > 0) == proposed
    with pytest.raises(RequestError, match="no draft can have 5 tokens"):
        Lookahead(4, 5)


def test_drafts_stop_at_the_context_and_the_token_limit(engine: Engine) -> None:
    params = replace(GREEDY, max_tokens=None)
    plain = list(engine.generate_tokens(IDS, params))
    options = Options(speculate=lambda: Fixed(plain, len(IDS)))
    assert list(engine.generate_tokens(IDS, params, options)) == plain
    assert len(plain) == tiny_model.CONTEXT - len(IDS)


_TARGET, _DRAFT = (
    np.random.default_rng(seed).normal(0, 1, (6, 6)).astype(np.float32) for seed in (1, 2)
)


def _drawn_pair(seed: int) -> tuple[int, int]:
    """Two tokens after token 0 of a model that knows the last token alone, with proposals of another.

    The logits after token i are row i of the target's table, or of the draft's.
    """
    params = SamplingParams(temperature=1, top_k=0, top_p=1, max_tokens=2, seed=seed)
    sequence = Sequence([0], params, Options())
    while not sequence.finished:
        draft = []
        sampler, history = Sampler(params), list(sequence.history)
        for step in range(sequence.num_generated, 2):
            draft.append(sampler.choose(_DRAFT[history[-1]], history, step))
            history.append(draft[-1])
        rows = _TARGET[[sequence.history[-1], *draft]]
        sample_tokens(sequence, rows, draft, frozenset(), 100)
    first, second = sequence.generated
    return first, second


@pytest.mark.long("draws a hundred thousand pairs of tokens")
def test_drawn_text_has_the_distribution_of_the_model_and_not_of_the_draft() -> None:
    """Chi-square of 100k pairs of tokens against the exact distribution."""
    draws = 100_000
    counts = np.zeros((6, 6))
    for seed in range(draws):
        counts[_drawn_pair(seed)] += 1

    def distance(table: np.ndarray) -> float:
        p = np.exp(table.astype(np.float64))
        p /= p.sum(axis=1, keepdims=True)
        expected = draws * p[0][:, None] * p
        return float(((counts - expected) ** 2 / expected).sum())

    assert distance(_TARGET) < 66.6  # 99.9 % of a chi-square with 35 degrees of freedom
    assert distance(_DRAFT) > 1000
