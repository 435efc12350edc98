"""Pipelines of classifiers, and CrossEncoder, beside transformers, on the same random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_folder
import oxibonsai
from oxibonsai import RequestError, UnsupportedError
from oxibonsai.hf import CausalLM, CrossEncoder, pipeline

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.hf

NLI = {
    "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"},
    "label2id": {"contradiction": 0, "neutral": 1, "entailment": 2},
}
TEXTS = ["hello world tea", "unbelievable tea, a b c!", "b"]
LABELS = ["tea", "world", "c"]
PAIRS = [("hello world", "a"), ("tea", "unbelievable tea!"), ("c", "b a"), ("a b c", "hello, tea")]


def write(folder: Path, labels: int, config: dict[str, Any]) -> Path:
    named = {"architectures": ["BertForSequenceClassification"], **config}
    return bert_folder.write(folder, config=named, weights=bert_folder.head(labels))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("nli") / "model", 3, NLI)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    one = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return write(tmp_path_factory.mktemp("reranker") / "model", 1, one)


def same(found: Any, truth: Any) -> None:
    """Both are lists of dicts whose scores are about equal, and all else is."""
    assert len(found) == len(truth)
    for ours, theirs in zip(found, truth, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            if name in ("score", "scores"):
                assert ours[name] == pytest.approx(value, rel=1e-4)
            else:
                assert ours[name] == value


@pytest.mark.parametrize(
    "options",
    [{}, {"multi_label": True}, {"hypothesis_template": "a {} !"}],
    ids=lambda o: ", ".join(o) or "plain",
)
def test_labels_are_chosen_by_entailment(options: dict[str, Any], folder: Path) -> None:
    theirs = transformers.pipeline("zero-shot-classification", model=str(folder))
    ours = pipeline("zero-shot-classification", model=folder)
    found, truth = (p(TEXTS, LABELS, **options) for p in (ours, theirs))
    same(found, truth)
    spread = [max(t["scores"]) - min(t["scores"]) for t in truth]
    assert max(spread) > 0.02  # equal scores prove nothing


def test_texts_are_classified(folder: Path) -> None:
    theirs = transformers.pipeline("text-classification", model=str(folder))
    ours = pipeline("text-classification", model=folder)
    same(ours(TEXTS), theirs(TEXTS))
    for found, truth in zip(ours(TEXTS, top_k=None), theirs(TEXTS, top_k=None), strict=True):
        same(found, truth)
    loaded = oxibonsai.AutoModelForSequenceClassification.from_pretrained(folder)
    assert pipeline("text-classification", model=loaded)(TEXTS) == ours(TEXTS)


def logits(folder: Path, pairs: list[tuple[str, str]], **options: Any) -> Any:
    """As sentence-transformers makes them: by transformers' model and tokenizer."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(
        [a for a, _ in pairs], [b for _, b in pairs], padding=True, truncation=True,
        return_tensors="pt", **options,
    )  # fmt: skip
    with torch.no_grad():
        return model(**inputs).logits


def test_a_reranker_scores_with_a_sigmoid(reranker: Path) -> None:
    model, truth = CrossEncoder(reranker), logits(reranker, PAIRS)[:, 0]
    found = model.predict(PAIRS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, truth.sigmoid(), rtol=1e-4)
    assert found.max() - found.min() > 0.02
    assert model.predict(PAIRS, batch_size=1).tobytes() == found.tobytes()
    assert model.predict(PAIRS[1]) == found[1]
    np.testing.assert_allclose(
        model.predict(PAIRS, activation_fn=torch.nn.Identity()), truth, rtol=1e-4, atol=1e-4
    )
    assert torch.equal(model.predict(PAIRS, convert_to_tensor=True), torch.from_numpy(found))
    assert model.predict(PAIRS, convert_to_numpy=False) == list(found)


def test_documents_are_ranked(reranker: Path) -> None:
    model, documents = CrossEncoder(reranker), ["a", "unbelievable tea!", "b a", "hello, tea"]
    truth = logits(reranker, [("hello world", d) for d in documents])[:, 0].sigmoid()
    order = truth.argsort(descending=True).tolist()
    found = model.rank("hello world", documents, return_documents=True)
    assert [f["corpus_id"] for f in found] == order
    assert [f["text"] for f in found] == [documents[i] for i in order]
    assert [f["score"] for f in found] == pytest.approx(truth[order].tolist(), rel=1e-4)
    assert [f["corpus_id"] for f in model.rank("hello world", documents, top_k=2)] == order[:2]


def test_long_pairs_are_cut_as_in_transformers(reranker: Path) -> None:
    pairs = [("hello world tea " * 4, "a b c " * 2), ("b", "tea, " * 9)]
    truth = logits(reranker, pairs, max_length=12)[:, 0].sigmoid()
    whole = logits(reranker, pairs)[:, 0].sigmoid()
    assert (truth - whole).abs().max() > 1e-3
    np.testing.assert_allclose(
        CrossEncoder(reranker, max_length=12).predict(pairs), truth, rtol=1e-4
    )


def test_several_scores_are_logits_or_probabilities(folder: Path) -> None:
    model, truth = CrossEncoder(folder), logits(folder, PAIRS)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(model.predict(PAIRS), truth, **close)
    np.testing.assert_allclose(model.predict(PAIRS, apply_softmax=True), truth.softmax(1), **close)
    assert model.predict(PAIRS[0]).shape == (3,)
    with pytest.raises(UnsupportedError, match="3 scores"):
        model.rank("a", ["b"])


def test_what_makes_no_sense_is_one_typed_error(
    folder: Path, hf_folder: Path, model: CausalLM
) -> None:
    encoder = CrossEncoder(folder)
    for pairs, message in [
        ([], "empty"),
        ([("a", "b"), ("a",)], r"sentences\[1\]"),
        ([("a", 3)], r"sentences\[0\]"),
    ]:
        with pytest.raises(RequestError, match=message):
            encoder.predict(pairs)
    with pytest.raises(UnsupportedError, match="no head that scores texts"):
        CrossEncoder(hf_folder)
    with pytest.raises(UnsupportedError, match="available are 'text-generation'"):
        pipeline("fill-mask", model=model)
    with pytest.raises(UnsupportedError, match="takes a model of AutoModelForSeq2SeqLM"):
        pipeline("text2text-generation", model=model)
    tokenizer = oxibonsai.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(RequestError, match="pair of texts"):
        tokenizer([["a", "b"], ["c"]])
