"""The policy that gives new sequences narrower keys and values while the cache fills up."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oxibonsai
from oxibonsai import SamplingParams, _core
from oxibonsai.engine.kv_policy import (
    AGGRESSIVE,
    BALANCED,
    PRESSURE_KV_TYPES,
    KvPressurePolicy,
    KvPressureProfile,
)
from oxibonsai.errors import RequestError

shares = st.floats(0.0, 1.0)
profiles = st.sampled_from([BALANCED, AGGRESSIVE]) | st.builds(
    lambda a, b, alpha, h: KvPressureProfile((min(a, b), max(a, b)), alpha, h),
    shares,
    shares,
    st.floats(0.01, 1.0),
    shares,
)


def types(profile: KvPressureProfile, pressures: list[float]) -> list[str]:
    policy = KvPressurePolicy(profile)
    seen = []
    for pressure in pressures:
        policy.observe(pressure)
        seen.append(policy.kv_type)
    return seen


def steps_until(profile: KvPressureProfile, kv_type: str) -> int:
    return types(profile, [1.0] * 100).index(kv_type) + 1


def test_an_idle_cache_gives_f16() -> None:
    assert KvPressurePolicy().kv_type == "f16"


def test_a_full_cache_steps_down_when_the_mean_has_passed_each_threshold() -> None:
    # 1 - 0.8^n > 0.80 first at n = 8, > 0.95 at n = 14; 1 - 0.7^n > 0.50 at 2, > 0.80 at 5.
    assert [steps_until(BALANCED, t) for t in ("q8_0", "q4_0")] == [8, 14]
    assert [steps_until(AGGRESSIVE, t) for t in ("q8_0", "q4_0")] == [2, 5]


def test_a_level_is_left_only_below_the_hysteresis() -> None:
    policy = KvPressurePolicy(KvPressureProfile(alpha=1.0))
    seen = []
    for pressure in (0.80, 0.81, 0.76, 0.74, 0.96, 0.91, 0.89, 0.76, 0.74):
        policy.observe(pressure)
        seen.append(policy.kv_type)
    assert seen == ["f16", "q8_0", "q8_0", "f16", "q4_0", "q4_0", "q8_0", "q8_0", "f16"]


@given(profiles, st.lists(shares, max_size=60))
def test_between_a_step_and_the_step_back_lies_more_than_the_hysteresis(
    profile: KvPressureProfile, pressures: list[float]
) -> None:
    policy = KvPressurePolicy(profile)
    for level in (1, 2):
        steps = []  # smoothed pressure wherever this level was entered or left
        inside = PRESSURE_KV_TYPES.index(policy.kv_type) >= level
        for pressure in pressures:
            policy.observe(pressure)
            if (PRESSURE_KV_TYPES.index(policy.kv_type) >= level) != inside:
                inside = not inside
                steps.append(policy.smoothed)
        for before, after in pairwise(steps):
            assert abs(after - before) > profile.hysteresis - 1e-12


@given(profiles, st.lists(st.tuples(shares, shares), max_size=60))
def test_more_pressure_never_gives_a_wider_type(
    profile: KvPressureProfile, pairs: list[tuple[float, float]]
) -> None:
    lighter = types(profile, [min(p) for p in pairs])
    heavier = types(profile, [max(p) for p in pairs])
    assert all(
        PRESSURE_KV_TYPES.index(a) <= PRESSURE_KV_TYPES.index(b)
        for a, b in zip(lighter, heavier, strict=True)
    )


@given(profiles, st.lists(shares, max_size=60))
def test_it_is_a_function_of_what_it_saw(
    profile: KvPressureProfile, pressures: list[float]
) -> None:
    assert types(profile, pressures) == types(profile, pressures)
    policy = KvPressurePolicy(profile)
    for pressure in pressures:
        policy.observe(pressure)
        assert 0.0 <= policy.smoothed <= 1.0


def test_its_levels_are_types_of_pages_from_wide_to_narrow() -> None:
    assert tuple(t for t in _core.KV_TYPES if t in PRESSURE_KV_TYPES) == PRESSURE_KV_TYPES


@pytest.mark.parametrize("pressure", [-0.01, 1.01, float("nan")])
def test_a_pressure_that_is_no_share_is_refused(pressure: float) -> None:
    with pytest.raises(RequestError, match="pressure is"):
        KvPressurePolicy().observe(pressure)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"thresholds": (0.9, 0.8)}, "thresholds"),
        ({"thresholds": (0.9, 1.1)}, "thresholds"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"hysteresis": -0.1}, "hysteresis"),
    ],
)
def test_a_profile_out_of_range_is_refused(values: dict[str, object], name: str) -> None:
    with pytest.raises(RequestError, match=f"{name} is"):
        KvPressureProfile(**values)  # type: ignore[arg-type]


def test_a_sequence_that_gives_way_goes_on_with_its_type(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, parallel=1, ctx_size=320, kv_pressure="aggressive")
    params = SamplingParams(temperature=0, max_tokens=190, ignore_eos=True)
    prompts = [[i, *range(40)] for i in range(6)]
    sequences = [engine.submit(p, params) for p in prompts]
    types: dict[int, set[int]] = {i: set() for i in range(6)}
    gave_way = False
    while not all(s.finished for s in sequences):
        engine.step()
        for i, s in enumerate(sequences):
            if s.table.pages:
                types[i].add(s.table.pool)
            gave_way = gave_way or (s.num_generated > 0 and not (s.table.pages or s.finished))
    assert gave_way
    assert all(len(t) == 1 for t in types.values())
    assert set.union(*types.values()) > {0}  # some began under pressure
