"""Unicode's composed form (NFC), where a model's own tokenizer brings a text to it first."""

from __future__ import annotations

import gzip
import json
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as FastTokenizer

from oxibonsai import _core
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer import Tokenizer, pieces
from oxibonsai.tokenizer.files.byte_level import byte_level_keys, pre_tokenizer_json
from oxibonsai.tokenizer.offsets import find_offsets
from oxibonsai.tokenizer.pre_tokenizers import COMPOSES_KEY, PRE_TOKENIZERS

TRUTH = Path(__file__).parents[1] / "truth"
COMPOSING = [name for name, kind in PRE_TOKENIZERS.items() if kind.composes]
TEXTS = [
    "cafe\u0301 de\u0301ja\u0300 vu",
    "Vie\u0323\u0302t Nam, Cu\u031b\u0309a Vie\u0302\u0323t",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\u1100\u116e\u11a8",  # Hangul of jamo
    "\uff21\uff22\uff23\uff01 \uff11\uff12\uff13 \u304b\u3099\u30cf\u309a",  # full-width forms stay
    "\u212aelvin, 5 \u2126, \u212b, \u037e \u1fef",  # signs that stand for other letters
    "\u0915\u093c \u0958 \u09c7\u09be \u1b35",  # composed ones that are never made
    "e\u0327\u0301 a\u0301\u0323\u0302b q\u0307\u0323 =\u0338",
    "\u0301 at the beginning, many: e" + "\u0301\u0323\u0302" * 20,
]
SPLIT = "a\u0344 b"  # a mark that is written as two
MARKED = [
    "<|im_start|>user\ne\u0301<|im_end|>\u0301\n",
    "<|im_end|\u0301>",
    "<\u0338|im_start|>",
    "<|im_end|>\u0338\u0301e",  # the sign before the marks would compose with the first
    "\u1112\u1161<|im_start|>\u11ab \uac00<|im_end|>\u11a8",  # a syllable on both sides of a token
    "\uff1c\uff5cim_start\uff5c\uff1e \uff48\uff49<|im_end|>\uff76\uff9e",  # full and half width
]


@cache
def byte_level() -> dict[str, Any]:
    loaded = json.loads(
        gzip.decompress((TRUTH / "tokenizers" / "vocabularies.json.gz").read_bytes())
    )
    found: dict[str, Any] = loaded["vocabularies"]["byte_level"]
    return found


def document(pre: str, normalizer: Any) -> dict[str, Any]:
    """``tokenizer.json`` with the splits of a pre-tokenizer."""
    vocabulary = byte_level()
    return {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "post_processor", "decoder")),
        "normalizer": normalizer,
        "added_tokens": [],
        "pre_tokenizer": pre_tokenizer_json(pre),
        "model": {
            "type": "BPE",
            "ignore_merges": PRE_TOKENIZERS[pre].ignore_merges,
            "vocab": {t: i for i, t in enumerate(vocabulary["tokens"])},
            "merges": vocabulary["merges"],
        },
    }


def keys_of_folder(folder: Path, written: dict[str, Any]) -> dict[str, Any]:
    size = len(written["model"]["vocab"])
    keys = byte_level_keys(folder, written, size)
    return {k: np.array(v) if k.endswith("token_type") else v for k, (v, _) in keys.items()}


def keys_of_file(pre: str, **others: Any) -> dict[str, Any]:
    vocabulary = byte_level()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": vocabulary["tokens"],
        "tokenizer.ggml.merges": vocabulary["merges"],
        **others,
    }


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    """Of a GGUF file of Qwen 2, which does not say that it composes."""
    return Tokenizer.from_gguf(_core.GgufFile(str(TRUTH / "vocab" / "ggml-vocab-qwen2.gguf")))


@pytest.fixture(scope="module")
def transformers_qwen(qwen: Tokenizer) -> Any:
    """The same vocabulary in the tokenizer that transformers has for Qwen 2, 2.5 and 3."""
    from transformers import Qwen2Tokenizer

    file = _core.GgufFile(str(TRUTH / "vocab" / "ggml-vocab-qwen2.gguf"))
    merges: Any = [tuple(m.split(" ")) for m in file.get("tokenizer.ggml.merges")]
    texts = qwen.vocabulary.texts
    special = sorted(qwen.special_ids)
    tokenizer = Qwen2Tokenizer(vocab={t: i for i, t in enumerate(texts)}, merges=merges)
    tokenizer.add_tokens([AddedToken(texts[i], special=True, normalized=False) for i in special])
    return tokenizer


