"""Drafts, beams and files of models with recurrent state: it goes back to where a text goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
import recurrent_model
from oxibonsai import CapacityError
from oxibonsai.engine import (
    DraftModel,
    NgramSpeculator,
    Options,
    beam_search,
    restore,
    save,
)
from recurrent_model import (
    DRAWN,
    GREEDY,
    IDS,
    FixedDraft,
    Load,
    assert_all_given_back,
    finish,
    run,
    told,
)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("keep", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("wrong", [1, 2, 3, 10, 1000])
def test_rejected_drafts_leave_no_trace(
    load: Load, alone: tuple[object, ...], wrong: int, keep: bool, parallel: int
) -> None:
    engine = load(prefix_cache=keep, parallel=parallel)
    text = list(alone[0])  # type: ignore[call-overload]
    for i in range(0, len(text), wrong):
        text[i] = (text[i] + 1) % 256
    options = Options(speculate=lambda: FixedDraft(text))
    others = [engine.submit(IDS[i:], DRAWN, options) for i in range(1, parallel)]
    sequence = engine.submit(IDS, DRAWN, options)
    before = engine.counts.steps
    finish(engine, sequence, *others)
    assert told(sequence) == alone
    if (wrong, parallel) == (1000, 1):
        assert engine.counts.steps - before < 40
    (after,) = run(engine, [*IDS, *sequence.generated, 5])
    assert after.num_cached == (279 if keep else 0)
    assert told(after) == told(run(load(prefix_cache=False), [*IDS, *sequence.generated, 5])[0])


def test_n_grams_change_no_text(load: Load) -> None:
    prompt = IDS[:50] * 3
    (wanted,) = run(load(), prompt, params=GREEDY)
    engine = load()
    sequence = engine.submit(prompt, GREEDY, Options(speculate=NgramSpeculator))
    finish(engine, sequence)
    assert told(sequence) == told(wanted)


@pytest.mark.parametrize("same", [True, False], ids=["same", "other"])
def test_a_recurrent_model_drafts(
    load: Load, recurrent_path: Path, tmp_path: Path, same: bool
) -> None:
    prompts = [IDS, IDS[20:100]]
    small = (
        recurrent_path if same else recurrent_model.write(tmp_path / "s.gguf", "toyhybrid", seed=2)
    )
    wanted = [told(s) for s in run(load(), *prompts)]
    engine, draft = load(), oxibonsai.load(small, threads=1, parity="off")
    options = Options(speculate=DraftModel(draft, engine, threshold=0.0, length=5).speculator)
    sequences = [engine.submit(p, DRAWN, options) for p in prompts]
    before = engine.counts.steps
    finish(engine, *sequences)
    assert [told(s) for s in sequences] == wanted
    assert_all_given_back(draft)
    assert (engine.counts.steps - before < 50) == same  # every proposal is right


def test_beams_have_the_logits_of_their_texts(load: Load) -> None:
    engine = load()
    beams = beam_search(engine, IDS[:100], width=3, max_new_tokens=12, stop_token_ids=[])
    assert_all_given_back(engine)
    assert len({tuple(b.tokens) for b in beams}) == 3
    for beam in beams:
        rows = engine.logits(IDS[:100] + beam.tokens)[99:-1].astype(np.float64)
        logs = rows - np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1, keepdims=True))
        logs -= rows.max(-1, keepdims=True)
        sum_of = sum(logs[i, t] for i, t in enumerate(beam.tokens))
        assert beam.score * len(beam.tokens) == pytest.approx(sum_of, rel=1e-5)


def test_too_many_beams_are_an_error_that_names_the_slots(load: Load) -> None:
    engine = load(parallel=1, ctx_checkpoints=0)
    with pytest.raises(CapacityError, match=r"all 13 slots of recurrent state, .* bytes each"):
        beam_search(engine, IDS[:10], width=14, max_new_tokens=5, stop_token_ids=[])
    assert_all_given_back(engine)


@pytest.mark.parametrize("keep", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("steps", [0, 1, 30, 57, 58, 500])
def test_a_saved_text_goes_on_in_another_engine(
    load: Load, tmp_path: Path, alone: tuple[object, ...], steps: int, keep: bool
) -> None:
    engine = load(prefix_cache=keep)
    sequence = engine.submit(IDS, DRAWN)
    for _ in range(steps):
        engine.step()
    saved = save(engine, sequence, tmp_path / "s")
    if keep:
        assert saved == {0: 0, 1: 192, 500: 279}.get(steps, 198 + steps)
    finish(engine, sequence)
    other = load()
    restored = restore(other, tmp_path / "s")
    assert restored.computed == saved
    finish(other, restored.sequence)
    assert told(restored.sequence) == alone
    longer = [*IDS, *restored.sequence.generated, 5]
    (again,), (wanted,) = run(other, longer), run(load(prefix_cache=False), longer)
    assert again.num_cached == (279 if keep or steps < 500 else 0)
    assert told(again) == told(wanted)


def test_a_file_that_finds_no_slot_is_an_error_and_takes_none(load: Load, tmp_path: Path) -> None:
    engine = load()
    sequence = engine.submit(IDS, DRAWN)
    engine.step()
    save(engine, sequence, tmp_path / "s")
    full = load(parallel=1, ctx_checkpoints=0)
    held = [full.submit(IDS, DRAWN)]
    full.step()
    taken = full.cache.slots
    assert taken is not None
    others = [taken.take() for _ in range(taken.plan.slots - 1)]
    with pytest.raises(CapacityError, match="slots of recurrent state"):
        restore(full, tmp_path / "s")
    for index in others:
        taken.give_back(index)
    finish(full, *held)
