"""SentencePiece's unigram vocabularies: ``tokenizer.json`` to ``tokenizer.ggml.*`` and back."""

from __future__ import annotations

import base64
import binascii
import math
from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer.files.tokenizer_json import SPACE, Parts, kind_of, steps
from oxibonsai.tokenizer.files.tokens import Keys, added_tokens, placed_tokens
from oxibonsai.tokenizer.vocabulary import NORMAL, UNKNOWN, UNUSED, Vocabulary

_UNUSED_SCORE = -10000.0  # of ids without a text
_SPACES = " {2,}"  # which a step of the normaliser makes one
# Spaces at both ends of a text, which no vocabulary that makes several one keeps.
_REMOVES_EDGES = {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""}


def unigram_keys(folder: Path, tokenizer: dict[str, Any], vocab_size: int) -> Keys:
    """Return the tokenizer's keys.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``, whose model is Unigram.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    path = folder / "tokenizer.json"
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
    keys: Keys = {
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


def _normalizer(folder: Path, tokenizer: dict[str, Any]) -> tuple[bytes, bool]:
    """Return the table of replacements, and whether several spaces count as one."""
    path = folder / "tokenizer.json"
    table, merges = b"", False
    for step in steps(tokenizer.get("normalizer"), "normalizers"):
        kind = kind_of(step)
        if kind == "Precompiled" and not table:
            try:
                table = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError) as e:
                raise FormatError(f"{path}: precompiled_charsmap is no base64: {e}") from e
            merges = merges or bool(table)
        elif kind == "Replace" and step.get("pattern") == {"Regex": _SPACES}:
            merges = True
        elif kind != "Strip" and step != _REMOVES_EDGES:
            raise UnsupportedError(f"{path}: the normaliser has the step {kind}, which GGUF lacks")
    return table, merges


def _adds_space(folder: Path, tokenizer: dict[str, Any]) -> bool:
    """Return whether a text gets a space in front."""
    path = folder / "tokenizer.json"
    prefix = False
    for step in steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        kind = kind_of(step)
        if kind == "Metaspace" and step.get("replacement") == SPACE:
            scheme = step.get("prepend_scheme", "always")
            prefix = scheme != "never" and step.get("add_prefix_space", True) is True
        elif kind != "WhitespaceSplit":
            raise UnsupportedError(f"{path}: the pre-tokenizer is none that convert knows")
    return prefix


def unigram_parts(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """Return the parts of SentencePiece's vocabulary of unigrams.

    Raises:
        UnsupportedError: The vocabulary replaces characters and keeps all spaces, which
            ``tokenizer.json`` has no steps for that are read back.
    """
    file = checkpoint.file
    table = bytes(np.asarray(file.get("tokenizer.ggml.precompiled_charsmap", []), np.uint8))
    merges = file.get("tokenizer.ggml.remove_extra_whitespaces", False)
    if table and not merges:
        raise UnsupportedError(
            f"{checkpoint.path}: tokenizer.ggml.precompiled_charsmap without "
            "remove_extra_whitespaces has no tokenizer.json; save it as gguf"
        )
    steps: list[dict[str, Any]] = []
    if table:
        encoded = base64.b64encode(table).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if merges:
        steps.append(_REMOVES_EDGES)
        steps.append({"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "})
    prefix = file.get("tokenizer.ggml.add_space_prefix", False)
    space = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": "always" if prefix else "never",
        "split": True,
    }
    used = max(i for i, kind in enumerate(vocabulary.types) if kind != UNUSED) + 1
    pairs = zip(vocabulary.texts[:used], vocabulary.scores[:used], strict=True)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": space,
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unk_id,
            "vocab": [[text, score] for text, score in pairs],
            "byte_fallback": False,
        },
    }
