# ruff: noqa: RUF001
"""Special tokens: what ends a text, white space that they swallow, and what of them is never text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_tokenizer import bpe_metadata, spm_metadata

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.byte_level import BYTE_OF

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
BYTES = sorted(BYTE_OF)


def bpe(special: dict[str, int], **changes: Any) -> Tokenizer:
    metadata = bpe_metadata(
        tokens=[*BYTES, *special],
        merges=[],
        token_type=np.array([_NORMAL] * 256 + [*special.values()], dtype=np.int32),
        eos_token_id=None,
    )
    return Tokenizer.from_gguf(metadata | changes)


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["<|im_start|>", "<|im_end|>"], ["<|im_end|>"]),
        (["<|return|>", "<|end|>", "<|call|>"], ["<|return|>", "<|call|>"]),
        (["<|return|>", "<|end|>"], ["<|return|>", "<|end|>"]),
        (["<|calls|>", "<|flush|>", "<|end|>"], ["<|calls|>", "<|flush|>"]),
        (["<turn|>", "<|tool_response>", "</s>"], ["<turn|>", "<|tool_response>"]),
        (["</s>", "<turn|>"], ["</s>", "<turn|>"]),
        (["<｜end▁of▁sentence｜>", "[EOS]", "[e~["], ["<｜end▁of▁sentence｜>", "[EOS]", "[e~["]),
    ],
)
def test_texts_that_end_a_generation(texts: list[str], ends: list[str]) -> None:
    tokenizer = bpe(dict.fromkeys(texts, _CONTROL))
    assert {tokenizer.vocabulary.texts[i] for i in tokenizer.eos_ids} == set(ends)
    assert bpe(dict.fromkeys(texts, _NORMAL)).eos_ids == frozenset()


@pytest.mark.parametrize(
    ("keys", "text", "pieces"),
    [
        ({"general.name": "Phi-3 mini"}, "a <|user|> \n b", ["a", " ", "<|user|>", "b"]),
        ({"general.name": "Phi-3 mini"}, "a <s> b", ["a", " ", "<s>", " ", "b"]),
        ({"general.name": "other"}, "a <|user|> b", ["a", " ", "<|user|>", " ", "b"]),
        ({"tokenizer.ggml.pre": "jina-v2-es"}, "a \n <mask> b", ["a", "<mask>", " ", "b"]),
        ({"general.architecture": "jina-bert-v3"}, " <mask> ", ["<mask>", " "]),
        ({"general.name": "my modern-bert"}, "a [MASK] b", ["a", "[MASK]", " ", "b"]),
    ],
)
def test_white_space_that_special_tokens_swallow(
    keys: dict[str, str], text: str, pieces: list[str]
) -> None:
    special = ["<|user|>", "<s>", "<mask>", "[MASK]"]
    tokenizer = bpe(dict.fromkeys(special, _CONTROL), **keys)
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    assert [tokenizer.token_bytes(i).decode() for i in ids] == pieces
    plain = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(plain) == text


def test_an_unknown_token_is_parsed_where_special_ones_are() -> None:
    tokenizer = Tokenizer.from_gguf(spm_metadata(add_space_prefix=False))
    assert tokenizer.encode("<unk>", add_special=False, parse_special=True) == [0]
    assert 0 not in tokenizer.encode("<unk>", add_special=False)


SINGLES = [f"\\x{b:02x}" for b in range(256)]


def rwkv(tokens: list[str], types: list[int] | None = None, **changes: Any) -> Tokenizer:
    kinds = np.array(types or [_NORMAL] * len(tokens), dtype=np.int32)
    keys = {"model": "rwkv", "tokens": tokens, "token_type": kinds} | changes
    return Tokenizer.from_gguf({f"tokenizer.ggml.{k}": v for k, v in keys.items()})


def test_rwkv_takes_the_longest_token() -> None:
    tokenizer = rwkv([*SINGLES, "ab", "abcd", "\\n\\n", "\\xe3\\x81", "\\\\"])
    assert tokenizer.encode("abcab\n\nあ\\") == [256, 99, 256, 258, 259, 0x82, 260]
    assert tokenizer.encode("abcd") == [257]
    assert tokenizer.decode(tokenizer.encode("abc\nあ\\x41")) == "abc\nあ\\x41"


def test_nobody_writes_rwkvs_control_tokens() -> None:
    tokenizer = rwkv([*SINGLES, "<s>"], [_NORMAL] * 256 + [_CONTROL])
    assert tokenizer.encode("<s>") == [*b"<s>"]
    assert tokenizer.encode("<s>", parse_special=True) == [256]


def test_rwkv_needs_all_bytes_or_an_unknown_token() -> None:
    with pytest.raises(FormatError, match="none for the byte 0x41"):
        rwkv([s for s in SINGLES if s != "\\x41"])
    assert rwkv(["a", "?"], unknown_token_id=1).encode("ab") == [0, 1]


def plamo2(pieces: dict[str, float], **changes: Any) -> Tokenizer:
    tokens = [*(f"<0x{b:02X}>" for b in range(256)), *pieces]
    keys = {
        "model": "plamo2",
        "tokens": tokens,
        "token_type": np.array([_BYTE] * 256 + [_NORMAL] * len(pieces), dtype=np.int32),
        "scores": np.array([0.0] * 256 + [*pieces.values()], dtype=np.float32),
    } | changes
    return Tokenizer.from_gguf({f"tokenizer.ggml.{k}": v for k, v in keys.items()})


def test_plamo2_takes_the_best_sum_of_scores() -> None:
    tokenizer = plamo2({"a": -1.0, "b": -1.0, "ab": -2.0, "abb": -5.0, "bb": -0.5})
    assert tokenizer.encode("ab") == [258]  # of equal sums the longer first token
    assert tokenizer.encode("abb") == [256, 260]
    assert tokenizer.encode("aé") == [256, 0xC3, 0xA9]
    assert tokenizer.encode("\ufeffa") == [256]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "scores is missing"),
        ({"token_type": np.array([_NORMAL] * 257, dtype=np.int32)}, "no byte token <0x00>"),
    ],
)
def test_what_plamo2_needs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        plamo2({"a": -1.0}, **changes)


def unigram(charsmap: Any = None, **changes: Any) -> Tokenizer:
    pieces = {"<unk>": 0.0, "▁": -3.0, "a": -2.0, "▁a": -2.5, "é": -2.0}
    keys: dict[str, Any] = {
        "model": "t5",
        "tokens": [*pieces],
        "token_type": np.array([_UNKNOWN] + [_NORMAL] * 4, dtype=np.int32),
        "scores": np.array([*pieces.values()], dtype=np.float32),
        "unknown_token_id": 0,
        "precompiled_charsmap": charsmap,
    } | changes
    return Tokenizer.from_gguf({f"tokenizer.ggml.{k}": v for k, v in keys.items()})


def test_unknown_characters_in_a_row_are_one_unknown_token() -> None:
    assert unigram().encode("a☃☃a", add_special=False) == [2, 0, 2]
    assert unigram(add_space_prefix=True).encode("a", add_special=False) == [3]


def array(*units: int, size: int | None = None, tail: bytes = b"x\0") -> np.ndarray:
    body = np.array(units, dtype="<u4").tobytes()
    head = np.uint32(len(body) if size is None else size).tobytes()
    return np.frombuffer(head + body + tail, dtype=np.uint8)


@pytest.mark.parametrize(
    "charsmap",
    [
        np.zeros(0, dtype=np.uint8),
        np.zeros(3, dtype=np.uint8),
        np.zeros(8, dtype=np.float32),
        "text",
        array(0, 0, size=6),
        array(0, 0, size=8, tail=b""),
        array(0, 0, size=1 << 31),
        array(),
    ],
)
def test_a_broken_table_of_replacements_is_refused(charsmap: Any) -> None:
    with pytest.raises(FormatError, match="precompiled_charsmap"):
        unigram(charsmap)


@pytest.mark.parametrize("value", [5, 1 << 30, 2])
def test_a_table_that_leads_outside_of_itself_is_refused_where_it_does(value: int) -> None:
    # The node of "a" at 0x61, with a value at 0x61 ^ 0x161 = 0x100.
    units = [0] * 257
    units[0x61] = 0x61 | 1 << 8 | 0x161 << 10
    units[0x100] = 1 << 31 | value
    tokenizer = unigram(array(*units, tail=b"x\0y"))
    with pytest.raises(FormatError, match="outside of the table"):
        tokenizer.encode("a")
    assert tokenizer.encode("é", add_special=False) == [4]


def test_a_user_defined_token_that_a_replacement_makes_goes_before_others() -> None:
    # "é" is the bytes C3 and A9; a node lies where the place of its parent is XORed with its label.
    units = [0] * 0x400
    units[0xC3] = 0xC3 | (0xC3 ^ 0x200) << 10
    units[0x200 ^ 0xA9] = 0xA9 | 1 << 8 | (0x200 ^ 0xA9 ^ 0x300) << 10
    units[0x300] = 1 << 31
    pieces = ["<unk>", "<", "x", ">", "<x>"]
    tokenizer = unigram(
        array(*units, tail=b"<x>\0"),
        tokens=pieces,
        token_type=np.array([_UNKNOWN, _NORMAL, _NORMAL, _NORMAL, _USER_DEFINED], dtype=np.int32),
        scores=np.array([0.0, -1.0, -1.0, -1.0, -9.0], dtype=np.float32),
    )
    assert tokenizer.encode("é<", add_special=False) == [4, 1]


def test_a_table_in_a_circle_ends() -> None:
    units = [0] * 256
    units[0x61] = 0x61 | 0x61 << 10  # its children are where the root's are
    tokenizer = unigram(array(*units))
    assert tokenizer.encode("aaaa", add_special=False) == [2] * 4


def test_a_whitespace_tokenizer_has_its_own_pre_tokenizer() -> None:
    with pytest.raises(UnsupportedError, match="it has to be 'whitespace' too"):
        Tokenizer.from_gguf(bpe_metadata(model="whitespace", pre="qwen2"))
    with pytest.raises(UnsupportedError, match="merges no bytes"):
        Tokenizer.from_gguf(bpe_metadata(model="hybriddna", pre="gemma4"))
    with pytest.raises(UnsupportedError, match="'whitespace'"):
        Tokenizer.from_gguf(bpe_metadata(pre="whitespace"))


def test_some_byte_tokens_are_too_few() -> None:
    tokens = [*"ab▁", "ab", "<0x0A>"]
    types = np.array([_NORMAL] * 4 + [_BYTE], dtype=np.int32)
    changes = {"model": "gemma4", "tokens": tokens, "token_type": types, "eos_token_id": None}
    with pytest.raises(FormatError, match="1 of the 256 byte tokens"):
        Tokenizer.from_gguf(bpe_metadata(**changes, merges=["a b"]))
