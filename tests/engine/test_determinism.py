"""One seed, one text: in every number of slots, threads and rows of a step, with pages kept or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.engine import Engine, Sequence, engine_core

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=True)
DRAWN = replace(GREEDY, temperature=1, top_k=0, top_p=0.98, seed=11, repetition_penalty=1.1)
IDS = [int(i) for i in np.random.default_rng(3).integers(0, 256, 150)]


def run(engine: Engine, params: SamplingParams, slots: int) -> Sequence:
    """The text of ``IDS``, in the company of as many others as there is room for."""
    others = [engine.submit(IDS[i:90], replace(params, seed=i)) for i in range(1, slots)]
    mine = engine.submit(IDS, params)
    while not all(s.finished for s in (mine, *others)):
        engine.step()
    return mine


def told(sequence: Sequence) -> tuple[object, ...]:
    return sequence.generated, sequence.text, sequence.logprobs


@pytest.fixture(scope="module", params=[GREEDY, DRAWN], ids=["greedy", "drawn"])
def alone(
    request: pytest.FixtureRequest, tiny_path: Path
) -> tuple[SamplingParams, tuple[object, ...]]:
    engine = oxibonsai.load(tiny_path, threads=1, parallel=1, prefix_cache=False, parity="off")
    return request.param, told(run(engine, request.param, 1))


@pytest.mark.parametrize("rows", [7, 64, 256])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("keep", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_the_text_is_the_one_it_has_alone(
    tiny_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alone: tuple[SamplingParams, tuple[object, ...]],
    slots: int,
    keep: bool,
    threads: int,
    rows: int,
) -> None:
    params, text = alone
    monkeypatch.setattr(engine_core, "DEFAULT_CHUNK", rows)
    engine = oxibonsai.load(
        tiny_path, threads=threads, parallel=slots, prefix_cache=keep, parity="off"
    )
    first, again = run(engine, params, slots), run(engine, params, slots)
    assert (again.num_cached > 0) == keep
    assert [told(first), told(again)] == [text, text]
