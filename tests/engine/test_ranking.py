"""Rerankers and classifiers: pairs framed as the model was trained, scores that only the pair decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bert_folder
import gguf_copy
import oxibonsai
import tiny_model
from oxibonsai import RequestError, UnsupportedError, _core
from oxibonsai.cli.rerank import rerank
from oxibonsai.convert.language_model import convert
from oxibonsai.engine import Engine

QUERY = "hello world"
DOCUMENTS = ["tea a b", "un believ able!", "c", "world, hello world hello"]
KIND = {"architectures": ["BertForSequenceClassification"]}
QWEN_TEMPLATE = "<|im_start|>{document}<|im_end|>{query}?"


def bert(folder: Path, labels: int) -> Path:
    """The file of a tiny BERT with a classifier's head."""
    names = {str(i): f"kind {i}" for i in range(labels)}
    bert_folder.write(
        folder, config={**KIND, "id2label": names}, weights=bert_folder.head(labels), modules=[]
    )
    convert(folder, folder.with_suffix(".gguf"), dtype="f32")
    return folder.with_suffix(".gguf")


@pytest.fixture(scope="module")
def reranker_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("reranker") / "model", 1)


@pytest.fixture(scope="module")
def reranker(reranker_path: Path) -> Engine:
    return oxibonsai.load(reranker_path, threads=2)


def framed(*texts: str) -> tuple[list[int], list[int]]:
    """Ids and segments as BERT has them: [CLS] first [SEP] second [SEP]."""
    from tokenizers import Tokenizer

    words = Tokenizer.from_str(json.dumps(bert_folder.TOKENIZER))
    ids, segments = [2], [0]
    for i, text in enumerate(texts):
        part = [*words.encode(text, add_special_tokens=False).ids, 3]
        ids += part
        segments += [i] * len(part)
    return ids, segments


@pytest.mark.hf
def test_scores_are_those_of_transformers(reranker: Engine, reranker_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers and torch")
    import torch

    folder = reranker_path.with_suffix("")
    truth_model = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    truth = []
    for document in DOCUMENTS:
        ids, segments = framed(QUERY, document)
        with torch.no_grad():
            out = truth_model(torch.tensor([ids]), token_type_ids=torch.tensor([segments]))
        truth.append(out.logits[0, 0].item())
    ranking = reranker.rerank(QUERY, DOCUMENTS)
    found = {d.index: d.score for d in ranking.documents}
    assert np.std(truth) > 0.05
    assert [found[i] for i in range(4)] == pytest.approx(truth, abs=1e-5)
    assert [d.index for d in ranking.documents] == np.argsort(-np.array(truth)).tolist()
    assert ranking.tokens == sum(len(framed(QUERY, d)[0]) for d in DOCUMENTS)


def test_a_score_depends_on_its_pair_alone(reranker: Engine, reranker_path: Path) -> None:
    together = {d.index: d.score for d in reranker.rerank(QUERY, DOCUMENTS * 20).documents}
    alone = [reranker.rerank(QUERY, [d]).documents[0].score for d in DOCUMENTS]
    assert [together[i] for i in range(80)] == alone * 20
    single = oxibonsai.load(reranker_path, threads=1)
    assert [single.rerank(QUERY, [d]).documents[0].score for d in DOCUMENTS] == alone


def test_top_n_keeps_the_best_and_equal_scores_keep_their_order(reranker: Engine) -> None:
    ranked = reranker.rerank(QUERY, ["c", "tea", "c", "c"]).documents
    assert [d.index for d in ranked if d.index != 1] == [0, 2, 3]
    assert (
        reranker.rerank(QUERY, DOCUMENTS, top_n=2).documents
        == (reranker.rerank(QUERY, DOCUMENTS).documents[:2])
    )


def test_a_classifier_gives_a_score_for_each_label(tmp_path: Path) -> None:
    engine = oxibonsai.load(bert(tmp_path / "model", 3), threads=1)
    scores = engine.classify(["hello", ("hello", "world")])
    assert scores.shape == (2, 3)
    assert engine.ranker.labels == ("kind 0", "kind 1", "kind 2")
    assert engine.classify([("hello", "world")]).tobytes() == scores[1:].tobytes()
    with pytest.raises(RequestError, match="give a list of texts"):
        engine.classify("hello")
    with pytest.raises(UnsupportedError, match="3 scores for a pair"):
        engine.rerank("hello", ["world"])
    with pytest.raises(UnsupportedError, match="is a classifier"):
        engine.logits([1, 2])


def qwen(path: Path, out: Path) -> list[int]:
    """The tiny Qwen3 as a reranker; the ids of its answers."""
    answers = [7, 42]
    table = _core.GgufFile(str(path))
    shape = (tiny_model.VOCABULARY, tiny_model.HIDDEN)
    stored = next(t for t in table.tensors if t.name == "token_embd.weight")
    kind = next(t["name"] for t in _core.quant_types() if t["gguf_id"] == stored.gguf_id)
    rows = _core.decode(kind, table.tensor_bytes("token_embd.weight")).reshape(shape)
    keys: dict[str, tuple[Any, str]] = {
        "qwen3.pooling_type": (4, "u32"),
        "qwen3.classifier.output_labels": (["yes", "no"], "arr[str]"),
        "tokenizer.chat_template.rerank": (QWEN_TEMPLATE, "str"),
    }
    gguf_copy.copy(path, out, keys=keys, more={"cls.output.weight": rows[answers]})
    return answers


def test_a_qwen3_gives_the_probability_of_yes(tiny_path: Path, tmp_path: Path) -> None:
    yes, no = qwen(tiny_path, tmp_path / "m.gguf")
    plain, engine = (oxibonsai.load(p, threads=1) for p in (tiny_path, tmp_path / "m.gguf"))
    prompt = "<|im_start|>{query}<|im_end|>ab?"  # a query that names the template's places
    ids = plain.tokenizer.encode(prompt, add_special=False, parse_special=True)
    logits = plain.logits(ids)[-1].astype(np.float64)
    (found,) = engine.rerank("ab", ["{query}"]).documents
    assert found.score == pytest.approx(1 / (1 + np.exp(logits[no] - logits[yes])), abs=0.02)
    assert abs(found.score - 0.5) > 0.01


@pytest.mark.parametrize(
    ("query", "documents", "message"),
    [
        ("", ["a"], "the query is empty"),
        ("a", ["b", ""], "text 1 is empty"),
        ("a", [], "no texts were given"),
        ("a", "b", "is one text"),
        ("a", ["b " * 100], "text 0 has 104 tokens"),
    ],
)
def test_what_cannot_be_ranked_is_one_clear_error(
    reranker: Engine, query: str, documents: list[str], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        reranker.rerank(query, documents)


def test_a_model_without_a_head_ranks_nothing(tiny_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no reranker and no classifier"):
        oxibonsai.load(tiny_path, threads=1).rerank("a", ["b"])


def test_the_command_prints_the_best_first(reranker: Engine, reranker_path: Path) -> None:
    arguments = ["--model", str(reranker_path), "--query", QUERY, "--top-n", "2"]
    wanted = reranker.rerank(QUERY, DOCUMENTS, top_n=2).documents
    out = CliRunner().invoke(rerank, [*arguments, *DOCUMENTS]).output
    assert out.splitlines() == [f"{d.score:.9g}\t{DOCUMENTS[d.index]}" for d in wanted]
    out = CliRunner().invoke(rerank, [*arguments, "--json", *DOCUMENTS]).output
    found = [(r["index"], r["relevance_score"]) for r in json.loads(out)["results"]]
    assert found == [(d.index, d.score) for d in wanted]
