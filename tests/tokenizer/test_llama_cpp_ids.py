"""Every tokenizer against llama.cpp's ids, on mixed scripts, code, emoji and random characters."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oxibonsai.tokenizer import Tokenizer, pieces
from oxibonsai.tokenizer.pre_tokenizers import COMPOSES_KEY, PRE_TOKENIZERS

FOLDER = Path(__file__).parents[1] / "truth" / "tokenizers"


@cache
def record() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        gzip.decompress((FOLDER / "vocabularies.json.gz").read_bytes())
    )
    for vocabulary in loaded["vocabularies"].values():
        types = {"token_type": np.int32, "scores": np.float32, "precompiled_charsmap": np.uint8}
        for key, dtype in types.items():
            if key in vocabulary:
                vocabulary[key] = np.array(vocabulary[key], dtype=dtype)
    return loaded


@cache
def recorded_ids(name: str) -> list[list[int]]:
    """Ids of each text."""
    with np.load(FOLDER / "ids.npz") as file:
        both = file[name]
    count = len(record()["texts"])
    return [list(row) for row in np.split(both[count:], np.cumsum(both[:count])[:-1])]


@cache
def tokenizer_of(vocabulary: str, keys: str) -> Tokenizer:
    values = record()["vocabularies"][vocabulary] | json.loads(keys)
    stated = {f"tokenizer.ggml.{k}": v for k, v in values.items()}
    return Tokenizer.from_gguf({**stated, COMPOSES_KEY: False})  # as llama.cpp


FILES: dict[str, dict[str, Any]] = record()["files"]
# Names that say the same are one tokenizer: the first of them.
KINDS = {name: PRE_TOKENIZERS.get(name.removeprefix("gpt2 "), name) for name in FILES}
FIRSTS = {kind: name for name, kind in reversed(KINDS.items())}


def tokenizer_for(name: str) -> Tokenizer:
    first = FILES[FIRSTS[KINDS[name]]]
    return tokenizer_of(first["vocabulary"], json.dumps(first["keys"]))


@pytest.mark.parametrize("name", FILES)
def test_ids_are_those_of_llama_cpp(name: str) -> None:
    tokenizer = tokenizer_for(name)
    for text, ids in zip(record()["texts"], recorded_ids(FILES[name]["ids"]), strict=True):
        assert tokenizer.encode(text) == ids, text


@pytest.mark.parametrize("name", sorted(FIRSTS.values()))
def test_pieces_have_the_ids_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_for(name)
    whole = recorded_ids(FILES[name]["ids"])
    monkeypatch.setattr(pieces, "PIECE", 1)
    for text, ids in zip(record()["texts"], whole, strict=True):
        assert tokenizer.encode(text) == ids, text


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("t5")])
def test_the_special_ids_of_t5_need_not_be_named(name: str) -> None:
    file = FILES[name]
    values = record()["vocabularies"][file["vocabulary"]] | file["keys"]
    unnamed = {k: v for k, v in values.items() if k not in ("unknown_token_id", "eos_token_id")}
    tokenizer = Tokenizer.from_gguf({f"tokenizer.ggml.{k}": v for k, v in unnamed.items()})
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2)
    for text, ids in zip(record()["texts"], recorded_ids(file["ids"]), strict=True):
        assert tokenizer.encode(text) == ids, text


LOSSY = ("t5", "whitespace", "hybriddna", "gpt2 sarvam-moe", "gpt2 gemma4", "gemma4", "plamo2")


@pytest.mark.parametrize("name", sorted(n for n in FIRSTS.values() if not n.startswith(LOSSY)))
def test_decoding_gives_the_text_back(name: str) -> None:
    tokenizer = tokenizer_for(name)
    for text in record()["texts"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_name_is_recorded() -> None:
    assert {f"gpt2 {name}" for name in PRE_TOKENIZERS} <= FILES.keys()
