"""The chooser: greedy, the classical filters through draws, randomness by its vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oxibonsai import SamplingParams, _core
from oxibonsai.sampling.sampler import Sampler

LOGITS = np.log(np.array([0.5, 0.1, 0.3, 0.1], dtype=np.float32))


def chosen(params: SamplingParams, logits: np.ndarray = LOGITS, n: int = 2000) -> set[int]:
    sampler = Sampler(params)
    return {sampler.choose(logits, [], step) for step in range(n)}


def random_words(key: tuple[int, int], n: int) -> list[int]:
    """MLX's layout of n outputs over counters (tests/truth/README.md)."""
    half, odd = n // 2, n % 2
    words = [0] * n
    for i in range(half):
        words[i], words[i + half + odd] = _core.threefry2x32(*key, i, i + half + odd)
    if odd:
        words[half] = _core.threefry2x32(*key, half, 0)[0]
    return words


def test_threefry_gives_the_words_of_another_implementation(truth_folder: Path) -> None:
    vectors = json.loads((truth_folder / "threefry.json").read_text())
    for seed, splits in vectors["split"].items():
        key = (int(seed) >> 32, int(seed) & 0xFFFFFFFF)
        assert list(key) == vectors["keys"].get(seed, list(key))
        for count, keys in splits.items():
            assert random_words(key, 2 * int(count)) == [w for pair in keys for w in pair]


def test_threefry_gives_the_published_answers() -> None:
    # Random123's own known answers.
    assert _core.threefry2x32(0, 0, 0, 0) == (0x6B200159, 0x99BA4EFE)
    ones = 0xFFFFFFFF
    assert _core.threefry2x32(ones, ones, ones, ones) == (0x1CB996FC, 0xBB002BE7)
    assert _core.threefry2x32(0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3) == (
        0xC4923A9C,
        0x483DF7A0,
    )


def test_temperature_zero_takes_the_first_of_the_largest() -> None:
    assert Sampler(SamplingParams(temperature=0)).choose(np.float32([1, 3, 3, 0]), [], 0) == 1


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(temperature=1, top_k=0, top_p=1, seed=1), {0, 1, 2, 3}),
        (SamplingParams(temperature=1, top_k=2, top_p=1, seed=1), {0, 2}),
        (SamplingParams(temperature=1, top_k=3, top_p=1, seed=1), {0, 1, 2}),
        (SamplingParams(temperature=1, top_k=0, top_p=0.5, seed=1), {0}),
        (SamplingParams(temperature=1, top_k=0, top_p=0.75, seed=1), {0, 2}),
        (SamplingParams(temperature=1, top_k=0, top_p=0.85, seed=1), {0, 1, 2}),
        (SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0.5, seed=1), {0, 2}),
        (SamplingParams(temperature=1, top_k=0, top_p=1, min_p=1.0, seed=1), {0}),
        (SamplingParams(temperature=1, top_k=0, top_p=1e-9, seed=1), {0}),
    ],
)
def test_filters_keep_what_they_should(params: SamplingParams, kept: set[int]) -> None:
    assert chosen(params) == kept


def test_the_repetition_window_is_the_last_tokens() -> None:
    params = SamplingParams(temperature=0, repetition_penalty=10.0, repetition_window=1)
    assert Sampler(params).choose(np.float32([3.0, 2.0, 1.0]), [0, 2], 0) == 0
    assert Sampler(params).choose(np.float32([3.0, 2.0, 1.0]), [2, 0], 0) == 1


def test_a_draw_is_a_function_of_seed_and_step() -> None:
    params = SamplingParams(temperature=1, top_k=0, top_p=1, seed=7)
    first, second = Sampler(params), Sampler(params)
    forward = [first.choose(LOGITS, [], t) for t in range(50)]
    backward = [second.choose(LOGITS, [], t) for t in reversed(range(50))]
    assert forward == backward[::-1]
    other = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, seed=8))
    assert forward != [other.choose(LOGITS, [], t) for t in range(50)]


def test_uniforms_lie_in_the_unit_interval() -> None:
    values = np.array([_core.uniform(3, i) for i in range(10_000)])
    assert 0.0 <= values.min() < 0.001
    assert 0.999 < values.max() < 1.0
    assert abs(values.mean() - 0.5) < 0.01


def test_top_k_is_sorted_with_ties_by_id() -> None:
    assert _core.top_k(np.float32([1, 5, 5, 0, 5]), 3).tolist() == [1, 2, 4]
    assert _core.top_k(np.float32([1, 2]), 10).tolist() == [1, 0]
