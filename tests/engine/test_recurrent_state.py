"""Recurrent state is a matter of the engine alone: however a text is run, it is the same to the byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oxibonsai
import recurrent_model
from oxibonsai import CapacityError, RequestError, _core
from oxibonsai.cli.info import describe
from oxibonsai.engine import (
    ContextShift,
    Options,
    engine_core,
    submit_samples,
    windows,
)
from oxibonsai.engine.batching import make_batch, reserve
from oxibonsai.engine.scheduler import Chunk
from oxibonsai.hf.rows import Rows
from oxibonsai.imatrix import collection
from oxibonsai.loading import open_model
from recurrent_model import DRAWN, GREEDY, IDS, Load, assert_all_given_back, finish, run, told


@pytest.mark.parametrize("rows", [1, 7, 64, 256])
@pytest.mark.parametrize("keep", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("beside", [1, 4])
def test_a_text_is_the_one_it_has_alone(
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    alone: tuple[object, ...],
    beside: int,
    keep: bool,
    rows: int,
) -> None:
    monkeypatch.setattr(engine_core, "DEFAULT_CHUNK", rows)
    engine = load(parallel=beside, prefix_cache=keep)
    others = [IDS[i:90] for i in range(1, beside)]
    *_, first = run(engine, *others, IDS)
    *_, again = run(engine, *others, IDS)
    assert [told(first), told(again)] == [alone, alone]
    assert (first.num_cached, again.num_cached) == (0, 192 if keep else 0)


def test_every_tier_gives_the_same_text(load: Load, alone: tuple[object, ...]) -> None:
    load(parity="full")
    for tier in _core.cpu.tiers():
        engine = load()
        model = engine.model
        model.programs = {model.main_pass: model.device.with_tier(tier).compile(model.graph)}
        assert told(run(engine, IDS)[0]) == alone
        assert told(run(engine, IDS)[0]) == alone  # from a snapshot


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_logits_do_not_depend_on_the_chunk(load: Load, size: int) -> None:
    engine = load(parallel=2)
    wanted = engine.logits(IDS).tobytes()
    assert engine.logits(IDS, size).tobytes() == wanted
    texts = [IDS, IDS[:70], IDS[5:150]]  # more than the engine has slots for at once
    for ids, rows in zip(texts, engine.logits_batch(texts, size), strict=True):
        assert rows.tobytes() == engine.logits(ids).tobytes()
    assert_all_given_back(engine)


def test_a_beginning_is_found_up_to_a_snapshot(load: Load) -> None:
    engine, without = load(), load(prefix_cache=False)
    run(engine, IDS)  # 279 tokens computed: snapshots at 192, the prompt's last border, 256 and 279
    for prompt, found in [
        (IDS, 192),
        ([*IDS[:192], 7], 192),
        (IDS[:192], 0),  # the logits after the last token are wanted
        ([*IDS[:150], 1, 2, 3], 128),  # which the one before has left there
        (IDS[:100], 0),
    ]:
        (sequence,), (wanted,) = run(engine, prompt), run(without, prompt)
        assert sequence.num_cached == found, len(prompt)
        assert told(sequence) == told(wanted)


def test_what_was_generated_is_found_too(load: Load) -> None:
    engine = load()
    (first,) = run(engine, IDS)
    longer = [*IDS, *first.generated, 9]
    (second,) = run(engine, longer)
    assert second.num_cached == 279  # all of it: the last token was never read
    assert told(second) == told(run(load(prefix_cache=False), longer)[0])


def test_a_text_leaves_snapshots_of_its_end_and_of_its_prompt(load: Load) -> None:
    engine = load(ctx_checkpoints=8)
    assert engine.cache.store is not None
    (first,) = run(engine, IDS, params=replace(DRAWN, max_tokens=280))
    assert engine.cache.store.num_snapshots == 3  # 192; 256, the interval; 479
    # Its pages are there up to 384, but the state only at 256.
    text = [*IDS, *first.generated]
    (second,) = run(engine, text[:400])
    assert second.num_cached == 256
    assert told(second) == told(run(load(prefix_cache=False), text[:400])[0])


def test_snapshots_stay_within_their_number_and_the_oldest_go(load: Load) -> None:
    engine = load(parallel=1, ctx_checkpoints=4)  # of two prompts: at 64 and at the end
    assert engine.cache.store is not None
    short = replace(DRAWN, max_tokens=1)
    for first in range(4):
        run(engine, [first, *IDS[:100]], params=short)
        assert engine.cache.store.num_snapshots <= 4
    found = [run(engine, [i, *IDS[:100]], params=short)[0].num_cached for i in (3, 2)]
    assert found == [64, 64]
    assert run(engine, [0, *IDS[:100]], params=short)[0].num_cached == 0


def test_no_snapshots_may_be_kept(load: Load, alone: tuple[object, ...]) -> None:
    engine = load(ctx_checkpoints=0)
    first, again = run(engine, IDS)[0], run(engine, IDS)[0]
    assert [told(first), told(again)] == [alone, alone]
    assert again.num_cached == 0


@pytest.mark.parametrize("keep", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("length", [129, 192, 193, 200])
def test_samples_of_one_prompt_are_the_texts_of_their_seeds(
    load: Load, keep: bool, length: int
) -> None:
    prompt = IDS[:length]
    engine, without = load(prefix_cache=keep), load(prefix_cache=False)
    samples = submit_samples(engine, prompt, DRAWN, n=3)
    finish(engine, *samples)
    border = (length - 1) // 64 * 64
    assert [s.num_cached for s in samples] == ([0, border, border] if keep else [0, 0, 0])
    for i, s in enumerate(samples):
        (wanted,) = run(without, prompt, params=replace(DRAWN, seed=11 + i))
        assert told(s) == told(wanted)


def test_short_memory_changes_no_text(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six texts and slots for two: latecomers wait, and those that give way go on later."""
    monkeypatch.setattr(engine_core, "DEFAULT_CHUNK", 32)
    prompts = [IDS[i : i + 90] for i in range(0, 60, 10)]
    narrow = load(parallel=2, ctx_size=128)
    longer = replace(DRAWN, max_tokens=38)
    wanted = [told(s) for s in run(load(parallel=6), *prompts, params=longer)]
    assert [told(s) for s in run(narrow, *prompts, params=longer)] == wanted


