"""Folders as Hugging Face's libraries save them, loaded as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hf_folders import CASES, Case, save

import oxibonsai
from oxibonsai import AutoModelForCausalLM, AutoTokenizer, FormatError
from oxibonsai.convert.language_model import convert
from oxibonsai.loading import open_model

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 60).tolist()
BY_NAME = {c.name: c for c in CASES}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("case", [BY_NAME[n] for n in ("llama3", "qwen3", "gemma3")])
def test_logits_are_the_bytes_of_the_converted_file(
    case: Case, tmp_path: Path, cache: Path
) -> None:
    save(case, tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "m.gguf")
    truth = oxibonsai.load(tmp_path / "m.gguf").logits(IDS).tobytes()
    assert oxibonsai.load(tmp_path / "model").logits(IDS).tobytes() == truth
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.logits(IDS).tobytes() == truth
    assert [p for p in cache.rglob("*") if p.is_file()] == []


def test_the_tokenizer_comes_without_the_weights(tmp_path: Path, cache: Path) -> None:
    save(BY_NAME["llama"], tmp_path / "model")
    ids = oxibonsai.load(tmp_path / "model").tokenizer.encode("Hello world")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert AutoTokenizer.from_pretrained(tmp_path / "model").encode("Hello world") == ids
    assert [p for p in cache.rglob("*") if p.is_file()] == []


def test_a_folder_keeps_its_identity_until_it_changes(tmp_path: Path) -> None:
    save(BY_NAME["llama"], tmp_path / "model")
    first, second = open_model(tmp_path / "model"), open_model(tmp_path / "model")
    assert (first.identity(), first.fingerprint()) == (second.identity(), second.fingerprint())
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    third = open_model(tmp_path / "model")
    assert third.identity() != first.identity()


def test_a_damaged_folder_is_named_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    save(BY_NAME["llama"], tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(FormatError, match=r"model/model\.safetensors"):
        oxibonsai.load(tmp_path / "model")
    assert [p for p in cache.rglob("*") if p.is_file()] == []


def test_errors_name_the_folder(tmp_path: Path) -> None:
    save(BY_NAME["llama"], tmp_path / "model", tokenizer=False)
    with pytest.raises(FormatError, match=f"{tmp_path / 'model'} has no tokenizer"):
        oxibonsai.load(tmp_path / "model").generate("x", oxibonsai.SamplingParams())
