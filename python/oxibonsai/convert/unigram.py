"""SentencePiece's unigram vocabularies, as ``tokenizer.json`` holds them."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.sentencepiece import steps
from oxibonsai.convert.vocabulary import NORMAL, UNKNOWN, added_tokens, placed_tokens
from oxibonsai.errors import FormatError, UnsupportedError

_SPACE = "\u2581"
_UNUSED_SCORE = -10000.0  # of ids without a text
SPACES = " {2,}"  # which a step of the normaliser makes one
# Spaces at both ends of a text, which no vocabulary that makes several one keeps.
REMOVES_EDGES = {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""}


def unigram_keys(folder: ModelFolder, tokenizer: dict[str, Any], vocab_size: int) -> Metadata:
    """Return the tokenizer's keys.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``, whose model is Unigram.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    path = folder.path / "tokenizer.json"
    model = tokenizer["model"]
    pairs, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(pairs, list) or not all(_is_piece(p) for p in pairs):
        raise FormatError(f"{path}: the vocabulary is no list of pieces and scores")
    if isinstance(unknown, bool) or not isinstance(unknown, int) or not 0 <= unknown < len(pairs):
        raise FormatError(f"{path}: unk_id is {unknown!r}, none of {len(pairs)} pieces")
    entries = [(piece, i, NORMAL) for i, (piece, _) in enumerate(pairs)]
    texts, types = placed_tokens(
        str(path), [*entries, *added_tokens(folder, tokenizer)], vocab_size
    )
    types[unknown] = UNKNOWN
    scores = [float(score) for _, score in pairs][:vocab_size]
    scores += [_UNUSED_SCORE] * (vocab_size - len(scores))
    charsmap, merges_spaces = _normalizer(folder, tokenizer)
    keys: Metadata = {
        "tokenizer.ggml.model": ("t5", "str"),
        "tokenizer.ggml.pre": ("default", "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.scores": (scores, "arr[f32]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.add_space_prefix": (_adds_space(folder, tokenizer), "bool"),
        "tokenizer.ggml.remove_extra_whitespaces": (merges_spaces, "bool"),
    }
    if charsmap:
        keys["tokenizer.ggml.precompiled_charsmap"] = (list(charsmap), "arr[u8]")
    return keys


def _is_piece(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], int | float)
        and math.isfinite(pair[1])
    )


def _normalizer(folder: ModelFolder, tokenizer: dict[str, Any]) -> tuple[bytes, bool]:
    """Return the table of replacements, and whether several spaces count as one."""
    path = folder.path / "tokenizer.json"
    table, merges = b"", False
    for step in steps(tokenizer.get("normalizer"), "normalizers"):
        kind = step.get("type") if isinstance(step, dict) else None
        if kind == "Precompiled" and not table:
            try:
                table = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError) as e:
                raise FormatError(f"{path}: precompiled_charsmap is no base64: {e}") from e
            merges = merges or bool(table)
        elif kind == "Replace" and step.get("pattern") == {"Regex": SPACES}:
            merges = True
        elif kind != "Strip" and step != REMOVES_EDGES:
            raise UnsupportedError(f"{path}: the normaliser has the step {kind}, which GGUF lacks")
    return table, merges


def _adds_space(folder: ModelFolder, tokenizer: dict[str, Any]) -> bool:
    """Whether a text gets a space in front."""
    path = folder.path / "tokenizer.json"
    prefix = False
    for step in steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        kind = step.get("type") if isinstance(step, dict) else None
        if kind == "Metaspace" and step.get("replacement") == _SPACE:
            scheme = step.get("prepend_scheme", "always")
            prefix = scheme != "never" and step.get("add_prefix_space", True) is True
        elif kind != "WhitespaceSplit":
            raise UnsupportedError(f"{path}: the pre-tokenizer is none that convert knows")
    return prefix
