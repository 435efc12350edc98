"""save_model of encoders and classifiers: transformers reads what is saved, and it converts back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import gguf_copy
from oxibonsai import UnsupportedError
from oxibonsai.architectures.families import all_families
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.export import save_model
from oxibonsai.models import read_config

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import conversions
import encoder_models as em
import safetensors.numpy
import torch
import transformers

pytestmark = pytest.mark.hf

ALL = [*em.ENCODERS, *em.CLASSIFIERS, *em.SEQ2SEQ]
CASES = [c for c in ALL if c.kind != "Longformer"]

# Variants of others.
ALIKE = (
    "roberta", "xlm-roberta", "nomic-bert", "modern-bert-silu", "t5encoder-gated", "umt5encoder",
    "t5", "umt5", "bert-reranker", "modern-bert-classifier", "big-bird-odd-blocks", "big-bird-full",
)  # fmt: skip


def result(model: object, case: em.Encoder) -> npt.NDArray[np.float32]:
    """Hidden states, scores or logits."""
    if case.model == "ForSequenceClassification":
        return em.scores(model, em.IDS)
    if case.model == "ForConditionalGeneration":
        return em.seq2seq_logits(model, em.IDS, em.IDS[:9])
    return em.states(model, em.IDS)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.name in ALIKE else [])
        for c in CASES
    ],
)
def test_what_is_saved_is_the_model(case: em.Encoder, tmp_path: Path) -> None:
    model = em.save(case, tmp_path / "model")
    truth = result(model, case)
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    save_model(Checkpoint(tmp_path / "model.gguf"), tmp_path / "saved")
    (kind,) = json.loads((tmp_path / "saved" / "config.json").read_text())["architectures"]
    theirs, report = getattr(transformers, kind).from_pretrained(
        tmp_path / "saved",
        dtype=torch.float32,
        attn_implementation="eager",
        output_loading_info=True,
    )
    assert not report["unexpected_keys"]
    # Tables that are another's copy, and a pooler that no embedding goes through.
    assert all("pooler." in key or "embed_tokens" in key for key in report["missing_keys"])
    if case.kind == "UMT5":  # whose configuration forgets it
        theirs.config.tie_word_embeddings = model.config.tie_word_embeddings
    assert np.abs(result(theirs.eval(), case) - truth).max() <= 1e-6 * np.abs(truth).max()
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    assert conversions.summary(tmp_path / "again.gguf") == conversions.summary(
        tmp_path / "model.gguf"
    )


def test_every_encoder_is_tested() -> None:
    kinds = {(c.kind, c.model) for c in CASES}
    saved = {(f.kind, f.task) for f in all_families() if f.kind and f.task != "ForCausalLM"}
    assert saved <= kinds


def with_keys(name: str, folder: Path, keys: dict[str, tuple[object, str]]) -> Checkpoint:
    """The file of a case with other keys."""
    em.save(next(c for c in ALL if c.name == name), folder / "model")
    convert(folder / "model", folder / "model.gguf", dtype="f32")
    gguf_copy.copy(folder / "model.gguf", folder / "other.gguf", keys=keys)
    return Checkpoint(folder / "other.gguf")


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("bert", {"bert.attention.scale": (0.3, "f32")}, "attention_scale"),
        ("bert", {"bert.pooling_type": (0, "u32")}, "pooling_type is 0"),
        ("longformer", {}, "longformer can be saved as gguf only"),
    ],
)
def test_what_a_configuration_cannot_say_is_refused(
    name: str, keys: dict[str, tuple[object, str]], message: str, tmp_path: Path
) -> None:
    checkpoint = with_keys(name, tmp_path, keys)
    with pytest.raises(UnsupportedError, match=message):
        save_model(checkpoint, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_another_window_is_kept(tmp_path: Path) -> None:
    keys = {"modern-bert.attention.sliding_window": (7, "u32")}
    checkpoint = with_keys("modern-bert", tmp_path, keys)
    save_model(checkpoint, tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    found, wanted = read_config(Checkpoint(tmp_path / "again.gguf")), read_config(checkpoint)
    assert dataclasses.replace(found, name=wanted.name) == wanted


@pytest.mark.parametrize(("kind", "word"), [(1, "mean_tokens"), (2, "cls_token"), (3, "lasttoken")])
def test_pooling_is_that_of_sentence_transformers(kind: int, word: str, tmp_path: Path) -> None:
    checkpoint = with_keys("bert", tmp_path, {"bert.pooling_type": (kind, "u32")})
    save_model(checkpoint, tmp_path / "saved")
    stated = json.loads((tmp_path / "saved" / "1_Pooling" / "config.json").read_text())
    assert [k for k, v in stated.items() if v is True] == [f"pooling_mode_{word}"]
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    assert Checkpoint(tmp_path / "again.gguf").file.get("bert.pooling_type") == kind


def test_layers_after_pooling_are_folders_of_their_own(tmp_path: Path) -> None:
    em.save(next(c for c in CASES if c.name == "gemma-embedding"), tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    matrices = {
        f"dense_{i}.weight": np.full(shape, i, np.float32)
        for i, shape in ((2, (96, em.HIDDEN)), (3, (em.HIDDEN, 96)))
    }
    gguf_copy.copy(tmp_path / "model.gguf", tmp_path / "more.gguf", more=matrices)
    save_model(Checkpoint(tmp_path / "more.gguf"), tmp_path / "saved")
    for folder, matrix in zip(("2_Dense", "3_Dense"), matrices.values(), strict=True):
        stored = safetensors.numpy.load_file(tmp_path / "saved" / folder / "model.safetensors")
        assert stored.keys() == {"linear.weight"}
        assert np.array_equal(stored["linear.weight"], matrix)
        config = json.loads((tmp_path / "saved" / folder / "config.json").read_text())
        assert (config["out_features"], config["in_features"]) == matrix.shape
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    found, wanted = (conversions.summary(tmp_path / f"{n}.gguf") for n in ("again", "more"))
    assert found["tensors"] == wanted["tensors"]
