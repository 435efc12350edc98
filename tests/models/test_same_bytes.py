"""One arithmetic: the bytes of logits depend on the model and the text, and on nothing else.

Not on the CPU tier, the threads, the cut of a prompt into chunks, nor the company of a batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import oxibonsai
from oxibonsai import _core
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.quantize import quantize

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import random_models as rm
from random_blocks import INTEGER_TYPES

pytestmark = pytest.mark.hf

FLOAT_TYPES = ["F32", "F16", "BF16"]
# ggml does not know them: their blocks are made by our encoders.
OWN_FLOAT_TYPES = ["F8_E4M3", "F8_E5M2"]
TYPES = [*INTEGER_TYPES, *FLOAT_TYPES, *OWN_FLOAT_TYPES]
TIERS = _core.cpu.tiers()
OTHER_LENGTHS = (5, 64, 131)  # within a tile of 64 keys, exactly one, more than two
# Past 512: both a second part of attention and a second default chunk.
LONG = 530


def digest(logits: npt.NDArray[np.float32]) -> str:
    assert np.isfinite(logits).all()
    return hashlib.sha256(logits.tobytes()).hexdigest()


def digests_by_tier(
    tier: str, ids: list[int], models: list[Path], folder: Path, kv_type: str = "default"
) -> list[str]:
    """Digests made in a process that is forced to one tier."""
    ids_file = folder / f"{tier}.json"
    ids_file.write_text(json.dumps(ids))
    program = Path(__file__).with_name("logits_digest.py")
    command = [sys.executable, str(program), kv_type, str(ids_file), *map(str, models)]
    # The process must find the package that this one tests, installed or not.
    paths = [str(Path(oxibonsai.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "OXIBONSAI_ISA": tier,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    result = subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True, timeout=500
    )
    said = json.loads(result.stdout)
    assert said["tier"] == tier
    digests: list[str] = said["digests"]
    return digests


def random_ids(count: int, vocabulary: int, seed: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, vocabulary, count).tolist()
    return ids


def check_threads(path: Path, ids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for threads in ("1", "2"):
        monkeypatch.setenv("OXIBONSAI_THREADS", threads)
        digests.add(digest(oxibonsai.load(path).logits(ids)))
    assert len(digests) == 1


def check_chunks(engine: oxibonsai.Engine, ids: list[int]) -> None:
    whole = digest(engine.logits(ids, chunk_size=len(ids)))
    for size in (1, 7, 64):
        assert digest(engine.logits(ids, chunk_size=size)) == whole, f"chunks of {size}"


def check_batch(engine: oxibonsai.Engine, ids: list[int]) -> None:
    vocabulary = engine.model.config.vocab_size
    others = [random_ids(n, vocabulary, seed=n) for n in OTHER_LENGTHS]
    texts = [*others[:2], ids, *others[2:]]
    alone = [digest(engine.logits(text)) for text in texts]
    for size in (None, 1, 48):
        together = [digest(rows) for rows in engine.logits_batch(texts, chunk_size=size)]
        assert together == alone, f"chunks of {size}"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random Qwen3 of each type."""
    folder = tmp_path_factory.mktemp("models")
    paths = {t: folder / f"{t}.gguf" for t in TYPES}
    for quant_type in (*INTEGER_TYPES, *FLOAT_TYPES):
        rm.build(rm.QWEN3, paths[quant_type], quant_type)
    for quant_type in OWN_FLOAT_TYPES:
        quantize(GgufModel.open(paths["F32"]), paths[quant_type], quant_type, pure=True)
    return paths


def test_there_is_a_model_of_each_type(models: dict[str, Path]) -> None:
    assert set(models) == {t["name"] for t in _core.quant_types()}
    for quant_type, path in models.items():
        held = {t.quant_type for t in GgufModel.open(path).tensors}
        assert held == {quant_type, "F32"}


@pytest.fixture(scope="module")
def of_all_tiers(
    models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """Digests by tier and quant type."""
    folder, paths = tmp_path_factory.mktemp("ids"), list(models.values())
    found = {t: digests_by_tier(t, rm.IDS, paths, folder) for t in TIERS}
    return {t: dict(zip(models, digests, strict=True)) for t, digests in found.items()}


@pytest.mark.parametrize("tier", [t for t in TIERS if t != "scalar"])
@pytest.mark.parametrize("quant_type", TYPES)
def test_every_tier_gives_the_bytes_of_scalar(
    quant_type: str, tier: str, of_all_tiers: dict[str, dict[str, str]]
) -> None:
    assert of_all_tiers[tier][quant_type] == of_all_tiers["scalar"][quant_type]


@pytest.mark.parametrize("quant_type", TYPES)
def test_threads_do_not_change_a_byte(
    quant_type: str, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_threads(models[quant_type], rm.IDS, monkeypatch)


@pytest.mark.parametrize("quant_type", TYPES)
def test_chunks_do_not_change_a_byte(quant_type: str, models: dict[str, Path]) -> None:
    check_chunks(oxibonsai.load(models[quant_type]), rm.IDS)


@pytest.mark.parametrize("quant_type", TYPES)
def test_company_in_a_batch_does_not_change_a_byte(
    quant_type: str, models: dict[str, Path]
) -> None:
    check_batch(oxibonsai.load(models[quant_type]), rm.IDS)


@pytest.mark.parametrize("kv_type", _core.KV_TYPES)
def test_a_long_prompt_may_be_cut_anywhere(kv_type: str, models: dict[str, Path]) -> None:
    engine = oxibonsai.load(models["Q1_0"], kv_type=kv_type)
    check_chunks(engine, random_ids(LONG, rm.VOCABULARY, seed=1))


@pytest.mark.parametrize("kv_type", _core.KV_TYPES)
def test_all_tiers_agree_on_a_long_prompt(
    kv_type: str, models: dict[str, Path], tmp_path: Path
) -> None:
    ids = random_ids(LONG, rm.VOCABULARY, seed=1)
    paths = [models["Q1_0"]]
    assert len({digests_by_tier(t, ids, paths, tmp_path, kv_type)[0] for t in TIERS}) == 1


def test_a_file_with_groups_of_128_under_id_42_is_the_one_under_id_142(
    models: dict[str, Path], tmp_path: Path
) -> None:
    legacy = tmp_path / "legacy.gguf"
    rm.build(rm.QWEN3, legacy, "Q2_0_g128", gguf_id=42)
    today = models["Q2_0_g128"]
    assert legacy.stat().st_size == today.stat().st_size
    logits = [digest(oxibonsai.load(path).logits(rm.IDS)) for path in (legacy, today)]
    assert logits[0] == logits[1]


# tests/models/test_same_text.py has the other for every change.
@pytest.fixture(params=["smollm2_path", pytest.param("gemma_path", marks=pytest.mark.release)])
def real_model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.mark.slow
def test_tiers_agree_on_a_real_model(real_model: Path, tmp_path: Path) -> None:
    assert len({digests_by_tier(t, rm.IDS, [real_model], tmp_path)[0] for t in TIERS}) == 1


@pytest.mark.slow
def test_threads_chunks_and_company_do_not_change_a_byte_of_a_real_model(
    real_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_threads(real_model, rm.IDS, monkeypatch)
    engine = oxibonsai.load(real_model)
    check_chunks(engine, rm.IDS)
    check_batch(engine, rm.IDS)
