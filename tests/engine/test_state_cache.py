"""Prompts go on from the state that is kept of their beginnings, with the bytes that they have without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import recurrent_model
from oxibonsai import RequestError
from oxibonsai.engine import Engine, Options, Sequence
from recurrent_model import DRAWN, IDS, Load, assert_all_given_back, finish, run, told

SHORT = replace(DRAWN, max_tokens=1)


def run_with_turns(engine: Engine, prompt: list[int], borders: tuple[int, ...]) -> Sequence:
    sequence = engine.submit(prompt, SHORT, Options(borders=borders))
    finish(engine, sequence)
    return sequence


@pytest.mark.parametrize("position", [1, 3, 63, 64, 65, 100, 127, 129, 191, 193, 199])
def test_a_prompt_goes_on_from_any_position(load: Load, position: int) -> None:
    engine = load()
    run_with_turns(engine, IDS, (position,))
    other = [*IDS[:position], *reversed(IDS[position:])]
    (found,), (wanted,) = run(engine, other), run(load(prefix_cache=False), other)
    assert found.num_cached == position
    assert told(found) == told(wanted)
    # And from where that ended.
    longer = [*other, *found.generated, 1, 2]
    (found,), (wanted,) = run(engine, longer), run(load(prefix_cache=False), longer)
    assert found.num_cached == len(longer) - 3
    assert told(found) == told(wanted)


def test_state_is_kept_where_the_first_turn_ends_and_the_last_begins_and_ends(load: Load) -> None:
    cache = load(checkpoint_min_step=4096).cache
    assert cache.stops(200, (10, 50, 90, 130, 190)) == (10, 130, 190)
    assert cache.stops(200, (10, 50, 0, 200)) == (10, 50, 192)  # what follows is long
    assert cache.stops(200) == (192,)
    assert load(cache_ram=0).cache.stops(200, (10, 50)) == ()


def test_a_turn_that_begins_just_behind_a_snapshot_costs_no_step(load: Load) -> None:
    engine = load()
    first = run_with_turns(engine, IDS[:100], (90,))
    before = engine.counts.steps
    # The text ended at 100, the last turn begins at 103.
    (second,) = [run_with_turns(engine, [*first.tokens, *IDS[101:180]], (90, 103, 170))]
    assert second.num_cached == 100
    assert engine.counts.steps - before == 2


def test_an_interval_of_ones_own_is_kept(load: Load) -> None:
    engine = load(checkpoint_min_step=30)
    run(engine, IDS, params=SHORT)
    for length in (35, 65, 119):
        (sequence,) = run(engine, [*IDS[:length], 3], params=SHORT)
        assert sequence.num_cached == length // 30 * 30


def test_pages_that_were_taken_come_back(load: Load) -> None:
    engine = load(parallel=1, ctx_checkpoints=40)
    cache = engine.cache
    if cache.pools:
        cache.pages.budget = 6 * cache.pools[0].page_bytes
    (first,) = run(engine, IDS)
    for i in range(1, 4):
        run(engine, IDS[i:])
    longer = [*IDS, *first.generated, 9]
    (found,), (wanted,) = run(engine, longer), run(load(prefix_cache=False), longer)
    assert found.num_cached == 279
    assert told(found) == told(wanted)


def test_a_damaged_page_is_read_again(load: Load, tmp_path: Path) -> None:
    engine = load(slot_save_path=tmp_path)
    (first,) = run(engine, IDS)
    engine.close()
    longer = [*IDS, *first.generated, 9]
    (wanted,) = run(load(prefix_cache=False), longer)
    names = sorted(f.name for f in tmp_path.glob(".prefix-cache/*/*"))
    assert sum(n.startswith("snapshot") for n in names) == 3
    last = max(tmp_path.glob(".prefix-cache/*/snapshot-*"), key=lambda f: f.stat().st_mtime_ns)
    last.write_bytes(last.read_bytes()[:-1])
    again = load(slot_save_path=tmp_path)
    (found,) = run(again, longer)
    assert found.num_cached == 256
    assert told(found) == told(wanted)


def test_a_new_engine_finds_what_the_last_one_left(load: Load, tmp_path: Path) -> None:
    engine = load(slot_save_path=tmp_path)
    (first,) = run(engine, IDS)
    engine.close()
    longer = [*IDS, *first.generated, 9]
    again = load(slot_save_path=tmp_path)
    (found,), (wanted,) = run(again, longer), run(load(prefix_cache=False), longer)
    assert found.num_cached == 279
    assert told(found) == told(wanted)
    assert_all_given_back(again)


def test_another_model_finds_nothing_there(
    load: Load, recurrent_path: Path, tmp_path: Path
) -> None:
    import oxibonsai

    engine = load(slot_save_path=tmp_path)
    run(engine, IDS)
    engine.close()
    path = recurrent_model.write(tmp_path / "other.gguf", recurrent_path.stem, seed=2)
    other = oxibonsai.load(path, threads=1, parity="off", slot_save_path=tmp_path)
    assert run(other, IDS)[0].num_cached == 0


def test_replicas_share_what_is_kept(load: Load) -> None:
    from oxibonsai.engine.loading import replicate

    first, second = replicate(load(), 2)
    assert first.cache.store is second.cache.store


def test_numbers_out_of_range_are_refused(load: Load, tmp_path: Path) -> None:
    for options, message in (
        ({"cache_ram": -2}, "cache_ram is -2"),
        ({"cache_disk": -1}, "cache_disk is -1"),
        ({"checkpoint_min_step": -1}, "checkpoint_min_step is -1"),
        ({"prefix_cache": False, "cache_ram": 5}, "cache_ram is for the prefix cache"),
        ({"prefix_cache": False, "slot_save_path": tmp_path}, "slot_save_path is for the prefix"),
    ):
        with pytest.raises(RequestError, match=message):
            load(**options)
