"""WordPiece from GGUF metadata."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai import FormatError
from oxibonsai.tokenizer import Tokenizer

TEXTS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
TEXTS += ["\u2581hello", "\u2581un", "\u2581b", "believ", "able", "\u2581a", "a", "b"]
TEXTS += ["\u2581!", "\u2581caf", "e", "\u2581\u4eca", "\u2581Hello", "\u2581\u00e9", "\u2581["]
CLS, SEP, UNKNOWN = 2, 3, 1


def tokenizer(**changes: Any) -> Tokenizer:
    keys: dict[str, Any] = {
        "model": "bert",
        "tokens": TEXTS,
        "token_type": np.array([3] * 4 + [1] * (len(TEXTS) - 4)),
        "unknown_token_id": UNKNOWN,
        "cls_token_id": CLS,
        "seperator_token_id": SEP,
        "padding_token_id": 0,
    }
    keys |= {k.replace("__", "."): v for k, v in changes.items()}
    return Tokenizer.from_gguf({f"tokenizer.ggml.{k}": v for k, v in keys.items()})


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hello", ["\u2581hello"]),
        ("HELLO!", ["\u2581hello", "\u2581!"]),
        ("unbelievable", ["\u2581un", "believ", "able"]),
        ("abba", ["\u2581a", "b", "b", "a"]),
        ("Caf\u00e9", ["\u2581caf", "e"]),
        ("\u4eca\u4eca", ["\u2581\u4eca", "\u2581\u4eca"]),
        ("unz hello", ["[UNK]", "\u2581hello"]),
        ("a" * 101, ["[UNK]"]),
        ("[CLS]", ["\u2581[", "[UNK]", "[UNK]"]),
        (" \t\n", []),
    ],
)
def test_words_are_cut_into_the_longest_pieces(text: str, pieces: list[str]) -> None:
    ids = [TEXTS.index(p) for p in pieces]
    assert tokenizer().encode(text, add_special=False) == ids
    assert tokenizer().encode(text) == [CLS, *ids, SEP]


def test_special_tokens_are_read_only_where_asked() -> None:
    ids = tokenizer().encode("hello[SEP]hello", add_special=False, parse_special=True)
    assert ids == [4, SEP, 4]


def test_case_and_accents_are_kept_where_the_file_says_so() -> None:
    cased = tokenizer(normalizer__lowercase=False)
    assert cased.encode("Hello \u00e9", add_special=False) == [16, 17]
    stripped = tokenizer(normalizer__lowercase=False, normalizer__strip_accents=True)
    assert stripped.encode("\u00e9", add_special=False) == [UNKNOWN]


def test_ids_become_text() -> None:
    t = tokenizer()
    assert t.decode(t.encode("Unbelievable  hello!")) == "unbelievable hello !"


@given(st.text(alphabet="abun! ", max_size=40))
def test_any_text_is_cut_greedily_from_the_left(text: str) -> None:
    expected = []
    for word in text.replace("!", " ! ").split():
        rest, found = word, []
        while rest:
            starts = [rest[:n] for n in range(len(rest), 0, -1)]
            known = [s for s in starts if (s if found else "\u2581" + s) in TEXTS]
            if not known:
                found = ["[UNK]"]
                break
            found.append(known[0] if found else "\u2581" + known[0])
            rest = rest[len(known[0]) :]
        expected += [TEXTS.index(p) for p in found]
    assert _SHARED.encode(text, add_special=False) == expected


_SHARED = tokenizer()


@pytest.mark.parametrize("key", ["unknown_token_id", "tokens"])
def test_missing_metadata_are_named(key: str) -> None:
    with pytest.raises(FormatError, match=key):
        tokenizer(**{key: None})
