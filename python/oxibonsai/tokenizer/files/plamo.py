"""PLaMo 2's vocabularies: a text file whose lines are arrays of JSON, one a token."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.files.tokens import Keys, placed_tokens, read_text
from oxibonsai.tokenizer.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN

FILE = "tokenizer.jsonl"
_KINDS = {"NORMAL": NORMAL, "UNKNOWN": UNKNOWN, "CONTROL": CONTROL, "BYTE": BYTE}
_MARK = "<|plamo:"  # the texts of tokens that no text becomes
_TURN = "<|plamo:op|>"  # ends a turn
_UNUSED_SCORE = -1000.0  # of ids without a text


def plamo_keys(folder: Path, vocab_size: int) -> Keys:
    """Return the tokenizer's keys.

    Args:
        folder: Has ``tokenizer.jsonl``: a line begins with a token's text, its score and its kind.
        vocab_size: Rows of the model's table; ids without a text are filled up.

    Raises:
        FormatError: A line is none of these.
    """
    path = folder / FILE
    lines = read_text(path).split("\n")
    entries: list[tuple[str, int, int]] = []
    scores: list[float] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        token = _token(line)
        if token is None:
            raise FormatError(
                f"{path}, line {number}: {line[:80]!r} is no array of text, score and kind"
            )
        entries.append((token[0], len(entries), token[2]))
        scores.append(token[1])
    texts, types = placed_tokens(str(path), entries, vocab_size)
    for n in range(len(entries), vocab_size):
        texts[n] = f"[PAD{n - len(entries) + 1}]"
    scores += [_UNUSED_SCORE] * (vocab_size - len(scores))
    keys: Keys = {
        "tokenizer.ggml.model": ("plamo2", "str"),
        "tokenizer.ggml.pre": ("default", "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.scores": (scores, "arr[f32]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.add_space_prefix": (False, "bool"),
    }
    if _TURN in texts:
        keys["tokenizer.ggml.eot_token_id"] = (texts.index(_TURN), "u32")
    return keys


def _token(line: str) -> tuple[str, float, int] | None:
    """Return text, score and type; None where the line is damaged."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) < 2 or not isinstance(found[0], str):
        return None
    text, score, kind = found[0], found[1], _KINDS.get(str(found[2])) if found[2:] else NORMAL
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if not number or not math.isfinite(score) or kind is None:
        return None
    if kind == NORMAL and text.startswith(_MARK) and text.endswith("|>"):
        kind = CONTROL
    return text, float(score), kind
