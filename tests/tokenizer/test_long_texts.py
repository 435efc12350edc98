"""Long texts: in pieces, with the ids of the whole, in little memory, and stopped on request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tokenizer import bpe_metadata, spm_metadata

from oxibonsai.errors import RequestError
from oxibonsai.tokenizer import Tokenizer, pieces, spm
from oxibonsai.tokenizer.atoms import Atoms
from oxibonsai.tokenizer.pre_tokenizers import PRE_TOKENIZERS

_NAMES = {kind: name for name, kind in PRE_TOKENIZERS.items() if kind.byte_level}.values()
_SPLITS = [Tokenizer.from_gguf(bpe_metadata(pre=name)) for name in _NAMES]
_SPM = Tokenizer.from_gguf(spm_metadata())
_ALPHABET = "abZé 字カ한0\uff19٣\u0301 \t\n\r.,!'-_<>{}$^、\uff0c\u00a0\u3000\x1c\u200b😀"


def texts(alphabet: str, size: int = 60) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, max_size=size)


@pytest.mark.parametrize("tokenizer", _SPLITS, ids=_NAMES)
@given(text=texts(_ALPHABET))
def test_pieces_have_the_ids_of_the_whole(tokenizer: Tokenizer, text: str) -> None:
    whole = tokenizer.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", 1)
        assert tokenizer.encode(text) == whole


@given(texts("abc é☃▁\n.,。"))
def test_pieces_for_merging_have_the_ids_of_the_whole(text: str) -> None:
    whole = _SPM.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", 1)
        assert _SPM.encode(text) == whole


@given(texts("aB 字é.,-\t\n\x1c\u0301"))
def test_pieces_of_words_have_the_ids_of_the_whole(text: str) -> None:
    tokenizer = Tokenizer.from_gguf(wordpiece_metadata())
    whole = tokenizer.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", 1)
        assert tokenizer.encode(text) == whole


def wordpiece_metadata() -> dict[str, object]:
    tokens = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "▁a",
        "▁b",
        "a",
        "b",
        "▁字",
        "字",
        "▁e",
        "e",
        "▁.",
        "▁,",
        "▁-",
    ]
    values = {
        "model": "bert",
        "tokens": tokens,
        "token_type": np.array([3] * 3 + [1] * (len(tokens) - 3), dtype=np.int32),
        "unknown_token_id": 0,
        "cls_token_id": 1,
        "seperator_token_id": 2,
    }
    return {f"tokenizer.ggml.{k}": v for k, v in values.items()}


@given(texts("abcé☃ \n▁", 200))
def test_a_text_has_at_least_the_tokens_that_its_length_tells(text: str) -> None:
    for tokenizer in (_SPM, _SPLITS[0]):
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, add_special=False))


def test_the_length_of_a_text_tells_much_or_nothing() -> None:
    assert _SPM.least_tokens("☃" * 700) == 700 * 3 // 6  # "<0x00>" is the longest token
    assert Tokenizer.from_gguf(wordpiece_metadata()).least_tokens("a" * 100_000) == 0


def test_bytes_that_a_vocabulary_lacks_are_not_counted() -> None:
    tokens = [t for t in bpe_metadata()["tokenizer.ggml.tokens"] if t != "z"]
    metadata = bpe_metadata(
        tokens=tokens,
        token_type=np.array([1] * 257 + [3, 3, 4], dtype=np.int32),
        eos_token_id=258,
    )
    tokenizer = Tokenizer.from_gguf(metadata)
    assert tokenizer.encode("zzz") == []
    assert tokenizer.least_tokens("z" * 1000) == 0


@given(texts("ab<>", 40))
def test_of_overlapping_tokens_the_longer_one_is_taken(text: str) -> None:
    atoms = Atoms((t, i) for i, t in enumerate(["<a", "a>b", "<a>", "ab", "b<", "<", "bb", "bbb"]))
    assert [part for part in atoms.cut(text) if part != ""] == atoms._longest_first(text)


def test_who_watches_is_told_the_count_and_can_stop_the_work() -> None:
    class EnoughError(Exception):
        pass

    for tokenizer in (_SPLITS[0], _SPM, Tokenizer.from_gguf(wordpiece_metadata())):
        counts: list[int] = []

        def watch(count: int, counts: list[int] = counts) -> None:
            counts.append(count)
            if count > 90_000:
                raise EnoughError

        with pytest.raises(EnoughError):
            tokenizer.encode("ab a, 12 é\n\n " * 60_000, watch=watch)
        assert counts == sorted(counts)
        assert len(counts) > 2
        assert counts[-1] < 200_000


def test_who_watches_is_called_inside_of_a_long_word() -> None:
    silent: list[int] = []
    _SPM.encode("abc" * 20_000, watch=silent.append)
    assert len(silent) > 60_000 // spm._STEPS


@pytest.mark.parametrize("tokenizer", [_SPLITS[0], _SPM], ids=["byte-level", "spm"])
def test_a_text_that_cannot_be_cut_is_refused_where_somebody_watches(tokenizer: Tokenizer) -> None:
    text = "a b " + "b" * (pieces.LONGEST_RUN + 9)
    assert len(tokenizer.encode(text)) > pieces.LONGEST_RUN  # who has time gets its ids
    with pytest.raises(RequestError, match=r"more than 131072 characters from index \d+ on"):
        tokenizer.encode(text, watch=lambda count: None)


def test_a_text_of_15_mb_takes_little_memory_beside_its_ids(tiny_path: Path) -> None:
    code = """
import resource, sys
from oxibonsai import _core
from oxibonsai.tokenizer import Tokenizer
tokenizer = Tokenizer.from_gguf(_core.GgufFile(sys.argv[1]))
tokenizer.encode("a " * 100_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = tokenizer.encode("hello, world " * (15_000_000 // 13))
print(len(ids), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny_path)], capture_output=True, text=True, check=True
    )
    count, grown = map(int, done.stdout.split())
    # The text twice, 8 bytes an id and as many while their list grows, and 60 MB for a piece.
    assert grown < 2 * 15_000 + 2 * 8 * count // 1000 + 60_000