def test_a_preempted_text_goes_on_from_its_last_snapshot(
    load: Load, alone: tuple[object, ...]
) -> None:
    engine = load()
    sequence = engine.submit(IDS, DRAWN)
    steps = 0
    while not sequence.finished:
        engine.step()
        steps += 1
        sequence.paused = steps % 20 == 0
        if sequence.paused:
            engine.step()
            assert_all_given_back(engine)
            sequence.paused = False
            engine.step()
            assert sequence.num_computed >= 192
    assert engine.counts.preemptions > 2
    assert told(sequence) == alone


def test_sequences_give_way_where_pages_run_out(load: Load) -> None:
    prompts = [IDS[i : i + 60] for i in range(0, 40, 10)]
    long = replace(DRAWN, max_tokens=200)
    wanted = [told(s) for s in run(load(parallel=4), *prompts, params=long)]
    engine = load(parallel=4)
    cache = engine.cache
    cache.pages.budget = min(cache.budget, 8 * cache.pools[0].page_bytes) if cache.pools else 0
    assert [told(s) for s in run(engine, *prompts, params=long)] == wanted
    assert (engine.counts.preemptions > 0) == bool(cache.pools)


def test_a_context_shift_begins_with_an_empty_state(load: Load) -> None:
    engine = load(ctx_size=128)
    params = replace(GREEDY, max_tokens=150)
    sequence = engine.submit(IDS[:60], params, Options(shift=ContextShift(sinks=4, window=60)))
    finish(engine, sequence)
    text = IDS[:60] + sequence.generated
    kept = IDS[:4] + text[68:128]
    (rest,) = run(load(), kept, params=replace(GREEDY, max_tokens=64))
    assert sequence.generated[68:132] == rest.generated
    assert sequence.logprobs[68:132] == rest.logprobs


@pytest.mark.parametrize("positions", [199, 193, 192, 191, 150, 64, 63, 1, 0])
def test_a_sequence_goes_back_to_any_position(load: Load, positions: int) -> None:
    engine = load()
    cache = engine.cache
    sequence = engine.make_sequence(IDS, DRAWN, Options())
    other = [*IDS[:positions], *reversed(IDS[positions:])]
    wanted = {True: engine.logits(IDS), False: engine.logits(other)}
    for text in (IDS, other):
        while sequence.num_computed < len(text):
            first = sequence.num_computed
            stops = cache.stops(len(text))
            count = cache.chunk_end(sequence.table, first, len(text) - first, stops) - first
            chunk = Chunk(sequence, first, count)
            reserve(cache, sequence.table, first, count)
            batch = make_batch([chunk], all_rows=True)
            rows = engine.model.run(batch, cache.pools, cache.slot_memory)
            assert rows.tobytes() == wanted[text is IDS][first : first + count].tobytes()
            sequence.num_computed = first + count
            cache.remember(sequence.table, text, sequence.num_computed, stops=stops)
        if text is IDS:
            reached = cache.rewind(sequence.table, positions)
            assert reached == (192 if positions >= 192 else 0)
            sequence.num_computed = reached
            sequence.tokens = other
    cache.release(sequence.table)
    assert_all_given_back(engine)
    # What was there before is found unchanged.
    (first_text,) = run(engine, IDS)
    assert told(first_text) == told(run(load(prefix_cache=False), IDS)[0])


def test_a_step_that_skips_tokens_is_refused(load: Load) -> None:
    engine = load()
    sequence = engine.make_sequence(IDS, DRAWN, Options())
    reserve(engine.cache, sequence.table, 0, 10)
    make_batch([Chunk(sequence, 0, 10)])
    with pytest.raises(RuntimeError, match=r"begins at position 9 .* has read 10 tokens"):
        make_batch([Chunk(sequence, 9, 3)])


