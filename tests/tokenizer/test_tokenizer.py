"""Tokenizers over small vocabularies made here, and over broken ones."""

from __future__ import annotations

import itertools
import threading
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.tokenizer import StreamDecoder, Tokenizer, merges, pieces
from oxibonsai.tokenizer.byte_level import BYTE_OF

_PIECES = {
    "▁": -9.0,
    "a": -5.0,
    "b": -5.0,
    "c": -5.0,
    "é": -6.0,
    "ab": -1.0,
    "bc": -2.0,
    "abc": -3.0,
}
_PIECES |= {"▁a": -1.5, "▁▁": -1.2, "aa": -0.5}
_PIECES |= {"c▁": -0.7, "c▁a": -0.2}  # words that a token joins


def spm_metadata(**changes: Any) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *_PIECES]
    values = {
        "model": "llama",
        "tokens": tokens,
        "scores": np.array([0.0] * 259 + list(_PIECES.values()), dtype=np.float32),
        "token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(_PIECES), dtype=np.int32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{k}": v for k, v in (values | changes).items()}


def bpe_metadata(**changes: Any) -> dict[str, Any]:
    tokens = [*sorted(BYTE_OF), "ab", "Ġa", "<|im_start|>", "<|im_end|>", "<tool>"]
    values = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": tokens,
        "merges": ["a b", "Ġ a"],
        "token_type": np.array([1] * 258 + [3, 3, 4], dtype=np.int32),
        "eos_token_id": 259,
    }
    return {f"tokenizer.ggml.{k}": v for k, v in (values | changes).items()}


def _naive_spm(text: str) -> list[str]:
    """The published algorithm, one merge at a time: the best score, the leftmost of equals."""
    symbols = list(text.replace(" ", "▁"))
    while True:
        pairs = [
            (-_PIECES[a + b], i)
            for i, (a, b) in enumerate(itertools.pairwise(symbols))
            if a + b in _PIECES
        ]
        if not pairs:
            return symbols
        _, i = min(pairs)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@given(st.text(alphabet="abc é☃\n", max_size=40))
def test_spm_merges_as_the_naive_algorithm(text: str) -> None:
    tokenizer = Tokenizer.from_gguf(spm_metadata(add_space_prefix=False))
    expected: list[int] = []
    for piece in _naive_spm(text):
        if piece in _PIECES:
            expected.append(259 + list(_PIECES).index(piece))
        else:
            expected += [3 + b for b in piece.encode()]
    assert tokenizer.encode(text, add_special=False) == expected


@given(st.text(max_size=60))
def test_any_text_survives_both_tokenizers(text: str) -> None:
    for metadata in (spm_metadata(), spm_metadata(add_space_prefix=False), bpe_metadata()):
        tokenizer = Tokenizer.from_gguf(metadata)
        ids = tokenizer.encode(text, add_special=False)
        if metadata["tokenizer.ggml.model"] == "llama":
            expected = text.replace("▁", " ")
        else:  # Qwen's, which composes
            expected = unicodedata.normalize("NFC", text)
        assert tokenizer.decode(ids) == expected


@given(st.lists(st.integers(0, 260), max_size=30))
def test_a_stream_joins_to_the_text_of_any_ids(ids: list[int]) -> None:
    tokenizer = Tokenizer.from_gguf(bpe_metadata())
    stream = StreamDecoder(tokenizer)
    assert "".join([*map(stream.feed, ids), stream.flush()]) == tokenizer.decode(ids)


def test_special_tokens_are_parsed_only_on_request() -> None:
    tokenizer = Tokenizer.from_gguf(bpe_metadata())
    assert 258 in tokenizer.encode("<|im_start|>ab", parse_special=True)
    assert 258 not in tokenizer.encode("<|im_start|>ab")
    assert 260 in tokenizer.encode("x<tool>")  # user-defined tokens always are
    assert tokenizer.decode([258, 256]) == "ab"
    assert tokenizer.decode([258, 256], skip_special=False) == "<|im_start|>ab"
    assert tokenizer.eos_ids == {259}


def test_bos_is_added_where_the_model_wants_it() -> None:
    assert Tokenizer.from_gguf(spm_metadata()).encode("a") == [1, 267]  # "▁a" as one token
    assert Tokenizer.from_gguf(spm_metadata(add_bos_token=False)).encode("") == []


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({}, FormatError, "tokenizer.ggml.model is missing"),
        (bpe_metadata(model="wordpiece"), UnsupportedError, "'wordpiece'"),
        (bpe_metadata(pre="klingon"), UnsupportedError, "'klingon'"),
        (bpe_metadata(tokens=None), FormatError, "tokenizer.ggml.tokens"),
        (bpe_metadata(tokens=[]), FormatError, "tokenizer.ggml.tokens"),
        (bpe_metadata(merges=None), FormatError, "tokenizer.ggml.merges is missing"),
        (bpe_metadata(merges=["a b", "x y"]), FormatError, r"merges\[1\]"),
        (bpe_metadata(merges=["a"]), FormatError, r"merges\[0\]"),
        (bpe_metadata(eos_token_id=261), FormatError, "eos_token_id is 261"),
        (bpe_metadata(eos_token_id=-1), FormatError, "eos_token_id is -1"),
        (bpe_metadata(token_type=np.zeros(3, dtype=np.int32)), FormatError, "token_type"),
        (bpe_metadata(add_bos_token=3), FormatError, "add_bos_token"),
        (spm_metadata(scores=None), FormatError, "tokenizer.ggml.scores"),
        (spm_metadata(scores=np.full(270, np.nan, dtype=np.float32)), FormatError, "scores"),
    ],
)
def test_contradictory_metadata_are_refused_by_key(
    metadata: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Tokenizer.from_gguf(metadata)


def test_a_malformed_byte_token_is_refused_by_index() -> None:
    metadata = spm_metadata()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"]]
    metadata["tokenizer.ggml.tokens"][7] = "<0x-1>"
    with pytest.raises(FormatError, match=r"tokens\[7\]"):
        Tokenizer.from_gguf(metadata)


def test_bad_ids_and_texts_are_refused() -> None:
    tokenizer = Tokenizer.from_gguf(bpe_metadata())
    with pytest.raises(RequestError, match="outside the vocabulary of 261"):
        tokenizer.decode([261])
    with pytest.raises(RequestError, match="surrogate"):
        tokenizer.encode("a\ud800")


def test_a_long_text_has_the_ids_of_a_short_one_and_lets_other_threads_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = Tokenizer.from_gguf(bpe_metadata())
    text = "ab a, 12 é\n\n <tool>" * 40_000
    ticks: list[None] = []
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(0.001):
            ticks.append(None)

    other = threading.Thread(target=tick)
    other.start()
    before = len(ticks)
    ids = tokenizer.encode("ab a, 12 é\n\n " * 60_000)
    ran = len(ticks) - before
    ended.set()
    other.join()
    assert ran >= 3
    long = tokenizer.encode(text)
    monkeypatch.setattr(merges, "_LONG", 10**9)
    monkeypatch.setattr(pieces, "PIECE", 10**9)
    assert tokenizer.encode(text) == long
    assert tokenizer.encode("ab a, 12 é\n\n " * 60_000) == ids
