"""The estimate of a model's memory: beside the resident memory of processes that run it, and its parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import make_random_bonsai as maker
import oxibonsai
import recurrent_model
import tiny_model
from oxibonsai import RequestError
from oxibonsai.cli.main import _group
from oxibonsai.engine.loading import load
from oxibonsai.sources.local import PACKAGED, resolve_packaged

# What docs/engine.md promises.
SHARE, BYTES = 0.10, 50e6
PEAK = """
import sys, json, numpy, oxibonsai
from oxibonsai.engine import load

def held(name):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name))

path, ctx, parallel, kv_type = json.loads(sys.argv[1])
base = held("VmRSS")
engine = load(path, ctx_size=ctx, parallel=parallel, kv_type=kv_type)
words = numpy.random.default_rng(0)
params = oxibonsai.SamplingParams(max_tokens=4, ignore_eos=True)
texts = [
    engine.submit(words.integers(0, engine.tokenizer.vocab_size, ctx - 8).tolist(), params)
    for _ in range(parallel)
]
while not all(s.finished for s in texts):
    engine.step()
print(held("VmHWM") - base)
"""


def peak_bytes(path: Path, ctx: int, parallel: int, kv_type: str | None) -> int:
    """Return what a fresh process holds at most for contexts that are full, beside its modules."""
    told = json.dumps([str(path), ctx, parallel, kv_type])
    done = subprocess.run(
        [sys.executable, "-c", PEAK, told], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def assert_is_near(path: Path, ctx: int, parallel: int, kv_type: str | None) -> None:
    estimate = oxibonsai.estimate_memory(path, ctx=ctx, parallel=parallel, cache_type=kv_type)
    peak = peak_bytes(path, ctx, parallel, kv_type)
    assert abs(estimate.total - peak) <= SHARE * peak + BYTES, (estimate.parts, peak)


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_model_takes_what_the_estimate_says(name: str) -> None:
    assert_is_near(resolve_packaged(name), 512, 2, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ctx", "parallel", "kv_type"),
    [
        pytest.param(4096, 1, None, marks=pytest.mark.release),
        pytest.param(2048, 4, "f16", marks=pytest.mark.release),
        (1024, 1, "q8_0"),
    ],
)
def test_smollm2_takes_what_the_estimate_says(
    smollm2_path: Path, ctx: int, parallel: int, kv_type: str | None
) -> None:
    assert_is_near(smollm2_path, ctx, parallel, kv_type)


@pytest.mark.slow
def test_a_random_model_with_recurrent_state_takes_what_the_estimate_says(tmp_path: Path) -> None:
    path = tmp_path / "random.gguf"
    maker.write(path, "2B", "PQ2_0", 8, None, 0, size=maker.BONSAI2["2B"])
    assert path.stat().st_size > 200e6
    assert_is_near(path, 1024, 2, None)


def test_the_parts_are_those_of_the_loaded_engine(tiny_path: Path) -> None:
    estimate = oxibonsai.estimate_memory(tiny_path, ctx=200, parallel=3, cache_type="q8_0")
    engine = load(tiny_path, ctx_size=200, parallel=3, kv_type="q8_0", parity="off")
    assert estimate.cache == engine.cache.budget
    packed = sum(engine.model.device.packed_nbytes(w) or 0 for w in engine.model.graph.matrices)
    table = tiny_model.VOCABULARY * tiny_model.HIDDEN // 128 * 18  # Q1_0
    assert packed + table <= estimate.weights <= packed + table + 64 * 20  # on cache lines
    assert estimate.recurrent_state == estimate.snapshots == estimate.vision == 0
    assert (estimate.ctx_size, estimate.parallel, estimate.kv_type) == (200, 3, "q8_0")
    assert estimate.total == sum(estimate.parts.values())


def test_a_step_takes_less_than_its_estimate_only_with_fewer_rows(tiny_path: Path) -> None:
    sizes = [oxibonsai.estimate_memory(tiny_path, ctx=n).work for n in (1, 64, 256, 512)]
    assert sizes[0] < sizes[1] < sizes[2] <= sizes[3] <= 2 * sizes[2]


@pytest.mark.usefixtures("_registered")
def test_recurrent_state_is_a_slot_for_each_sequence(tmp_path: Path) -> None:
    path = recurrent_model.write(tmp_path / "m.gguf", next(iter(recurrent_model.FAMILIES)))
    one, three = (oxibonsai.estimate_memory(path, ctx=128, parallel=n) for n in (1, 3))
    engine = load(path, parity="off", parallel=1, ctx_size=128)
    slots = engine.cache.slots
    assert slots is not None
    assert one.recurrent_state == slots.memory.slot_bytes
    assert three.recurrent_state == 3 * one.recurrent_state
    assert three.snapshots == 3 * one.snapshots > 0


def test_without_numbers_it_is_what_load_chooses(tiny_path: Path) -> None:
    estimate = oxibonsai.estimate_memory(tiny_path)
    engine = load(tiny_path, parity="off", parallel=1)
    assert (estimate.ctx_size, estimate.kv_type) == (engine.ctx_size, engine.cache.pools[0].type)
    assert oxibonsai.estimate_memory(tiny_path, ctx=10**6) == estimate


@pytest.mark.parametrize(
    "wrong", [{"ctx": 0}, {"parallel": 0}, {"ctx": 2.5}, {"cache_type": "q9_9"}], ids=str
)
def test_a_wrong_number_is_refused(tiny_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        oxibonsai.estimate_memory(tiny_path, **wrong)


def test_the_command_shows_the_same(tiny_path: Path) -> None:
    def shown(*options: str) -> str:
        line = ["info", str(tiny_path), *options]
        done = CliRunner().invoke(_group(), line, catch_exceptions=False, env={"COLUMNS": "200"})
        assert done.exit_code == 0
        return done.stdout

    expected = oxibonsai.estimate_memory(tiny_path, ctx=256, parallel=2, cache_type="f16")
    options = ("--memory", "-c", "256", "-np", "2", "--cache-type-k", "f16")
    found = json.loads(shown(*options, "--json"))
    assert found["parts"] == expected.parts
    assert found["total"] == expected.total
    page = shown(*options)
    assert "2 texts at once of 256 tokens, keys and values in f16" in page
    assert f"{expected.total / 1e6:.2f} MB" in page
    facts = json.loads(shown("--json"))
    plain = oxibonsai.estimate_memory(tiny_path, ctx=256)
    assert facts["kv_bytes_per_token"] * 256 == plain.cache


def test_sizes_are_for_memory_alone(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match="--memory"):
        CliRunner().invoke(_group(), ["info", str(tiny_path), "-c", "256"], catch_exceptions=False)
