"""Each step on distributions of three to six tokens, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from chain_results import OFF, left_by

from oxibonsai import SamplingParams

LOGITS = np.log(np.float32([0.5, 0.1, 0.3, 0.1]))


def kept(logits: Any = LOGITS, **fields: Any) -> list[int]:
    return sorted(left_by(SamplingParams(**{**OFF, **fields}), logits, chance=0.4))


def test_the_distribution_is_the_softmax() -> None:
    assert left_by(SamplingParams(**OFF), LOGITS) == pytest.approx({0: 0.5, 1: 0.1, 2: 0.3, 3: 0.1})


def test_temperature_sharpens_and_flattens() -> None:
    # Odds of 0.5 : 0.3 squared, and their root.
    p = left_by(SamplingParams(**{**OFF, "temperature": 0.5}), LOGITS)
    assert p[0] / p[2] == pytest.approx(25 / 9)
    p = left_by(SamplingParams(**{**OFF, "temperature": 2.0}), LOGITS)
    assert p[0] / p[2] == pytest.approx(math.sqrt(5 / 3))


def test_dynamic_temperature_is_high_where_all_are_alike_and_low_where_one_stands_out() -> None:
    fields = {**OFF, "dynatemp_range": 0.5}
    p = left_by(SamplingParams(**fields), [0.3, 0.0, 0.3])
    assert p[0] / p[1] == pytest.approx(math.exp(0.3 / 1.5), rel=0.01)
    p = left_by(SamplingParams(**fields), [20.0, 10.0, 10.0])
    assert p[1] / p[0] == pytest.approx(math.exp(-10 / 0.5), rel=0.05)


def test_dynamic_temperature_that_reaches_zero_keeps_the_top() -> None:
    fields = {**OFF, "dynatemp_range": 1.0}
    assert list(left_by(SamplingParams(**fields), [500.0, 0.0, 0.0])) == [0]


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 4]), (4, [0, 1, 2, 4]), (9, [*range(5)])]
)
def test_top_k_breaks_ties_by_lower_id(k: int, expected: list[int]) -> None:
    assert kept([1.0, 5.0, 5.0, 0.0, 5.0], top_k=k) == expected


def test_top_k_sees_the_ties_that_the_temperature_makes() -> None:
    # Two neighbouring floats whose quotients by 3 are the same float: now the lower id wins.
    low = np.float32(1.5)
    while True:
        high = np.nextafter(low, np.float32(2.0))
        if low / np.float32(3) == high / np.float32(3):
            break
        low = high
    assert kept([0.0, low, high], top_k=1, temperature=3.0) == [1]
    assert kept([0.0, low, high], top_k=1) == [2]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # 0.5, then 0.8, then 0.9 of the mass; the tie of 1 and 3 goes to 1.
        ({"top_p": 0.4}, [0]), ({"top_p": 0.75}, [0, 2]), ({"top_p": 0.85}, [0, 1, 2]),
        ({"top_p": 0.95}, [0, 1, 2, 3]), ({"top_p": 1e-9}, [0]),
        # 0.5 * min_p
        ({"min_p": 0.5}, [0, 2]), ({"min_p": 0.15}, [0, 1, 2, 3]), ({"min_p": 1.0}, [0]),
        # 0.25 * top_a
        ({"top_a": 1.0}, [0, 2]), ({"top_a": 0.3}, [0, 1, 2, 3]),
        ({"epsilon_cutoff": 0.2}, [0, 2]), ({"epsilon_cutoff": 0.4}, [0]),
        ({"epsilon_cutoff": 0.05}, [0, 1, 2, 3]), ({"epsilon_cutoff": 0.9}, [0]),
        # H = 1.168: sqrt(e) * exp(-H) is 0.139 at e = 0.2, and 0.278 at 0.8
        ({"eta_cutoff": 0.2}, [0, 2]), ({"eta_cutoff": 0.8}, [0, 2]),
        ({"eta_cutoff": 0.05}, [0, 1, 2, 3]),
        # -ln p is 0.69, 2.30, 1.20, 2.30: off H by 0.48, 1.13, 0.04, 1.13
        ({"typical_p": 0.2}, [2]), ({"typical_p": 0.7}, [0, 2]), ({"typical_p": 0.85}, [0, 1, 2]),
        # chance 0.4 < 0.5: of 0 and 2, only the less likely stays
        ({"xtc_probability": 0.5, "xtc_threshold": 0.2}, [1, 2, 3]),
        ({"xtc_probability": 0.3, "xtc_threshold": 0.2}, [0, 1, 2, 3]),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.4}, [0, 1, 2, 3]),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.05}, [3]),
    ],
)  # fmt: skip
def test_filters_keep_what_they_should(fields: dict[str, Any], expected: list[int]) -> None:
    assert kept(**fields) == expected


def test_repetition_divides_positive_and_multiplies_negative_logits_once() -> None:
    params = SamplingParams(**OFF, repetition_penalty=2.0)
    p = left_by(params, [2.0, -2.0, 1.0], [0, 0, 0, 1])
    q = left_by(SamplingParams(**OFF), [1.0, -4.0, 1.0])
    assert p == q


def test_presence_and_frequency_count_generated_tokens_only() -> None:
    params = SamplingParams(**OFF, presence_penalty=0.5, frequency_penalty=0.25)
    p = left_by(params, [2.0, 2.0, 2.0], [2, 2, 0, 1, 1], generated=3)
    assert p == left_by(SamplingParams(**OFF), [1.25, 1.0, 2.0])
    assert left_by(params, [2.0, 2.0], [0, 1], generated=0) == {0: 0.5, 1: 0.5}


def dry(history: list[int], breakers: set[int] = frozenset(), **fields: Any) -> list[float]:
    """What DRY takes off each of five equal logits."""
    params = SamplingParams(**{**OFF, "dry_multiplier": 1.0, "dry_base": 2.0, **fields})
    p = left_by(params, [0.0] * 5, history, breakers=breakers)
    best = max(p.values())
    return [round(math.log(best / p[i]), 4) for i in range(5)]


def test_dry_takes_off_by_the_length_of_the_passage_before_the_candidate() -> None:
    # "0 1 2" was followed by 3: a passage of three tokens, the candidate not counted.
    assert dry([0, 1, 2, 3, 0, 1, 2], dry_allowed_length=3) == [0, 0, 0, 1, 0]
    assert dry([0, 1, 2, 3, 0, 1, 2], dry_allowed_length=2) == [0, 0, 0, 2, 0]
    assert dry([0, 1, 2, 3, 0, 1, 2], dry_allowed_length=1) == [0, 0, 0, 4, 0]
    assert dry([0, 1, 2, 3, 0, 1, 2], dry_allowed_length=4) == [0, 0, 0, 0, 0]


def test_dry_takes_the_longest_passage_of_each_candidate() -> None:
    # After "1 2": 3 (with 0 before: three tokens) and 4 (two tokens).
    history = [0, 1, 2, 3, 4, 1, 2, 4, 0, 1, 2]
    assert dry(history) == [0, 0, 0, 2, 1]


def test_a_breaker_ends_a_passage() -> None:
    history = [0, 1, 2, 3, 0, 1, 2]
    assert dry(history, {0}) == [0, 0, 0, 1, 0]
    assert dry(history, {1}) == [0, 0, 0, 0, 0]
    assert dry(history, {2}, dry_allowed_length=1) == [0, 0, 0, 0, 0]


def test_dry_looks_at_its_window_only() -> None:
    history = [0, 1, 2, 3, 0, 1, 2]
    assert dry(history, dry_penalty_last_n=6) == [0, 0, 0, 1, 0]
    assert dry(history, dry_penalty_last_n=4) == [0, 0, 0, 0, 0]
    assert dry(history, dry_penalty_last_n=0) == [0, 0, 0, 0, 0]


def test_a_very_long_passage_leaves_numbers() -> None:
    p = left_by(SamplingParams(**OFF, dry_multiplier=5.0, dry_base=9.0), [0.0, 1.0], [1] * 3000)
    assert p == {0: 1.0}


def dry_by_search(history: list[int], breakers: set[int]) -> list[float]:
    """The definition, tried out passage by passage."""
    lengths = [0] * 5
    n = len(history)
    for end in range(n - 1):
        length = 0
        while length <= end and history[end - length] == history[n - 1 - length]:
            if history[n - 1 - length] in breakers:
                break
            length += 1
        following = history[end + 1]
        lengths[following] = max(lengths[following], length)
    taken = [2.0 ** (length - 2) if length >= 2 else 0.0 for length in lengths]
    return [round(t - min(taken), 4) for t in taken]


def test_dry_agrees_with_a_plain_search() -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        history = random.integers(0, 4, random.integers(1, 9)).tolist()
        breakers = set(random.integers(0, 5, random.integers(0, 2)).tolist())
        assert dry(history, breakers) == pytest.approx(dry_by_search(history, breakers), abs=1e-3)
