"""One text for one seed: of real models, whatever runs beside it, before it or in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import oxibonsai
from oxibonsai import SamplingParams, _core
from oxibonsai.engine import (
    ContextShift,
    DraftModel,
    Engine,
    EnginePool,
    NgramSpeculator,
    Options,
    Sequence,
    complete,
    restore,
    save,
)
from oxibonsai.structured import Structure

pytestmark = pytest.mark.slow

PROMPT = "The planets are Mercury, Venus, Earth, Mars. " * 8 + "Once more: the planets are"
OTHERS = [f"Number {i} is {'very ' * (7 * i)}large, because" for i in range(1, 8)]
GREEDY = SamplingParams(temperature=0, max_tokens=24)
DRAWN = SamplingParams(temperature=0.9, top_k=0, top_p=0.97, seed=5, max_tokens=24)
ALL_STEPS = replace(
    DRAWN,
    repetition_penalty=1.1,
    presence_penalty=0.2,
    frequency_penalty=0.1,
    dry_multiplier=0.5,
    xtc_probability=0.3,
    typical_p=0.98,
    min_p=0.001,
    top_k=200,
    dynatemp_range=0.2,
    ignore_eos=True,
    min_tokens=8,
    logprobs=True,
    top_logprobs=2,
)
PARAMS = {
    "greedy": GREEDY,
    "drawn": DRAWN,
    "mirostat": replace(DRAWN, mirostat=2, min_tokens=10, stop=("~ never ~",)),
    "all steps": ALL_STEPS,
}
# For every change those two that the others are part of.
NAMES = [
    pytest.param(name, marks=() if name in ("mirostat", "all steps") else pytest.mark.release)
    for name in PARAMS
]
JSON = Structure.json_schema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "moons": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "moons"],
        "additionalProperties": False,
    }
)


# For every change the model with windows; tests/models/test_same_bytes.py has both.
@pytest.fixture(
    scope="module", params=[pytest.param("smollm2", marks=pytest.mark.release), "gemma"]
)
def path(request: pytest.FixtureRequest) -> Path:
    found = request.getfixturevalue(f"{request.param}_path")
    assert isinstance(found, Path)
    return found


@pytest.fixture(scope="module")
def plain(path: Path) -> Engine:
    """One thread, no kept pages."""
    return oxibonsai.load(path, ctx_size=512, threads=1, prefix_cache=False)


@pytest.fixture(scope="module")
def engine(path: Path) -> Engine:
    return oxibonsai.load(path, ctx_size=512, threads=2, parallel=8)


def run(
    engine: Engine, text: str, params: SamplingParams, options: Options | None = None
) -> Sequence:
    sequence = engine.submit(engine.tokenizer.encode(text), params, options)
    finish(engine, [sequence])
    return sequence


def finish(engine: Engine, sequences: list[Sequence]) -> None:
    while not all(s.finished for s in sequences):
        engine.step()


def same(a: Sequence, b: Sequence) -> bool:
    return (a.generated, a.text, a.finish_reason, a.logprobs) == (
        b.generated,
        b.text,
        b.finish_reason,
        b.logprobs,
    )


@pytest.mark.parametrize("name", NAMES)
def test_company_threads_and_kept_pages_change_nothing(
    plain: Engine, engine: Engine, name: str
) -> None:
    params = PARAMS[name]
    alone = run(plain, PROMPT, params)
    assert same(alone, run(plain, PROMPT, params))
    batch = [engine.submit(engine.tokenizer.encode(t), params) for t in OTHERS]
    batch.insert(3, engine.submit(engine.tokenizer.encode(PROMPT), params))
    finish(engine, batch)
    assert same(alone, batch[3])
    again = run(engine, PROMPT, params)
    assert again.num_cached > 0
    assert same(alone, again)


@pytest.mark.parametrize("name", NAMES)
def test_speculation_changes_nothing(path: Path, plain: Engine, engine: Engine, name: str) -> None:
    draft = DraftModel(
        oxibonsai.load(path, ctx_size=256, threads=1, kv_type="q4_0"),
        engine,
        threshold=0.2,
        length=4,  # whatever it costs
    )
    for structure in (None, JSON):
        params = PARAMS[name]
        alone = run(plain, PROMPT, params, Options(structure=structure))
        for make in (lambda: NgramSpeculator(shortest=1), draft.speculator):
            options = Options(structure=structure, speculate=make)
            guessed = run(engine, PROMPT, params, options)
            assert same(alone, guessed)
    assert guessed.speculator is not None
    assert guessed.speculator.lookahead.accepted > 0
    assert draft.cache.used_bytes == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_was_saved_goes_on_the_same(
    plain: Engine, engine: Engine, tmp_path: Path, name: str
) -> None:
    params = PARAMS[name]
    for structure in (None, JSON):
        alone = run(plain, PROMPT, params, Options(structure=structure))
        for steps in (0, 2, 9, 100):
            sequence = plain.submit(
                plain.tokenizer.encode(PROMPT), params, Options(structure=structure)
            )
            for _ in range(steps):
                plain.step()
            save(plain, sequence, tmp_path / "s")
            plain.cancel(sequence)
            options = Options(speculate=NgramSpeculator)
            restored = restore(engine, tmp_path / "s", options).sequence
            finish(engine, [restored])
            assert same(alone, restored)


def test_each_sample_is_the_text_of_its_seed(plain: Engine, engine: Engine) -> None:
    samples = complete(engine, PROMPT, DRAWN, Options(speculate=NgramSpeculator), n=8)
    for i, sample in enumerate(samples):
        alone = run(plain, PROMPT, replace(DRAWN, seed=5 + i))
        assert (sample.text, sample.tokens) == (alone.text, alone.generated)


def test_giving_way_for_want_of_pages_changes_nothing(path: Path, plain: Engine) -> None:
    tight = oxibonsai.load(path, ctx_size=192, threads=2, parallel=1)
    params = replace(ALL_STEPS, max_tokens=48)
    prompts = [PROMPT, *(t[:80] for t in OTHERS[:5])]
    sequences = [tight.submit(tight.tokenizer.encode(p), params) for p in prompts]
    gave_way = False
    while not all(s.finished for s in sequences):
        tight.step()
        gave_way |= any(
            s.num_generated > 0 and not (s.finished or s.table.pages) for s in sequences
        )
    assert gave_way
    for prompt, sequence in zip(prompts, sequences, strict=True):
        assert same(run(plain, prompt, params), sequence)


@pytest.mark.parametrize("kv_type", ["f32", "q8_0"])
def test_endless_texts_are_the_same_with_and_without_speculation_and_kept_pages(
    path: Path, kv_type: str
) -> None:
    params = replace(DRAWN, max_tokens=80, ignore_eos=True)
    texts = []
    for keep in (True, False):
        engine = oxibonsai.load(
            path, ctx_size=80, kv_type=kv_type, prefix_cache=keep, threads=1 + keep
        )
        for speculate in (None, NgramSpeculator):
            options = Options(shift=ContextShift(sinks=3), speculate=speculate)
            sequence = run(engine, PROMPT[-180:], params, options)
            assert len(sequence.shifts) > 1
            texts.append((sequence.generated, sequence.shifts))
    assert all(t == texts[0] for t in texts)


def test_a_pool_under_load_gives_what_each_prompt_gives_alone(path: Path, plain: Engine) -> None:
    pool = EnginePool.from_pretrained(path, replicas=2, parallel=3, ctx_size=512, threads=2)
    prompts = [PROMPT, *OTHERS]

    def ask(i: int) -> Sequence:
        with pool.permit() as engine:
            options = Options(speculate=NgramSpeculator if i % 2 else None)
            ids = engine.tokenizer.encode(prompts[i % 8])
            sequence = engine.submit(ids, replace(DRAWN, seed=i, max_tokens=16), options)
            while not sequence.finished:
                engine.advance(sequence)
            return sequence

    try:
        with ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(ask, range(16)))
    finally:
        pool.close()
    for i, answer in enumerate(answers):
        assert same(run(plain, prompts[i % 8], replace(DRAWN, seed=i, max_tokens=16)), answer)


_PROGRAM = """
import json, sys
import oxibonsai
from oxibonsai import SamplingParams
engine = oxibonsai.load(sys.argv[1], ctx_size=512, parity="off")
params = SamplingParams(**json.loads(sys.argv[2]))
print(json.dumps(list(engine.generate_tokens(engine.tokenizer.encode(sys.argv[3]), params))))
"""


def test_every_tier_gives_the_text(path: Path, plain: Engine) -> None:
    fields = {"temperature": 0.9, "top_k": 0, "top_p": 0.97, "seed": 5, "max_tokens": 6}
    alone = run(plain, PROMPT, SamplingParams(**fields))
    for tier in _core.cpu.tiers():
        out = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(path), json.dumps(fields), PROMPT],
            env={**os.environ, "OXIBONSAI_ISA": tier, "OXIBONSAI_THREADS": "2"},
            check=True,
            capture_output=True,
            text=True,
        )
        assert json.loads(out.stdout) == alone.generated, tier
