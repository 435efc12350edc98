"""SentencePiece BPE vocabularies, as ``tokenizer.json`` holds them: merges instead of scores."""

from __future__ import annotations

import re
from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.vocabulary import BYTE, UNKNOWN, token_table
from oxibonsai.errors import FormatError, UnsupportedError

_SPACE = "\u2581"
_LOWEST = -1e9  # of pieces that no merge makes


def spm_keys(folder: ModelFolder, tokenizer: dict[str, Any], vocab_size: int) -> Metadata:
    """Return the tokenizer's keys.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``, whose model is BPE with byte fallback.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    path = folder.path / "tokenizer.json"
    model = tokenizer["model"]
    if not isinstance(model.get("vocab"), dict) or not isinstance(model.get("merges"), list):
        raise FormatError(f"{path}: the model has no vocab or no merges")
    prefix = _adds_space(folder, tokenizer)
    texts, types = token_table(folder, tokenizer, vocab_size, lambda piece: piece)
    ranks = _ranks(folder, model["merges"])
    for i, text in enumerate(texts):
        if re.fullmatch("<0x[0-9A-F]{2}>", text):
            types[i] = BYTE
        elif text == model.get("unk_token"):
            types[i] = UNKNOWN
    return {
        "tokenizer.ggml.model": ("llama", "str"),
        "tokenizer.ggml.pre": ("default", "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.scores": (
            [-float(ranks[t]) if t in ranks else _LOWEST for t in texts],
            "arr[f32]",
        ),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.add_space_prefix": (prefix, "bool"),
    }


def _ranks(folder: ModelFolder, merges: list[Any]) -> dict[str, int]:
    """Return the place of each piece among those that merges make, the earliest merge first.

    SentencePiece gives a piece one score, however it is made, and its merges are listed by score.
    """
    ranks: dict[str, int] = {}
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(p, str) for p in pair)
        ):
            raise FormatError(
                f"{folder.path / 'tokenizer.json'}: {merge!r} is no merge of two pieces"
            )
        ranks.setdefault("".join(pair), len(ranks))
    return ranks


def steps(part: Any, list_name: str) -> list[Any]:
    """Return the steps of a normaliser or a pre-tokenizer, which may be a sequence of them."""
    if part is None:
        return []
    if isinstance(part, dict) and part.get("type") == "Sequence":
        inner = part.get(list_name)
        return inner if isinstance(inner, list) else [part]
    return [part]


def _adds_space(folder: ModelFolder, tokenizer: dict[str, Any]) -> bool:
    """Whether a text gets a space in front; UnsupportedError for what SPM in GGUF does not do."""
    path = folder.path / "tokenizer.json"
    prefix = False
    for step in steps(tokenizer.get("normalizer"), "normalizers"):
        if step == {"type": "Prepend", "prepend": _SPACE}:
            prefix = True
        elif step != {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}:
            raise UnsupportedError(f"{path}: the normaliser is none that GGUF has a place for")
    for step in steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        kind = step.get("type") if isinstance(step, dict) else None
        if kind == "Metaspace" and step.get("replacement") == _SPACE:
            scheme = step.get("prepend_scheme", "always")
            prefix = prefix or (scheme != "never" and step.get("add_prefix_space", True) is True)
        elif kind != "Split" or step.get("pattern") != {"String": " "}:
            raise UnsupportedError(f"{path}: the pre-tokenizer is none that convert knows")
    return prefix
