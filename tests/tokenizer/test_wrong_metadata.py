"""Every key that a tokenizer reads, with every kind of value: it works, or one typed error says why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_tokenizer import bpe_metadata, spm_metadata

from oxibonsai.errors import FormatError, OxiBonsaiError
from oxibonsai.tokenizer import Tokenizer

# As a GGUF file gives them: numbers in a row are an array, all else is a list.
WRONG: list[Any] = [
    True, False, 0, -1, 2**31 - 1, 2**64 - 1, 1.5, math.nan, math.inf, "", "a", "a" * 5000, "\0", "\udcff",
    [], ["a"], [""], ["\udcff"], ["a", "a"], [["a"]], [[], ["a"]], [np.array([1, 2])],
    np.array([], dtype=np.int32), np.array([1]), np.array([-1, 2**31 - 1]), np.array([True, False]),
    np.array([math.nan, 1.0]), np.zeros(5000, dtype=np.uint8),
]  # fmt: skip
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def keys(**values: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}


def kinds(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def scores(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


TABLES: dict[str, dict[str, Any]] = {
    "gpt2": bpe_metadata(),
    "llama": spm_metadata(),
    "gemma4": bpe_metadata(
        model="gemma4", tokens=[*BYTES, *"ab", "ab"], merges=["a b"], eos_token_id=0,
        token_type=kinds(*[6] * 256, 1, 1, 1),
    ),
    "whitespace": bpe_metadata(
        model="whitespace", pre="whitespace", tokens=[*"ab", "ab"], merges=["a b"], eos_token_id=0,
        token_type=kinds(1, 1, 1), unknown_token_id=0,
    ),
    "hybriddna": bpe_metadata(model="hybriddna"),
    "bert": keys(
        model="bert", tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"],
        token_type=kinds(3, 3, 3, 3, 1, 1), unknown_token_id=1, cls_token_id=2, seperator_token_id=3,
    ),
    "bert, mecab": keys(
        model="bert", pre="mecab", tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"],
        token_type=kinds(3, 3, 3, 3, 1, 1), unknown_token_id=1, cls_token_id=2, seperator_token_id=3,
    ),
    "t5": keys(
        model="t5", tokens=["<unk>", "\u2581", "a", "\u2581a"], token_type=kinds(2, 1, 1, 1),
        scores=scores(0, -3, -2, -2.5), unknown_token_id=0,
        precompiled_charsmap=np.frombuffer(b"\4\0\0\0\0\0\0\0x\0", dtype=np.uint8),
    ),
    "rwkv": keys(
        model="rwkv", tokens=[f"\\x{b:02x}" for b in range(256)], token_type=kinds(*[1] * 256)
    ),
    "plamo2": keys(
        model="plamo2", tokens=[*BYTES, "a"], token_type=kinds(*[6] * 256, 1),
        scores=scores(*[0.0] * 256, -1.0),
    ),
}  # fmt: skip


class Recorded(dict[str, Any]):
    """Metadata that notes which keys are asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.asked: dict[str, None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.asked[key] = None
        return super().get(key, default)


def use(metadata: dict[str, Any]) -> None:
    """Build a tokenizer and let it work."""
    tokenizer = Tokenizer.from_gguf(metadata)
    ids = tokenizer.encode("ab a\u00e9 <dna>ACGT</dna>", parse_special=True)
    tokenizer.decode(ids)
    tokenizer.least_tokens("ab")


def asked_keys(table: dict[str, Any]) -> list[str]:
    recorded = Recorded(table)
    use(recorded)
    return list(recorded.asked)


def lists_of_texts(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Lists as long as the table's own, with one odd item."""
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
        own = table.get(key)
        for odd in ("", "\udcff", "\0", " ", "a b c", "\udcff \udcff", [], 1, np.array([1])):
            for at in (0, -1) if own else ():
                yield key, [odd if i == at % len(own) else t for i, t in enumerate(own)]
        if own:
            yield key, [own[0]] * len(own)
            yield key, [f"\udcff{i}" for i in range(len(own))]


@pytest.mark.parametrize("name", TABLES)
def test_each_key_of_a_wrong_kind_is_a_typed_error_or_read(name: str) -> None:
    if "mecab" in name:
        pytest.importorskip("fugashi")
        pytest.importorskip("unidic_lite")
    table = TABLES[name]
    known = asked_keys(table)
    assert {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "general.name"} <= set(known)
    changes = [(key, value) for key in known for value in WRONG]
    untyped = []
    for key, value in [*changes, *lists_of_texts(table)]:
        try:
            use(table | {key: value})
        except OxiBonsaiError:
            continue
        except Exception as e:
            untyped.append(f"{key} = {value!r:.80}: {e!r:.200}")
    assert untyped == []


@pytest.mark.parametrize("name", ["tokenizer.ggml.model", "tokenizer.ggml.pre"])
@pytest.mark.parametrize("value", [["gpt2"], np.array([1, 2]), 7, True, math.nan])
def test_a_name_that_is_no_text_is_told_by_its_key(name: str, value: Any) -> None:
    with pytest.raises(FormatError, match=f"{name} is .*, not a text"):
        Tokenizer.from_gguf(bpe_metadata() | {name: value})
