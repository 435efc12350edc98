"""What goes wrong with one sequence stays with it: the others and the engine go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
import tiny_model
from oxibonsai import CapacityError, RequestError, SamplingParams
from oxibonsai.engine import DraftModel, Engine, EngineRunner, Options, beam_search
from oxibonsai.engine.text import TextOutput
from oxibonsai.structured import Structure

IDS = [int(i) for i in np.random.default_rng(8).integers(0, 256, 400)]
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


def finish(engine: Engine, sequence: oxibonsai.engine.Sequence) -> None:
    while not sequence.finished:
        engine.step()


def test_a_draft_that_has_no_way_on_ends_no_other_text(engine: Engine, tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "other.gguf", seed=9)
    draft = DraftModel(oxibonsai.load(tmp_path / "other.gguf"), engine, threshold=0.0, length=4)
    alone = list(engine.generate_tokens(IDS[:10], GREEDY))
    # After "aaaa" the structure wants what the request bans.
    banned = tuple(engine.tokenizer.encode("b"))
    hopeless = engine.submit(
        IDS[:10],
        replace(GREEDY, banned_tokens=banned),
        Options(structure=Structure.regex("aaaab"), speculate=draft.speculator),
    )
    beside = engine.submit(IDS[:10], GREEDY)
    finish(engine, hopeless)
    finish(engine, beside)
    assert hopeless.finish_reason == "error"
    assert hopeless.text == "aaaa"
    with pytest.raises(RequestError, match="no token is left"):
        hopeless.raise_error()
    assert beside.generated == alone


def test_a_sequence_that_finds_no_page_fails_alone(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, parallel=1)
    runner = EngineRunner(engine)
    try:
        rows = engine.iter_logits(IDS, chunk_size=300)
        next(rows)
        unlucky = engine.submit(IDS, GREEDY)
        while not unlucky.finished:
            engine.advance(unlucky, timeout=1.0)
        with pytest.raises(CapacityError, match="the KV cache is full"):
            unlucky.raise_error()
        list(rows)  # gives its pages back
        assert runner.failure is None
        assert len(list(engine.generate_tokens(IDS, GREEDY))) == 20
    finally:
        runner.close()
    assert engine.cache.used_bytes == 0


def test_whoever_sees_the_end_of_a_text_finds_all_of_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TextOutput.finish
    seen: list[bool] = []
    middle = "".join(engine.generate(IDS[:10], GREEDY))[3:5]

    def spy(output: TextOutput) -> None:
        seen.append(sequence.finished)
        whole(output)

    monkeypatch.setattr(TextOutput, "finish", spy)
    for params, options in (
        (GREEDY, None),
        (replace(GREEDY, stop=(middle,)), None),
        (replace(GREEDY, ignore_eos=False, logit_bias={257: 100.0}), None),
        (GREEDY, Options(structure=Structure.choice(["abc"]))),
    ):
        sequence = engine.submit(IDS[:10], params, options)
        finish(engine, sequence)
    assert seen == [False] * 4


@pytest.mark.parametrize("ids", [[1.5, 2], "abc", [None], np.ones((2, 2)), [[1]], 5])
def test_a_prompt_of_anything_but_integers_is_refused(engine: Engine, ids: object) -> None:
    with pytest.raises(RequestError, match="token ids"):
        engine.submit(ids, GREEDY)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="token ids"):
        engine.logits_batch([ids])  # type: ignore[arg-type]


def test_integers_of_numpy_are_plain_ones_inside(engine: Engine) -> None:
    sequence = engine.submit(np.arange(5), GREEDY)  # type: ignore[arg-type]
    engine.cancel(sequence)
    assert {type(i) for i in sequence.tokens} == {int}


@pytest.mark.parametrize("penalty", [1e9, -1e9, 33.0, float("nan"), float("inf")])
def test_a_length_penalty_that_overflows_is_refused(engine: Engine, penalty: float) -> None:
    with pytest.raises(RequestError, match="length_penalty"):
        beam_search(engine, IDS[:5], length_penalty=penalty)


def test_a_structure_that_may_only_end_does_so_before_min_tokens(engine: Engine) -> None:
    for structure, text in ((Structure.regex(""), ""), (Structure.choice(["abc"]), "abc")):
        sequence = engine.submit(
            IDS[:10], replace(GREEDY, min_tokens=10), Options(structure=structure)
        )
        finish(engine, sequence)
        assert (sequence.text, sequence.finish_reason) == (text, "stop")


def test_a_structure_is_complete_or_was_cut(engine: Engine) -> None:
    def complete(params: SamplingParams, structure: Structure) -> bool:
        sequence = engine.submit(IDS[:10], params, Options(structure=structure))
        finish(engine, sequence)
        return sequence.complete

    words = Structure.choice(["abcabc"])
    assert complete(GREEDY, words)
    assert not complete(replace(GREEDY, stop=("ca",)), words)
    assert not complete(replace(GREEDY, stop=("abc",)), words)
    assert not complete(replace(GREEDY, max_tokens=1), words)
    assert complete(replace(GREEDY, max_tokens=3), Structure.regex("[a-z]*"))
