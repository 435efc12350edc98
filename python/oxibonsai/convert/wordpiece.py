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
        folder: With ``tokenizer.json`` and ``special_tokens_map.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    tokenizer = folder.json("tokenizer.json")
    model, normalizer = _bert_parts(folder, tokenizer)
    texts = [f"[PAD{i}]" for i in range(vocab_size)]
    types = [_UNUSED] * vocab_size
    for text, i in model["vocab"].items():
        if not isinstance(i, int) or not 0 <= i < vocab_size:
            raise FormatError(
                f"{folder.path / 'tokenizer.json'}: {text!r} has id {i!r}, outside the vocabulary "
                f"of {vocab_size}"
            )
        texts[i] = text.removeprefix("##") if text.startswith("##") else _SPACE + text
        types[i] = _NORMAL
    for token in tokenizer.get("added_tokens", []):
        if token.get("special"):
            texts[token["id"]], types[token["id"]] = token["content"], _CONTROL
    accents = normalizer.get("strip_accents")
    lower = bool(normalizer["lowercase"])
    return {
        "tokenizer.ggml.model": ("bert", "str"),
        "tokenizer.ggml.pre": ("default", "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.normalizer.lowercase": (lower, "bool"),
        "tokenizer.ggml.normalizer.strip_accents": (
            lower if accents is None else bool(accents),
            "bool",
        ),
        **_special_ids(folder, {t: i for i, t in enumerate(texts)}),
    }


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
    special = folder.json("special_tokens_map.json")
    keys: Metadata = {}
    for name, gguf_name in _SPECIAL.items():
        token = special.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if text not in ids:
            raise FormatError(
                f"{folder.path / 'special_tokens_map.json'}: {name} is {text!r}, which is no token"
            )
        keys[f"tokenizer.ggml.{gguf_name}_token_id"] = (ids[text], "u32")
    return keys
