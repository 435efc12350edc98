"""The keys that ``convert`` makes of a ``tokenizer.json`` give its ids, or it says what they can't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as FastTokenizer

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.files.vocabulary_keys import (
    encoder_vocabulary_keys,
    vocabulary_keys,
    vocabulary_notes,
)
from oxibonsai.tokenizer.stripping import LSTRIP_KEY, RSTRIP_KEY
from tokenizer_folders import FOLDERS, TEXTS


def of_gguf(folder: Path, *, encoder: bool = False, **others: Any) -> Tokenizer:
    """The tokenizer of the converted vocabulary."""
    size = FastTokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    keys = (encoder_vocabulary_keys if encoder else vocabulary_keys)(folder, size)
    values = {
        k: np.array(v) if t in ("arr[i32]", "arr[f32]", "arr[u8]") else v
        for k, (v, t) in keys.items()
    }
    values |= others
    if "tokenizer.ggml.precompiled_charsmap" in values:
        stored = values["tokenizer.ggml.precompiled_charsmap"]
        values["tokenizer.ggml.precompiled_charsmap"] = stored.astype(np.uint8)
    return Tokenizer.from_gguf(values)


@pytest.mark.parametrize("name", ["qwen2", "llama3", "gpt2", "roberta", "gemma", "bert"])
def test_a_converted_vocabulary_gives_the_ids_of_its_tokenizer_json(
    name: str, tmp_path: Path
) -> None:
    folder = FOLDERS[name].write(tmp_path)
    converted, theirs = of_gguf(folder, encoder=name == "bert"), FOLDERS[name].make()
    for text in TEXTS:
        ids = converted.encode(text, add_special=False, parse_special=True)
        assert ids == theirs.encode(text, add_special_tokens=False).ids, text
    for mark in (m for m in FOLDERS[name].marks if m != "tea-time"):
        text = f"a {mark} b\n{mark}c\u3000{mark}"
        ids = converted.encode(text, add_special=False, parse_special=True)
        assert ids == theirs.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
def test_white_space_that_a_token_takes(side: str, tmp_path: Path) -> None:
    made = FastTokenizer.from_str(FOLDERS["gpt2"].make().to_str())
    made.add_tokens([AddedToken("<x>", special=True, normalized=False, **{side: True})])
    made.save(str(tmp_path / "tokenizer.json"))
    converted = of_gguf(tmp_path)
    for text in ("a <x> b", "a \t\n<x>\u3000\u2003\n b", " <x> ", "<x> <x>", "a\x1c<x>\x1fb"):
        ids = converted.encode(text, add_special=False, parse_special=True)
        assert ids == made.encode(text, add_special_tokens=False).ids, text
    assert vocabulary_notes(tmp_path) == []


@pytest.mark.parametrize("ids", [np.array([10_000]), np.array([-1]), np.array([0.5]), "x"])
@pytest.mark.parametrize("key", [LSTRIP_KEY, RSTRIP_KEY])
def test_ids_that_are_none_are_refused(key: str, ids: Any, tmp_path: Path) -> None:
    folder = FOLDERS["gpt2"].write(tmp_path)
    with pytest.raises(FormatError, match=f"{key} is no list of ids below"):
        of_gguf(folder, **{key: ids})


def test_what_gguf_has_no_place_for_is_said(tmp_path: Path) -> None:
    for name in ("qwen2", "llama3", "gpt2", "roberta", "gemma", "t5", "xlm_r"):
        assert vocabulary_notes(FOLDERS[name].write(tmp_path / name)) == []
    (alone, normalized) = vocabulary_notes(FOLDERS["bert"].write(tmp_path / "bert"))
    assert "finds 'tea-time' only as whole words" in alone
    assert "finds 'tea-time' in the normalized text" in normalized
    (frame,) = vocabulary_notes(FOLDERS["clip"].write(tmp_path / "clip"))
    assert "puts '<start>', '<lang>', '<end>' around each text" in frame
    (tmp_path / "gpt2" / "generation_config.json").write_text('{"eos_token_id": [1, 2, 3, 4, 5]}')
    (ends,) = vocabulary_notes(tmp_path / "gpt2")
    assert "names 5 tokens that end an answer" in ends
    assert "4, 5 end none" in ends


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "the normalizer Lowercase is not supported"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre-tokenizer is none that convert knows"),
        (
            {"model": {"end_of_word_suffix": "</w>"}},
            "end_of_word_suffix '</w>', which GGUF has no place",
        ),
        ({"model": {"dropout": 0.1}}, "dropout 0.1"),
        ({"model": {"merges": [["a", "b", "c"]]}}, "no merge of two pieces"),
        ({"added_tokens": [5]}, "added_tokens is no list of tokens"),
    ],
)
def test_what_no_key_says_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = FOLDERS["gpt2"].write(tmp_path)
    document = json.loads((folder / "tokenizer.json").read_text())
    for key, value in change.items():
        document[key] = document[key] | value if key == "model" else value
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises((FormatError, UnsupportedError), match=message):
        vocabulary_keys(folder, 500)


def test_parts_that_are_tokens_are_merged_as_the_file_says(tmp_path: Path) -> None:
    """The splits of Llama 3 have two names, by whether a part that is a token is merged."""
    folder = FOLDERS["llama3"].write(tmp_path)
    document = json.loads((folder / "tokenizer.json").read_text())
    names = {}
    for whole in (True, False):
        document["model"]["ignore_merges"] = whole
        (folder / "tokenizer.json").write_text(json.dumps(document))
        names[whole] = vocabulary_keys(folder, 500)["tokenizer.ggml.pre"][0]
    assert names == {True: "llama-bpe", False: "smaug-bpe"}
