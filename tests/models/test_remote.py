"""Decoders that transformers does not have: llama.cpp's logits, and one arithmetic for all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai.convert import convert

pytest.importorskip("gguf", reason="needs gguf (extra: test)")
import conversions
import dense_models as dm
import remote_folders
import remote_models
from make_llama_cpp_remote import RECORDED
from test_same_bytes import TIERS, check_threads, digest, digests_by_tier, random_ids

pytestmark = pytest.mark.hf
LLAMA_CPP = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("remote")
    paths = {c.name: folder / f"{c.name}.gguf" for c in remote_models.CASES}
    for case in remote_models.CASES:
        remote_models.write(case, paths[case.name])
    return paths


@pytest.mark.parametrize("case", remote_models.CASES, ids=lambda c: c.name)
def test_logits_are_those_of_llama_cpp(
    case: remote_models.RemoteCase, files: dict[str, Path]
) -> None:
    truth = np.array(LLAMA_CPP[case.name])
    found = oxibonsai.load(files[case.name]).logits(dm.IDS)[-len(truth) :]
    assert np.abs(truth[1] - truth[0]).mean() > 0.1  # logits that hardly change prove nothing
    assert np.abs(found - truth).max() <= case.distance * np.abs(truth).max()


@pytest.mark.parametrize("folder", remote_folders.FOLDERS, ids=lambda f: f.name)
def test_the_converted_file_is_that_of_llama_cpp(
    folder: remote_folders.RemoteFolder, tmp_path: Path
) -> None:
    remote_folders.save(folder, tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    found = conversions.summary(tmp_path / "model.gguf")
    theirs = json.loads(conversions.RECORDED.read_text())[folder.name]
    assert found["tensors"] == theirs["tensors"]
    assert conversions.different_keys(found, theirs) == set(folder.differences)
    assert oxibonsai.load(tmp_path / "model.gguf").logits(dm.IDS[:9]).std() > 0.1


@pytest.mark.parametrize("name", [c.name for c in remote_models.CASES])
def test_threads_chunks_and_company_do_not_change_a_byte(
    name: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dm.IDS[:48]
    check_threads(files[name], ids, monkeypatch)
    engine = oxibonsai.load(files[name])
    whole = digest(engine.logits(ids, chunk_size=len(ids)))
    assert all(digest(engine.logits(ids, chunk_size=size)) == whole for size in (1, 7, 64))
    texts = [ids, *(random_ids(n, dm.VOCABULARY, seed=n) for n in (5, 33, 48))]
    alone = [digest(engine.logits(text)) for text in texts]
    assert [digest(rows) for rows in engine.logits_batch(texts, chunk_size=7)] == alone


@pytest.mark.slow
def test_every_tier_gives_the_bytes_of_scalar(files: dict[str, Path], tmp_path: Path) -> None:
    found = {t: digests_by_tier(t, dm.IDS[:48], list(files.values()), tmp_path) for t in TIERS}
    assert all(found[tier] == found["scalar"] for tier in TIERS)
