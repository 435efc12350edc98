"""Qwen3-Reranker: two rows of the output matrix are left, and the probability of yes is the score."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from hf_folders import CASES, logits, save

import oxibonsai
from oxibonsai import FormatError, UnsupportedError
from oxibonsai.convert.language_model import convert
from oxibonsai.hf import CrossEncoder

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
pytestmark = pytest.mark.hf

YES, NO = 61, 40
BY_NAME = {c.name: c for c in CASES}


def name_answers(folder: Path, *answers: tuple[str, int]) -> None:
    """Gives tokens the texts of the answers."""
    file = folder / "tokenizer.json"
    document = json.loads(file.read_text())
    vocabulary = {i: text for text, i in document["model"]["vocab"].items()}
    vocabulary |= {i: text for text, i in answers}
    document["model"]["vocab"] = {text: i for i, text in vocabulary.items()}
    document["model"]["merges"] = []
    file.write_text(json.dumps(document))


@pytest.mark.parametrize("tied", [False, True])
def test_the_score_is_that_of_transformers(tied: bool, tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-Reranker-tiny"
    case = BY_NAME["qwen3"]
    model = save(case, folder)
    if tied:
        config = json.loads((folder / "config.json").read_text())
        config["tie_word_embeddings"] = True
        (folder / "config.json").write_text(json.dumps(config))
        model.config.tie_word_embeddings = True
        model.tie_weights()
        model.save_pretrained(folder)
    name_answers(folder, ("yes", YES), ("no", NO))
    convert(folder, tmp_path / "m.gguf", dtype="f32")
    names = {t.name for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    assert "cls.output.weight" in names
    assert "output.weight" not in names
    engine = oxibonsai.load(tmp_path / "m.gguf", threads=1)
    (pair,) = engine.ranker.pair_ids("q", ["doc"])
    found = engine.ranker.rank_ids([pair]).documents[0].score
    last = logits(model, pair.tokens)[-1].astype(np.float64)
    assert found == pytest.approx(1 / (1 + np.exp(last[NO] - last[YES])), abs=1e-5)
    assert engine.ranker.labels == ("yes", "no")
    encoder = CrossEncoder(tmp_path / "m.gguf", threads=1)
    assert encoder.predict([("q", "doc")])[0] == pytest.approx(found)
    assert encoder.rank("q", ["doc"])[0]["score"] == pytest.approx(found)
    with pytest.raises(UnsupportedError, match="load it with CrossEncoder"):
        oxibonsai.AutoModelForSequenceClassification.from_pretrained(tmp_path / "m.gguf")
    with pytest.raises(UnsupportedError, match="max_length"):
        CrossEncoder(tmp_path / "m.gguf", max_length=8)


def test_without_its_answers_a_vocabulary_is_refused(tmp_path: Path) -> None:
    save(BY_NAME["qwen3"], tmp_path / "qwen3-reranker")
    with pytest.raises(FormatError, match="lacks a token of yes, no"):
        convert(tmp_path / "qwen3-reranker", tmp_path / "m.gguf")
