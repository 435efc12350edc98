"""WordPiece vocabularies: ``tokenizer.json`` to ``tokenizer.ggml.*``."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.errors import FormatError, UnsupportedError

_SPACE = "\u2581"
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5  # values of tokenizer.ggml.token_type
# GGUF's names of the special tokens, its spelling included, by Hugging Face's.
_SPECIAL = {
    "unk_token": "unknown",
    "sep_token": "seperator",
    "pad_token": "padding",
    "cls_token": "cls",
    "mask_token": "mask",
}


def wordpiece_keys(folder: ModelFolder, vocab_size: int) -> Metadata:
    """The tokenizer's keys.

    Args:
        folder: With ``tokenizer.json``, and ``tokenizer_config.json`` or ``special_tokens_map.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    tokenizer = folder.json("tokenizer.json")
    model, normalizer = _bert_parts(folder, tokenizer)
    texts = [f"[PAD{i}]" for i in range(vocab_size)]
    types = [_UNUSED] * vocab_size
    entries = [(text, i, _NORMAL) for text, i in model["vocab"].items()]
    for text, i, kind in entries + _special_tokens(folder, tokenizer):
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < vocab_size:
            raise FormatError(
                f"{folder.path / 'tokenizer.json'}: {text!r} has id {i!r}, outside the vocabulary "
                f"of {vocab_size}"
            )
        texts[i] = text if kind == _CONTROL else _gguf_form(text)
        types[i] = kind
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
        **_special_ids(folder, {t: i for i, t in enumerate(texts)}),
    }


def _gguf_form(piece: str) -> str:
    """The piece as GGUF writes it: one that begins a word is marked, not one that goes on."""
    return piece[2:] if piece.startswith("##") else _SPACE + piece


def _special_tokens(folder: ModelFolder, tokenizer: dict[str, Any]) -> list[tuple[str, Any, int]]:
    """Text, id and type of the added tokens that are never text."""
    added = tokenizer.get("added_tokens", [])
    if not isinstance(added, list) or not all(
        isinstance(t, dict) and isinstance(t.get("content"), str) for t in added
    ):
        raise FormatError(f"{folder.path / 'tokenizer.json'}: added_tokens is no list of tokens")
    return [(t["content"], t.get("id"), _CONTROL) for t in added if t.get("special") is True]


def _bert_parts(
    folder: ModelFolder, tokenizer: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Model and normaliser; only BERT's own have a place in GGUF."""
    path = folder.path / "tokenizer.json"
    model, normalizer = tokenizer.get("model"), tokenizer.get("normalizer")
    if not isinstance(model, dict) or model.get("type") != "WordPiece":
        raise UnsupportedError(f"{path}: the tokenizer is not WordPiece")
    if model.get("continuing_subword_prefix") != "##" or not isinstance(model.get("vocab"), dict):
        raise UnsupportedError(f"{path}: pieces that go on are not written with ##")
    plain = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    if not isinstance(normalizer, dict) or any(normalizer.get(k) != v for k, v in plain.items()):
        raise UnsupportedError(f"{path}: the normaliser is not BERT's")
    return model, normalizer


def _special_ids(folder: ModelFolder, ids: dict[str, int]) -> Metadata:
    """Special tokens: newer folders name them in tokenizer_config.json, older ones in their map."""
    files = ("tokenizer_config.json", "special_tokens_map.json")
    special: dict[str, Any] = {}
    for file in files:
        if (folder.path / file).is_file():
            special |= folder.json(file)
    keys: Metadata = {}
    for name, gguf_name in _SPECIAL.items():
        token = special.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if not isinstance(text, str) or text not in ids:
            raise FormatError(
                f"{folder.path}: {name} is {text!r} in {' and '.join(files)}, which is no token"
            )
        keys[f"tokenizer.ggml.{gguf_name}_token_id"] = (ids[text], "u32")
    return keys