@pytest.mark.parametrize("text", [*TEXTS, SPLIT, *MARKED])
def test_a_file_of_qwen_gives_the_ids_of_transformers(
    qwen: Tokenizer, transformers_qwen: Any, text: str
) -> None:
    expected = transformers_qwen(text, add_special_tokens=False).input_ids
    assert qwen.encode(text, parse_special=True) == expected


@pytest.mark.parametrize("pre", COMPOSING)
def test_a_file_that_names_a_composing_pre_tokenizer_gives_the_ids_of_tokenizers(pre: str) -> None:
    tokenizer = Tokenizer.from_gguf(keys_of_file(pre))
    expected = FastTokenizer.from_str(json.dumps(document(pre, {"type": "NFC"})))
    for text in (*TEXTS, SPLIT):
        ids = tokenizer.encode(text, add_special=False)
        assert ids == expected.encode(text, add_special_tokens=False).ids, text
        assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("pre", COMPOSING)
def test_pieces_have_the_ids_of_the_whole(pre: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.from_gguf(keys_of_file(pre))
    text = " ".join(TEXTS)
    whole = tokenizer.encode(text)
    monkeypatch.setattr(pieces, "PIECE", 1)
    assert tokenizer.encode(text) == whole


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe", "gpt-2", "qwen35"])
@pytest.mark.parametrize(
    "normalizer",
    [
        None,
        {"type": "NFC"},
        {"type": "Sequence", "normalizers": []},
        {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    ],
    ids=["none", "NFC", "an empty sequence", "a sequence"],
)
def test_a_folder_does_what_its_tokenizer_json_says(
    pre: str, normalizer: Any, tmp_path: Path
) -> None:
    written = document(pre, normalizer)
    tokenizer = Tokenizer.from_gguf(keys_of_folder(tmp_path, written))
    expected = FastTokenizer.from_str(json.dumps(written))
    for text in TEXTS:
        ids = expected.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special=False) == ids, text


def test_a_normalizer_that_is_not_done_is_named(tmp_path: Path) -> None:
    written = document("qwen2", {"type": "Sequence", "normalizers": [{"type": "NFKC"}]})
    with pytest.raises(UnsupportedError, match=r"tokenizer\.json: the normalizer NFKC"):
        keys_of_folder(tmp_path, written)


def test_a_file_may_say_that_it_does_not_compose() -> None:
    """As llama.cpp, whose files have no such key."""
    plain = Tokenizer.from_gguf(keys_of_file("qwen2", **{COMPOSES_KEY: False}))
    composing = Tokenizer.from_gguf(keys_of_file("llama-bpe", **{COMPOSES_KEY: True}))
    for text in TEXTS:
        assert plain.decode(plain.encode(text)) == text
        assert composing.decode(composing.encode(text)) == unicodedata.normalize("NFC", text)
    with pytest.raises(FormatError, match=r"normalizer\.nfc is 'yes', not true or false"):
        Tokenizer.from_gguf(keys_of_file("qwen2", **{COMPOSES_KEY: "yes"}))


def test_a_text_has_never_fewer_tokens_than_its_length_says(qwen: Tokenizer) -> None:
    jamo = unicodedata.normalize("NFD", "\uac00\uac01\ud55c\uae00" * 500)
    for text in (*TEXTS, jamo, "\u212a" * 1000):
        assert qwen.least_tokens(text) <= len(qwen.encode(text))


def test_no_text_becomes_a_third_of_its_length_or_less() -> None:
    """What ``least_tokens`` reckons with."""
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        found = unicodedata.normalize("NFC", chr(code))
        parts = unicodedata.normalize("NFD", chr(code))
        if unicodedata.normalize("NFC", parts) == found:
            most = max(len(parts.encode()), len(chr(code).encode()))
            assert most <= 3 * len(found.encode()), hex(code)


@pytest.mark.parametrize("text", [*TEXTS, " ".join(TEXTS)])
def test_tokens_are_found_in_a_decomposed_text(
    qwen: Tokenizer, transformers_qwen: Any, text: str
) -> None:
    ids = qwen.encode(text)
    found = find_offsets(map(qwen.token_bytes, ids), qwen.spelling(text))
    expected = transformers_qwen(text, return_offsets_mapping=True).offset_mapping
    assert found == expected
