"""WordPiece vocabularies: ``tokenizer.json`` to ``tokenizer.ggml.*``."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.vocabulary import SPECIAL_FILES, special_tokens, token_table
from oxibonsai.errors import FormatError, UnsupportedError

_SPACE = "\u2581"
# GGUF's names of the special tokens, its spelling included, by Hugging Face's.
_SPECIAL = {
    "unk_token": "unknown",
    "sep_token": "seperator",
    "pad_token": "padding",
    "cls_token": "cls",
    "mask_token": "mask",
}


def wordpiece_keys(folder: ModelFolder, vocab_size: int) -> Metadata:
    """Return the tokenizer's keys.

    Args:
        folder: With ``tokenizer.json``, and ``tokenizer_config.json`` or ``special_tokens_map.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    tokenizer = folder.json("tokenizer.json")
    normalizer = _bert_normalizer(folder, tokenizer)
    texts, types = token_table(folder, tokenizer, vocab_size, gguf_form)
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
        **special_ids(folder, special_tokens(folder), {t: i for i, t in enumerate(texts)}),
    }


def gguf_form(piece: str) -> str:
    """Return the piece as GGUF writes it: one that begins a word is marked, not one that goes on."""
    return piece[2:] if piece.startswith("##") else _SPACE + piece


def _bert_normalizer(folder: ModelFolder, tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Return the normaliser; only BERT's own, and its pieces, have a place in GGUF."""
    path = folder.path / "tokenizer.json"
    model, normalizer = tokenizer.get("model"), tokenizer.get("normalizer")
    if not isinstance(model, dict) or model.get("type") != "WordPiece":
        raise UnsupportedError(f"{path}: the tokenizer is not WordPiece")
    if model.get("continuing_subword_prefix") != "##" or not isinstance(model.get("vocab"), dict):
        raise UnsupportedError(f"{path}: pieces that go on are not written with ##")
    plain = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    if not isinstance(normalizer, dict) or any(normalizer.get(k) != v for k, v in plain.items()):
        raise UnsupportedError(f"{path}: the normaliser is not BERT's")
    return normalizer


def special_ids(folder: ModelFolder, special: dict[str, Any], ids: dict[str, int]) -> Metadata:
    """Keys of the special tokens.

    Args:
        folder: For errors.
        special: Their texts, by Hugging Face's names.
        ids: Of all tokens.
    """
    keys: Metadata = {}
    for name, gguf_name in _SPECIAL.items():
        text = special.get(name)
        if not isinstance(text, str) or text not in ids:
            raise FormatError(
                f"{folder.path}: {name} is {text!r} in {' and '.join(SPECIAL_FILES)}, which is no token"
            )
        keys[f"tokenizer.ggml.{gguf_name}_token_id"] = (ids[text], "u32")
    return keys
