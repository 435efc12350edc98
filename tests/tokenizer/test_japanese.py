"""Japanese BERT: the ids of transformers' BertJapaneseTokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bert_folder
from oxibonsai import UnsupportedError
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.tokenizer import Tokenizer

pytest.importorskip("fugashi", reason="needs fugashi and unidic-lite (extra: ja)")
pytest.importorskip("unidic_lite", reason="needs fugashi and unidic-lite (extra: ja)")

WORDS = [
    "\u65e5\u672c", "\u8a9e", "\u306e", "\u6587", "\u3092", "\u66f8\u304f", "##\u8a9e", "##\u65e5",
    "\u3002", "hello", "##s", "\u30c6", "##\u30b9", "##\u30c8",
]  # fmt: skip
CHARACTERS = sorted({c for w in WORDS for c in w.removeprefix("##")} - set(WORDS))
TEXTS = [
    "\u65e5\u672c\u8a9e\u306e\u6587\u3092\u66f8\u304f\u3002",
    "\uff83\uff7d\uff84 hellos\n\u65e5\u672c\u3002\u66f8\u304f",  # half-width letters
    "xyz \u65e5 [MASK] a\0b",
]


def write(folder: Path, kind: str, **changes: object) -> Path:
    vocabulary = [*bert_folder.SPECIAL, *WORDS, *CHARACTERS]
    bert_folder.write(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = {
        "tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab",
        "subword_tokenizer_type": kind, "mecab_kwargs": {"mecab_dic": "unidic_lite"},
        "do_lower_case": False, **changes,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.hf
@pytest.mark.parametrize("kind", ["wordpiece", "character"])
def test_ids_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    folder = write(tmp_path / "model", kind)
    theirs = transformers.BertJapaneseTokenizer.from_pretrained(folder)
    convert(folder, tmp_path / "m.gguf")
    ours = Tokenizer.from_gguf(Checkpoint(tmp_path / "m.gguf").file)
    for text in TEXTS[:2]:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert len(set(ours.encode(text))) > 4
    assert ours.encode(TEXTS[2], parse_special=True).count(4) == 1
    long = TEXTS[0] * 2000  # cut into pieces at ends of sentences
    assert ours.encode(long) == [2, *ours.encode(TEXTS[0], add_special=False) * 2000, 3]


@pytest.mark.parametrize(
    "changes",
    [{"word_tokenizer_type": "sudachi"}, {"mecab_kwargs": {"mecab_dic": "ipadic"}}],
)
def test_other_ways_to_cut_words_are_refused(changes: dict[str, object], tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "wordpiece", **changes)
    with pytest.raises(UnsupportedError, match=next(iter(changes))):
        convert(folder, tmp_path / "m.gguf")


def test_another_kind_of_pieces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="sentencepiece"):
        convert(write(tmp_path / "model", "sentencepiece"), tmp_path / "m.gguf")
