"""Low-rank adapters: y = W x + scale * B (A x), under the one arithmetic."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import adapters
import float_model
import oxibonsai
import tiny_model
from adapters import ALPHA
from oxibonsai import FormatError, RequestError, SamplingParams, SourceError, _core
from oxibonsai.engine import restore, save
from oxibonsai.engine.loading import replicate
from oxibonsai.models import PackedCache

IDS = [int(i) for i in np.random.default_rng(3).integers(0, tiny_model.VOCABULARY, 90)]
# Float32 noise of sums in another order; the largest seen here is 1.2e-6 of the largest logit.
BOUND = 1e-5
LLAMA_CPP = Path(__file__).parents[1] / "truth/models/llama_cpp_adapted.json"
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Float and 1-bit models, and adapters of two ranks and types."""
    folder = tmp_path_factory.mktemp("adapters")
    float_model.write(folder / "float.gguf")
    tiny_model.write(folder / "q1_0.gguf")
    adapters.write(folder / "a.gguf", adapters.tensors_of(adapters.random_pairs()))
    other = adapters.tensors_of(adapters.random_pairs(rank=16, seed=8))
    adapters.write(folder / "b.gguf", other, quant_type="F16")
    return folder


def logits_of(model: Path, lora: Any = (), **options: Any) -> npt.NDArray[np.float32]:
    return oxibonsai.load(model, kv_type="f32", lora=lora, **options).logits(IDS)


def rotated(path: Path, *adapted: tuple[adapters.Pairs, float]) -> None:
    """The float model with W + scale * B A in place of W, summed in float64."""
    plain = path.with_suffix(".plain")
    float_model.write(plain)
    file = _core.GgufFile(str(plain))
    tensors = {}
    for name in {n for pairs, _ in adapted for n in pairs}:
        shape = tiny_model.shapes()[name]
        weight = file.tensor_bytes(name).view("<f4").reshape(shape).astype(np.float64)
        for pairs, scale in adapted:
            if name in pairs:
                a, b = (m.astype(np.float64) for m in pairs[name])
                weight += scale * b @ a
        tensors[name] = (shape, 0, weight.astype(np.float32).tobytes())
    float_model.write(path, tensors=tensors)


def assert_close(found: npt.NDArray[np.float32], truth: npt.NDArray[np.float32]) -> None:
    assert np.abs(found - truth).max() <= BOUND * np.abs(truth).max()


def test_an_adapter_is_a_sum_to_the_weights(folder: Path, tmp_path: Path) -> None:
    rotated(tmp_path / "f.gguf", (adapters.random_pairs(), ALPHA / 3))
    truth = logits_of(tmp_path / "f.gguf")
    found = logits_of(folder / "float.gguf", folder / "a.gguf")
    assert_close(found, truth)
    base = logits_of(folder / "float.gguf")
    assert np.abs(base - truth).max() > 0.3 * np.abs(truth).max()


@pytest.mark.parametrize("target", adapters.linear_layers()[:7])
def test_a_part_of_layers_that_run_together_is_changed_alone(
    target: str, folder: Path, tmp_path: Path
) -> None:
    pairs = adapters.random_pairs([target], rank=1)
    adapters.write(tmp_path / "a.gguf", adapters.tensors_of(pairs))
    rotated(tmp_path / "f.gguf", (pairs, ALPHA))
    found = logits_of(folder / "float.gguf", tmp_path / "a.gguf")
    assert_close(found, logits_of(tmp_path / "f.gguf"))


def test_several_adapters_are_added_each_with_its_scale(folder: Path, tmp_path: Path) -> None:
    first, second = adapters.random_pairs(), adapters.random_pairs(rank=16, seed=8)
    adapters.write(tmp_path / "b.gguf", adapters.tensors_of(second))
    rotated(tmp_path / "f.gguf", (first, 0.5 * ALPHA / 3), (second, -0.25 * ALPHA / 16))
    lora = [(str(folder / "a.gguf"), 0.5), (tmp_path / "b.gguf", -0.25)]
    assert_close(logits_of(folder / "float.gguf", lora), logits_of(tmp_path / "f.gguf"))


def test_an_output_matrix_of_its_own_is_changed_too(tmp_path: Path) -> None:
    shape = tiny_model.shapes()["token_embd.weight"]
    head = np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float32)
    pairs = adapters.random_pairs(["output.weight"])
    a, b = (m.astype(np.float64) for m in pairs["output.weight"])
    both = (head + ALPHA / 3 * b @ a).astype(np.float32)
    for name, values in (("base", head), ("folded", both)):
        tensors = {"output.weight": (shape, 0, values.tobytes())}
        float_model.write(tmp_path / f"{name}.gguf", tensors=tensors)
    adapters.write(tmp_path / "a.gguf", adapters.tensors_of(pairs))
    found = logits_of(tmp_path / "base.gguf", tmp_path / "a.gguf")
    assert_close(found, logits_of(tmp_path / "folded.gguf"))