def test_embeddings_depend_on_their_own_text(load: Load) -> None:
    engine = load()
    texts = [IDS, IDS[:3], IDS[10:100], *([i, *IDS[:20]] for i in range(40))]
    together = engine.embed(texts)
    for text, vector in zip(texts[::7], together[::7], strict=True):
        assert engine.embed([text])[0].tobytes() == vector.tobytes()


def test_replicas_have_slots_of_their_own(load: Load, alone: tuple[object, ...]) -> None:
    engines = oxibonsai.engine.loading.replicate(load(), 2)
    assert [told(run(e, IDS)[0]) for e in engines] == [alone, alone]
    plans = [e.cache.slots.plan for e in engines if e.cache.slots is not None]
    assert plans[0] == plans[1]


def test_forgetting_a_text_drops_its_snapshots(load: Load) -> None:
    engine = load()
    (sequence,) = run(engine, IDS)
    with engine.lock:
        assert engine.cache.forget(sequence.tokens) == 279
    assert engine.cache.store is not None
    assert engine.cache.store.num_snapshots == 0
    assert run(engine, IDS)[0].num_cached == 0


def test_checkpoints_are_refused_where_there_is_no_state(tiny_path: Path, load: Load) -> None:
    with pytest.raises(RequestError, match="keeps no recurrent state"):
        oxibonsai.load(tiny_path, ctx_checkpoints=3)
    with pytest.raises(RequestError, match="ctx_checkpoints is -1"):
        load(ctx_checkpoints=-1)


def test_without_a_prefix_cache_there_is_no_room_for_snapshots(load: Load) -> None:
    slots = load(prefix_cache=False, parallel=2).cache.slots
    assert slots is not None
    assert slots.memory.slots == slots.plan.slots == 2 * (1 + slots.plan.spare)
    with pytest.raises(RequestError, match="prefix cache, which is off"):
        load(prefix_cache=False, ctx_checkpoints=3)


def test_what_hugging_face_s_loop_keeps_goes_back_and_branches(load: Load) -> None:
    engine = load()
    rows = Rows(engine)

    def results(new: list[list[int]]) -> list[bytes]:
        def run(batch: Any, pools: Any, slots: Any, images: bool) -> dict[str, Any]:
            return {"logits": engine.model.run(batch, pools, slots, images=images)}

        return [r["logits"].tobytes() if r else b"" for r in rows.feed(new, run)]

    texts = [IDS[:100], IDS[:100], IDS[50:80]]
    assert results(texts) == [engine.logits(t).tobytes() for t in texts]
    rows.crop(0, 70)
    rows.crop(2, 10)
    new = [[7], IDS[100:103], []]
    wanted = [[*IDS[:70], 7], IDS[:103]]
    assert results(new) == [
        *(engine.logits(t)[-n:].tobytes() for t, n in zip(wanted, (1, 3), strict=True)),
        b"",
    ]
    rows.select([1, 2, 1])
    texts = [[*IDS[:103], 1, 2], [*IDS[50:60], 3], [*IDS[:103], 4]]
    assert results([[1, 2], [3], [4]]) == [
        engine.logits(t)[-n:].tobytes() for t, n in zip(texts, [2, 1, 1], strict=True)
    ]
    rows.clear()
    assert_all_given_back(engine)


def test_a_choice_of_rows_without_room_leaves_them_as_they_were(load: Load) -> None:
    engine = load(parallel=1, ctx_checkpoints=0)
    rows = Rows(engine)

    def run(batch: Any, pools: Any, slots: Any, images: bool) -> dict[str, Any]:
        return {"logits": engine.model.run(batch, pools, slots, images=images)}

    rows.feed([IDS[:70]], run)
    assert engine.cache.slots is not None
    with pytest.raises(CapacityError, match="slots of recurrent state"):
        rows.select([0] * (engine.cache.slots.plan.slots + 1))
    (result,) = rows.feed([[7]], run)
    assert result["logits"].tobytes() == engine.logits([*IDS[:70], 7])[-1:].tobytes()
    rows.clear()
    assert_all_given_back(engine)


def test_an_importance_matrix_is_that_of_any_step(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load()
    found = []
    for size in (256, 7):
        monkeypatch.setattr(windows, "_STEP_ROWS", size)
        *_, last = collection.collect(engine, [IDS[:100], IDS[100:]])
        found.append({n: e.squares.tobytes() for n, e in last.entries.items()})
    assert found[0] == found[1]
    assert_all_given_back(engine)


def test_info_counts_the_bytes_of_a_slot(recurrent_path: Path) -> None:
    facts = describe(open_model(recurrent_path))
    floats = recurrent_model.HIDDEN * sum(taps - 1 for taps in recurrent_model.TAPS)
    assert facts["slot_bytes"] == 4 * floats
    page = 2 * recurrent_model.KV_HEADS * recurrent_model.HEAD_DIM * 4
    assert facts["kv_bytes_per_token"] == (page if "hybrid" in facts["architecture"] else 0)
