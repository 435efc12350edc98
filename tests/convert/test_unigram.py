"""Unigram vocabularies of ``tokenizer.json``: the ids of the library that trained them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import bert_folder
import oxibonsai
from oxibonsai import FormatError, UnsupportedError
from oxibonsai.convert.language_model import convert

CORPUS = [
    "Hello world, the tea is hot and the world is large.",
    "Unbelievable teas, unbelievably hot worlds: say hello!",
    "A caf\u00e9 in \u6771\u4eac has tea, too.",
]
TEXTS = ["Hello  world", "the caf\u00e9 ", " tea!", "\u6771\u4eac xyz", "a\u0301 un"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


@lru_cache(maxsize=1)  # training twice gives two orders
def trained() -> Tokenizer:
    """As XLM-RoBERTa's: two separators between the texts of a pair."""
    words = Tokenizer(models.Unigram())
    words.normalizer = normalizers.Sequence(
        [normalizers.Strip(left=False, right=True), normalizers.Replace(_regex(" {2,}"), "\u2581")]
    )
    words.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    words.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>"),
    )
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return words


def _regex(pattern: str) -> Any:
    from tokenizers import Regex

    return Regex(pattern)


def write(folder: Path, tokenizer: dict[str, Any]) -> Path:
    """A tiny XLM-RoBERTa reranker with a vocabulary."""
    config = {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"],
        "pad_token_id": 1, "type_vocab_size": 2, "id2label": {"0": "LABEL_0"},
    }  # fmt: skip
    bert_folder.write(folder, config=config, modules=[])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = {
        "bos": "<s>",
        "eos": "</s>",
        "cls": "<s>",
        "sep": "</s>",
        "unk": "<unk>",
        "pad": "<pad>",
    }
    special = {f"{name}_token": text for name, text in names.items()}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    random = np.random.default_rng(8)
    weights = {f"roberta.{k}": v for k, v in bert_folder.parameters().items() if "pooler" not in k}
    for name, rows in (("dense", bert_folder.HIDDEN), ("out_proj", 1)):
        shape = (rows, bert_folder.HIDDEN)
        weights[f"classifier.{name}.weight"] = random.normal(0, 0.1, shape).astype(np.float32)
        weights[f"classifier.{name}.bias"] = random.normal(0, 0.1, rows).astype(np.float32)
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("unigram") / "model", json.loads(trained().to_str()))


def test_ids_are_those_of_the_trained_tokenizer(folder: Path) -> None:
    convert(folder, folder.parent / "m.gguf")
    engine, words = oxibonsai.load(folder.parent / "m.gguf", threads=1), trained()
    for text in TEXTS:
        assert engine.tokenizer.encode(text) == words.encode(text).ids
    pairs = engine.ranker.pair_ids(TEXTS[0], TEXTS[1:])
    assert [p.tokens for p in pairs] == [words.encode(TEXTS[0], t).ids for t in TEXTS[1:]]
    assert len(engine.rerank(TEXTS[0], TEXTS[1:]).documents) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "step Lowercase"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "no base64"),
        ({"pre_tokenizer": {"type": "Digits"}}, "pre-tokenizer"),
        ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a"]]}}, "pieces and scores"),
        ({"model": {"type": "Unigram", "unk_id": 9, "vocab": [["a", -1.0]]}}, "unk_id is 9"),
    ],
)
def test_what_gguf_has_no_place_for_is_said(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write(tmp_path / "model", {**json.loads(trained().to_str()), **changes})
    with pytest.raises((FormatError, UnsupportedError), match=message):
        convert(tmp_path / "model", tmp_path / "m.gguf")
