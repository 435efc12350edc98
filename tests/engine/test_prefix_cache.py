"""Equal beginnings are computed once, and no text is changed by that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.engine import Engine, submit_samples

IDS = [int(i) for i in np.random.default_rng(1).integers(0, 256, 200)]
DRAWN = SamplingParams(temperature=1, top_k=0, top_p=1, seed=5, max_tokens=70, ignore_eos=True)


@pytest.fixture
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


def run(engine: Engine, *prompts: list[int]) -> list[oxibonsai.engine.Sequence]:
    sequences = [engine.submit(p, DRAWN) for p in prompts]
    while not all(s.finished for s in sequences):
        engine.step()
    return sequences


def test_texts_are_the_same_with_and_without_it(tiny_path: Path, engine: Engine) -> None:
    without = oxibonsai.load(tiny_path, prefix_cache=False)
    prompts = [IDS, IDS[:130], [*IDS[:150], 1, 2, 3], IDS]
    for prompt in prompts:
        (expected,), (found,) = run(without, prompt), run(engine, prompt)
        assert found.generated == expected.generated
    assert expected.num_cached == 0
    assert found.num_cached == 192


def test_what_was_generated_is_found_too(engine: Engine) -> None:
    (first,) = run(engine, IDS)
    (second,) = run(engine, [*IDS, *first.generated, 9])
    assert second.num_cached == 256  # 269 tokens have keys and values: four full pages


def test_sequences_that_run_now_share_with_those_that_come(engine: Engine) -> None:
    first = engine.submit(IDS, DRAWN)
    for _ in range(5):
        engine.step()
    second = engine.submit(IDS, DRAWN)
    engine.step()
    assert second.table.pages[:3] == first.table.pages[:3]
    while not second.finished:
        engine.step()
    assert first.generated == second.generated


def test_samples_of_one_prompt_compute_it_once_and_are_the_texts_of_their_seeds(
    engine: Engine, tiny_path: Path
) -> None:
    samples = submit_samples(engine, IDS, DRAWN, n=4)
    rows = 0
    while not all(s.finished for s in samples):
        before = [s.num_computed for s in samples]
        engine.step()
        rows += sum(max(s.num_computed - b, 0) for s, b in zip(samples, before, strict=True))
    assert [s.num_cached for s in samples] == [0, 199, 199, 199]
    alone = oxibonsai.load(tiny_path, prefix_cache=False)
    for i, s in enumerate(samples):
        params = SamplingParams(
            temperature=1, top_k=0, top_p=1, seed=5 + i, max_tokens=70, ignore_eos=True
        )
        assert s.generated == list(alone.generate_tokens(IDS, params))
    assert len({tuple(s.generated) for s in samples}) == 4


def test_a_sample_that_waits_for_its_prompt_keeps_nobody_waiting(engine: Engine) -> None:
    samples = submit_samples(engine, IDS * 2, DRAWN, n=2)  # its prompt takes two steps
    later = engine.submit(IDS[:5], DRAWN)
    engine.step()
    engine.step()
    assert [s.num_computed > 0 for s in samples] == [True, False]
    assert later.num_generated == 1
    while not all(s.finished for s in [*samples, later]):
        engine.step()
    assert [s.num_cached for s in samples] == [0, len(IDS * 2) - 1]
    assert later.generated == run(engine, IDS[:5])[0].generated


def test_samples_outlive_the_first_of_them(engine: Engine) -> None:
    samples = submit_samples(engine, IDS, DRAWN, n=3)
    engine.cancel(samples[0])
    while not all(s.finished for s in samples):
        engine.step()
    assert [s.finish_reason for s in samples] == ["cancelled", "length", "length"]
    assert samples[1].num_generated == 70


def test_short_memory_changes_no_text(tiny_path: Path) -> None:
    """Eight texts in room for one and a half: latecomers wait, some give way and start again."""
    roomy, narrow = oxibonsai.load(tiny_path, parallel=8), oxibonsai.load(tiny_path, parallel=1)
    prompts = [IDS[i : i + 90] for i in range(0, 80, 10)]
    expected = [s.generated for s in run(roomy, *prompts)]
    assert [s.generated for s in run(narrow, *prompts)] == expected
    assert narrow.cache.used_bytes == 0
