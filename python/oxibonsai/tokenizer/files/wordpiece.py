"""WordPiece vocabularies: ``tokenizer.json`` to ``tokenizer.ggml.*`` and back; Japanese BERT's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.json_object import read_object
from oxibonsai.tokenizer import japanese
from oxibonsai.tokenizer.files.tokenizer_json import SPACE, Parts
from oxibonsai.tokenizer.files.tokens import (
    SPECIAL_FILES,
    SPECIAL_NAMES,
    Keys,
    placed_tokens,
    read_text,
    special_tokens,
    token_table,
)
from oxibonsai.tokenizer.vocabulary import CONTROL, NORMAL, UNUSED, Vocabulary
from oxibonsai.tokenizer.wordpiece import LONGEST_WORD, library_form

# Special tokens that every vocabulary must name, and what they are in Japanese BERT's.
_DEFAULTS = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
_FILE = "vocab.txt"
_PRE = {"wordpiece": "mecab", "character": "mecab-character"}
_DICTIONARY = {"mecab_dic": "unidic_lite"}


def wordpiece_keys(folder: Path, vocab_size: int) -> Keys:
    """Return the tokenizer's keys.

    Args:
        folder: With ``tokenizer.json``, and ``tokenizer_config.json`` or ``special_tokens_map.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    tokenizer = read_object(folder / "tokenizer.json")
    normalizer = _bert_normalizer(folder, tokenizer)
    texts, types = token_table(folder, tokenizer, vocab_size, _gguf_form)
    accents = normalizer.get("strip_accents")
    lower = normalizer.get("lowercase") is True
    return {
        "tokenizer.ggml.model": ("bert", "str"),
        "tokenizer.ggml.pre": ("default", "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.normalizer.lowercase": (lower, "bool"),
        "tokenizer.ggml.normalizer.strip_accents": (
            lower if accents is None else accents is True,
            "bool",
        ),
        **_special_ids(folder, special_tokens(folder), {t: i for i, t in enumerate(texts)}),
    }


def _gguf_form(piece: str) -> str:
    """Return the piece as GGUF writes it: one that begins a word is marked, not one that goes on."""
    return piece[2:] if piece.startswith("##") else SPACE + piece


def _bert_normalizer(folder: Path, tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Return the normaliser; only BERT's own, and its pieces, have a place in GGUF."""
    path = folder / "tokenizer.json"
    model, normalizer = tokenizer.get("model"), tokenizer.get("normalizer")
    if not isinstance(model, dict) or model.get("type") != "WordPiece":
        raise UnsupportedError(f"{path}: the tokenizer is not WordPiece")
    if model.get("continuing_subword_prefix") != "##" or not isinstance(model.get("vocab"), dict):
        raise UnsupportedError(f"{path}: pieces that go on are not written with ##")
    plain = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    if not isinstance(normalizer, dict) or any(normalizer.get(k) != v for k, v in plain.items()):
        raise UnsupportedError(f"{path}: the normaliser is not BERT's")
    return normalizer


def _special_ids(folder: Path, special: dict[str, Any], ids: dict[str, int]) -> Keys:
    """Return the keys of the special tokens.

    Args:
        folder: For errors.
        special: Their texts, by Hugging Face's names.
        ids: Of all tokens.
    """
    keys: Keys = {}
    for name in _DEFAULTS:
        text = special.get(name)
        if not isinstance(text, str) or text not in ids:
            raise FormatError(
                f"{folder}: {name} is {text!r} in {' and '.join(SPECIAL_FILES)}, which is no token"
            )
        keys[f"tokenizer.ggml.{SPECIAL_NAMES[name]}_token_id"] = (ids[text], "u32")
    return keys


def is_japanese(folder: Path) -> bool:
    """Return whether the folder's tokenizer is BertJapaneseTokenizer."""
    return special_tokens(folder).get("tokenizer_class") == "BertJapaneseTokenizer"


def japanese_keys(folder: Path, vocab_size: int) -> Keys:
    """Return the tokenizer's keys.

    Args:
        folder: With ``vocab.txt`` and ``tokenizer_config.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    config = read_object(folder / "tokenizer_config.json")
    known = {"word_tokenizer_type": "mecab", "mecab_kwargs": _DICTIONARY, "do_word_tokenize": True}
    for key, value in known.items():
        if config.get(key, known[key]) not in (value, None):
            raise UnsupportedError(
                f"{folder / 'tokenizer_config.json'}: {key} is {config[key]!r}; convert knows "
                f"{value!r}"
            )
    kind = config.get("subword_tokenizer_type", "wordpiece")
    if kind not in _PRE:
        raise UnsupportedError(
            f"{folder / 'tokenizer_config.json'}: subword_tokenizer_type is {kind!r}; convert "
            f"knows {', '.join(_PRE)}"
        )
    path = folder / _FILE
    lines = read_text(path).splitlines()
    special = _DEFAULTS | {k: v for k, v in special_tokens(folder).items() if k in _DEFAULTS}
    kinds = {text: CONTROL for text in special.values() if isinstance(text, str)}
    entries = [(text, i, kinds.get(text, NORMAL)) for i, text in enumerate(lines)]
    texts, types = placed_tokens(str(path), entries, vocab_size)
    texts = [_gguf_form(t) if k == NORMAL else t for t, k in zip(texts, types, strict=True)]
    return {
        "tokenizer.ggml.model": ("bert", "str"),
        "tokenizer.ggml.pre": (_PRE[kind], "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.normalizer.lowercase": (config.get("do_lower_case") is True, "bool"),
        **_special_ids(folder, special, {t: i for i, t in enumerate(texts)}),
    }


def wordpiece_parts(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """Return the parts of BERT's vocabulary.

    Raises:
        UnsupportedError: Words are found by another program.
    """
    file = checkpoint.file
    pre = file.get("tokenizer.ggml.pre", "default")
    if pre in (japanese.WORDS, japanese.CHARACTERS):
        raise UnsupportedError(
            f"{checkpoint.path}: tokenizer.ggml.pre {pre!r} has no tokenizer.json; save it as gguf"
        )
    lower = file.get("tokenizer.ggml.normalizer.lowercase", True)
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    pieces = {
        library_form(text) if kind == NORMAL else text: i
        for i, (text, kind) in enumerate(kinds)
        if kind != UNUSED
    }
    unknown = vocabulary.unk_id
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": file.get("tokenizer.ggml.normalizer.strip_accents", lower),
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": None if unknown is None else vocabulary.texts[unknown],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": pieces,
        },
    }