def test_logits_are_those_of_llama_cpp(folder: Path) -> None:
    """Recorded by make_llama_cpp_adapted.py from the same two files."""
    truth = json.loads(LLAMA_CPP.read_text())
    assert digest_of(folder / "float.gguf") == truth["model"]
    assert digest_of(folder / "a.gguf") == truth["adapter"]
    for scale, rows in truth["logits"].items():
        found = logits_of(folder / "float.gguf", [(folder / "a.gguf", float(scale))])
        expected = np.array(rows, np.float32)
        assert np.abs(found[truth["rows"]] - expected).max() <= BOUND * np.abs(expected).max()


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("quant_type", ["F16", "BF16", "Q8_0"])
def test_adapters_of_other_types_stay_close(quant_type: str, folder: Path, tmp_path: Path) -> None:
    pairs = adapters.random_pairs(rank=32)
    adapters.write(tmp_path / "f32.gguf", adapters.tensors_of(pairs))
    adapters.write(tmp_path / "x.gguf", adapters.tensors_of(pairs), quant_type=quant_type)
    truth = logits_of(folder / "float.gguf", tmp_path / "f32.gguf")
    found = logits_of(folder / "float.gguf", tmp_path / "x.gguf")
    distance = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    assert 0 < distance < 0.03  # eight bits of each factor


def test_an_adapter_of_scale_zero_leaves_every_byte(folder: Path) -> None:
    base = oxibonsai.load(folder / "q1_0.gguf")
    zero = oxibonsai.load(folder / "q1_0.gguf", lora=[(folder / "a.gguf", 0)])
    assert zero.logits(IDS).tobytes() == base.logits(IDS).tobytes()
    assert zero.model.graph.ops == base.model.graph.ops
    assert zero.model.fingerprint() == base.model.fingerprint()
    assert [a.scale for a in zero.model.adapters] == [0.0]


def test_scales_are_alpha_over_rank_times_the_users(folder: Path, tmp_path: Path) -> None:
    tensors = adapters.tensors_of(adapters.random_pairs())
    adapters.write(tmp_path / "a.gguf", tensors, changes={"adapter.lora.alpha": (12.0, "f32")})
    found = logits_of(folder / "float.gguf", [(tmp_path / "a.gguf", 0.5)])
    assert found.tobytes() == logits_of(folder / "float.gguf", folder / "a.gguf").tobytes()


_DIGEST = """
import hashlib, json, sys
import oxibonsai
from oxibonsai import _core
ids, lora, *models = json.loads(sys.stdin.read())
rows = [oxibonsai.load(m, lora=[tuple(a) for a in lora]).logits(ids) for m in models]
digests = [hashlib.sha256(r.tobytes()).hexdigest() for r in rows]
print(json.dumps([_core.cpu.name(), *digests]))
"""


