"""Parts of a ``tokenizer.json`` that all kinds of vocabularies share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer.vocabulary import UNUSED, Vocabulary

SPACE = "\u2581"  # in place of a space
Parts = dict[str, Any]  # entries of the file


def steps(part: Any, list_name: str) -> list[Any]:
    """Return the steps of a normalizer or a pre-tokenizer, which may be a sequence of them."""
    found: list[Any] = []
    left = [] if part is None else [part]
    while left:
        step = left.pop()
        inner = step.get(list_name) if kind_of(step) == "Sequence" else None
        if isinstance(inner, list):
            left += reversed(inner)
        else:
            found.append(step)
    return found


def kind_of(step: Any) -> str:
    """Return the type of a step; the step's text where it is no object."""
    return str(step.get("type")) if isinstance(step, dict) else f"{step!r:.80}"


def check_bpe(folder: Path, model: Any) -> None:
    """Check that a model is BPE without what GGUF has no place for.

    Raises:
        UnsupportedError: It has such an option.
        FormatError: It has no vocabulary or no merges.
    """
    path = folder / "tokenizer.json"
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise UnsupportedError(f"{path}: the tokenizer is not BPE")
    if not isinstance(model.get("vocab"), dict) or not isinstance(model.get("merges"), list):
        raise FormatError(f"{path}: the model has no vocab or no merges")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise UnsupportedError(
                f"{path}: the model has {option} {model[option]!r}, which GGUF has no place for"
            )


def merge_pair(folder: Path, merge: Any) -> list[str]:
    """Return the two pieces of a merge: older files write them with a space between, newer as a list."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
        raise FormatError(f"{folder / 'tokenizer.json'}: {merge!r} is no merge of two pieces")
    return pair


def bpe_model(vocabulary: Vocabulary, merges: list[list[str]], **options: Any) -> Parts:
    """Return the model of a ``tokenizer.json``."""
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    # With the special tokens: one that the model lacks gets another id from the library.
    ids = {text: i for i, (text, kind) in enumerate(kinds) if kind != UNUSED}
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **options,
        "vocab": ids,
        "merges": merges,
    }


def stated_merges(checkpoint: Checkpoint) -> list[list[str]]:
    """Return ``tokenizer.ggml.merges`` as pairs."""
    merges = []
    for merge in checkpoint.file.get("tokenizer.ggml.merges"):
        left, _, right = merge[1:].partition(" ")  # a piece may be a space, but does not hold one
        merges.append([merge[:1] + left, right])
    return merges
