"""Ids, texts and special tokens that all vocabularies of a folder have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.errors import FormatError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # tokenizer.ggml.token_type


def token_table(
    folder: ModelFolder,
    tokenizer: dict[str, Any],
    vocab_size: int,
    gguf_form: Callable[[str], str],
) -> tuple[list[str], list[int]]:
    """Texts and types by id, of a ``tokenizer.json``.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
        gguf_form: How GGUF writes a piece of the model's vocabulary; added tokens stay as they are.
    """
    entries = [(t, i, NORMAL) for t, i in tokenizer["model"]["vocab"].items()]
    entries += added_tokens(folder, tokenizer)
    texts, types = placed_tokens(str(folder.path / "tokenizer.json"), entries, vocab_size)
    return [gguf_form(t) if k == NORMAL else t for t, k in zip(texts, types, strict=True)], types


def placed_tokens(
    where: str, entries: Iterable[tuple[str, Any, int]], vocab_size: int
) -> tuple[list[str], list[int]]:
    """Texts and types by id; ids without a text are filled up.

    Args:
        where: Names the source in errors.
        entries: Text, id and type of each token; a later one takes an earlier one's place.
        vocab_size: Rows of the model's table.

    Raises:
        FormatError: An id is outside of the table.
    """
    texts = [f"[PAD{i}]" for i in range(vocab_size)]
    types = [UNUSED] * vocab_size
    for text, i, kind in entries:
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < vocab_size:
            raise FormatError(
                f"{where}: {text!r} has id {i!r}, outside the vocabulary of {vocab_size}"
            )
        texts[i], types[i] = text, kind
    return texts, types


def added_tokens(folder: ModelFolder, tokenizer: dict[str, Any]) -> list[tuple[str, Any, int]]:
    """Text, id and type of the tokens that are never split."""
    added = tokenizer.get("added_tokens", [])
    if not isinstance(added, list) or not all(
        isinstance(t, dict) and isinstance(t.get("content"), str) for t in added
    ):
        raise FormatError(f"{folder.path / 'tokenizer.json'}: added_tokens is no list of tokens")
    kinds = {True: CONTROL, False: USER_DEFINED}
    return [(t["content"], t.get("id"), kinds[t.get("special") is True]) for t in added]


# Newer folders name special tokens in the first, older ones in the second.
SPECIAL_FILES = ("tokenizer_config.json", "special_tokens_map.json")


def special_tokens(folder: ModelFolder) -> dict[str, Any]:
    """Return the contents of ``SPECIAL_FILES``; a token that is an object becomes its ``content``."""
    found: dict[str, Any] = {}
    for file in SPECIAL_FILES:
        if (folder.path / file).is_file():
            found |= folder.json(file)
    return {k: v.get("content") if isinstance(v, dict) else v for k, v in found.items()}