def test_every_tier_and_number_of_threads_gives_the_same_bytes(folder: Path) -> None:
    lora = [[str(folder / "a.gguf"), 0.7], [str(folder / "b.gguf"), -1.5]]
    task = json.dumps([IDS, lora, str(folder / "q1_0.gguf"), str(folder / "float.gguf")])
    paths = [str(Path(oxibonsai.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    found = set()
    for threads, tier in enumerate(_core.cpu.tiers(), start=1):
        environment = os.environ | {
            "OXIBONSAI_ISA": tier,
            "OXIBONSAI_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        done = subprocess.run(
            [sys.executable, "-c", _DIGEST], input=task, env=environment, check=True,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        name, *digests = json.loads(done.stdout)
        assert name == tier
        found.add(tuple(digests))
    assert len(found) == 1


def test_chunks_and_company_do_not_change_a_byte(folder: Path) -> None:
    engine = oxibonsai.load(folder / "q1_0.gguf", lora=[folder / "a.gguf", folder / "b.gguf"])
    whole = engine.logits(IDS, chunk_size=len(IDS)).tobytes()
    for size in (1, 7, 64):
        assert engine.logits(IDS, chunk_size=size).tobytes() == whole
    alone = engine.submit(IDS, GREEDY)
    while not alone.finished:
        engine.step()
    company = [engine.submit(IDS[i:], GREEDY) for i in range(4)]
    while not all(s.finished for s in company):
        engine.step()
    assert company[0].generated == alone.generated


def test_texts_do_not_depend_on_the_prefix_cache(folder: Path) -> None:
    found = []
    for keep in (True, False):
        engine = oxibonsai.load(
            folder / "q1_0.gguf", lora=folder / "a.gguf", prefix_cache=keep, parity="full"
        )
        for _ in range(2):
            sequence = engine.submit(IDS, GREEDY)
            while not sequence.finished:
                engine.step()
            found.append(sequence.generated)
        assert (sequence.num_cached > 0) is keep
    assert found == [found[0]] * 4


def test_a_saved_sequence_goes_on_with_its_adapters_only(folder: Path, tmp_path: Path) -> None:
    model, a, b = (folder / f"{n}.gguf" for n in ("q1_0", "a", "b"))
    engine = oxibonsai.load(model, lora=[(a, 0.5)])
    sequence = engine.submit(IDS, replace(GREEDY, max_tokens=40))
    for _ in range(5):
        engine.step()
    save(engine, sequence, tmp_path / "s")
    for lora in ((), a, [(a, 0.25)], [(b, 0.5)], [(a, 0.5), (b, 1.0)]):
        with pytest.raises(FormatError, match="another model, or of other adapters"):
            restore(oxibonsai.load(model, lora=lora), tmp_path / "s")
    moved = tmp_path / "other name.gguf"
    moved.write_bytes(a.read_bytes())
    other = oxibonsai.load(model, lora=[(moved, 0.5), (b, 0.0)])
    restored = restore(other, tmp_path / "s").sequence
    for each, of in ((sequence, engine), (restored, other)):
        while not each.finished:
            of.step()
    assert restored.generated == sequence.generated


def test_the_order_of_adapters_is_part_of_what_pages_depend_on(folder: Path) -> None:
    a, b = folder / "a.gguf", folder / "b.gguf"
    engines = [oxibonsai.load(folder / "q1_0.gguf", lora=order) for order in ([a, b], [b, a])]
    first, second = (e.model.fingerprint() for e in engines)
    assert first != second


def test_replicas_observed_passes_and_embeddings_are_adapted(folder: Path) -> None:
    engine = oxibonsai.load(folder / "q1_0.gguf", lora=folder / "a.gguf", threads=2)
    logits = engine.logits(IDS).tobytes()
    assert all(e.logits(IDS).tobytes() == logits for e in replicate(engine, 2))
    plain = oxibonsai.load(folder / "q1_0.gguf", threads=2)
    vectors = [e.embedder.embed([IDS])[0] for e in (engine, plain)]
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01
    observation = engine.model.observed(head=True)
    count = len(IDS)
    batch = _core.Batch()
    batch.add(IDS, pages=list(range(-(-count // _core.PAGE_POSITIONS))), outputs=count)
    pages = engine.model.new_pages(engine.kv_type, 8)
    assert observation.run(batch, [pages]).tobytes() == logits
    assert set(observation.sums) == {*adapters.linear_layers(), "token_embd.weight"}


def test_packed_weights_on_disk_are_the_models_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path))
    load = oxibonsai.load
    engine = load(folder / "q1_0.gguf", packed_cache=True)
    plain, kept = engine.logits(IDS), PackedCache().entries()
    assert bool(kept) is any(map(engine.model.device.packed_nbytes, engine.model.graph.matrices))
    adapted = load(folder / "q1_0.gguf", packed_cache=True, lora=folder / "a.gguf").logits(IDS)
    assert [e.path for e in PackedCache().entries()] == [e.path for e in kept]
    assert (
        adapted.tobytes()
        == load(folder / "q1_0.gguf", lora=folder / "a.gguf").logits(IDS).tobytes()
    )
    assert load(folder / "q1_0.gguf", packed_cache=True).logits(IDS).tobytes() == plain.tobytes()


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e7, "1", True, None])
def test_scales_that_are_no_numbers_are_refused(scale: Any, folder: Path) -> None:
    with pytest.raises(RequestError, match=r"a\.gguf is .*; it must be a number from"):
        oxibonsai.load(folder / "q1_0.gguf", lora=[(folder / "a.gguf", scale)])


@pytest.mark.parametrize("lora", [("a.gguf", 0.5), [3], [("a.gguf", 1, 2)], [None], 7])
def test_what_is_no_list_of_adapters_is_refused(lora: Any, folder: Path) -> None:
    with pytest.raises(RequestError, match="it must be a list of files"):
        oxibonsai.load(folder / "q1_0.gguf", lora=lora)


def test_a_missing_adapter_and_one_in_place_of_a_model_are_named(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.gguf does not exist"):
        oxibonsai.load(folder / "q1_0.gguf", lora=folder / "none.gguf")
    with pytest.raises(SourceError, match="xxx"):
        oxibonsai.load(folder / "q1_0.gguf", lora="x" * 5000)
    with pytest.raises(FormatError, match=r"a\.gguf is an adapter, no model: .*--lora"):
        oxibonsai.load(folder / "a.gguf")
