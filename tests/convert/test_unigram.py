"""Unigram vocabularies of ``tokenizer.json``: the ids of the library that trained them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oxibonsai
from oxibonsai import FormatError, UnsupportedError
from oxibonsai.convert.language_model import convert
from unigram_folder import trained, write

TEXTS = ["Hello  world", "the caf\u00e9 ", " tea!", "\u6771\u4eac xyz", "a\u0301 un"]


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
