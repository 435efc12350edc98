"""What all vocabularies of ``tokenizer.json`` have: ids, texts, special tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.errors import FormatError

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # values of tokenizer.ggml.token_type


def token_table(
    folder: ModelFolder,
    tokenizer: dict[str, Any],
    vocab_size: int,
    gguf_form: Callable[[str], str],
) -> tuple[list[str], list[int]]:
    """Texts and types by id.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
        gguf_form: How GGUF writes a piece of the model's vocabulary; added tokens stay as they are.
    """
    path = folder.path / "tokenizer.json"
    texts = [f"[PAD{i}]" for i in range(vocab_size)]
    types = [_UNUSED] * vocab_size
    entries = [(t, i, _NORMAL) for t, i in tokenizer["model"]["vocab"].items()]
    for text, i, kind in entries + _added_tokens(folder, tokenizer):
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < vocab_size:
            raise FormatError(
                f"{path}: {text!r} has id {i!r}, outside the vocabulary of {vocab_size}"
            )
        texts[i] = gguf_form(text) if kind == _NORMAL else text
        types[i] = kind
    return texts, types


def _added_tokens(folder: ModelFolder, tokenizer: dict[str, Any]) -> list[tuple[str, Any, int]]:
    """Text, id and type of the tokens that are never split."""
    added = tokenizer.get("added_tokens", [])
    if not isinstance(added, list) or not all(
        isinstance(t, dict) and isinstance(t.get("content"), str) for t in added
    ):
        raise FormatError(f"{folder.path / 'tokenizer.json'}: added_tokens is no list of tokens")
    kinds = {True: _CONTROL, False: _USER_DEFINED}
    return [(t["content"], t.get("id"), kinds[t.get("special") is True]) for t in added]


# Newer folders name special tokens in the first, older ones in the second.
SPECIAL_FILES = ("tokenizer_config.json", "special_tokens_map.json")


def special_tokens(folder: ModelFolder) -> dict[str, Any]:
    """What the folder's ``SPECIAL_FILES`` say; a token that is an object becomes its ``content``."""
    found: dict[str, Any] = {}
    for file in SPECIAL_FILES:
        if (folder.path / file).is_file():
            found |= folder.json(file)
    return {k: v.get("content") if isinstance(v, dict) else v for k, v in found.items()}
