"""Byte-level BPE vocabularies: ``tokenizer.json`` to ``tokenizer.ggml.*`` and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import UnsupportedError
from oxibonsai.tokenizer.files.tokenizer_json import (
    Parts,
    bpe_model,
    check_bpe,
    kind_of,
    merge_pair,
    stated_merges,
    steps,
)
from oxibonsai.tokenizer.files.tokens import Keys, token_table
from oxibonsai.tokenizer.pre_tokenizers import COMPOSES_KEY, PRE_TOKENIZERS, pre_tokenizer
from oxibonsai.tokenizer.vocabulary import Vocabulary

_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_HEAD = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_CAPITAL, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(ending: str, digits: str) -> str:
    """Return a pattern that splits words where capital letters begin."""
    first, tail = r"[^\r\n\p{L}\p{N}]?", r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
    words = f"{first}{_CAPITAL}*{_SMALL}+{ending}|{first}{_CAPITAL}+{_SMALL}*{ending}"
    return f"{words}|{digits}{tail}"


# GGUF's name of a pre-tokenizer by the steps that split with an expression: the expression itself,
# or what stands for the one of GPT-2, which ByteLevel brings along.
_GPT2, _DIGITS = "ByteLevel", "Digits"
_PRE_TOKENIZERS = {
    (_HEAD + r"\p{N}" + _TAIL,): "qwen2",
    (_HEAD + r"\p{N}{1,3}" + _TAIL,): "llama-bpe",
    (_GPT2,): "gpt-2",
    (_DIGITS, _GPT2): "smollm",
    (
        _CONTRACTIONS
        + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
        + _SPACES,
    ): "qwen35",
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
        "\r\n"
        r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
        "\r\n"
        r"""]*|\s*["""
        "\r\n"
        r"""]+|\s+(?!\S)|\s+""",
    ): "deepseek-v3",
    (_cased("", r"\p{N}"),): "tekken",
    (_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"),): "gpt-4o",
}
# Splits for which another expression stands in some files.
_SAME = {split.replace("\r\n", r"\r\n"): split for splits in _PRE_TOKENIZERS for split in splits}


# The splits of Llama 3 where parts that are tokens are merged, too. In llama.cpp, other names of them have
# no bos.
_PLAIN_LLAMA3 = "smaug-bpe"


def _names() -> dict[tuple[tuple[str, ...], bool], str]:
    """Return GGUF's name by the splits, and whether a part that is a token is merged all the same.

    Splits are those of ``_PRE_TOKENIZERS``, and our own tokenizers', which save_pretrained writes.
    """
    kinds = [(name, kind) for name, kind in PRE_TOKENIZERS.items() if kind.byte_level]
    found = {
        (tuple(_SAME.get(s, s) for s in kind.splits), kind.ignore_merges): name
        for name, kind in reversed(kinds)
    }
    for splits, known in _PRE_TOKENIZERS.items():
        for name in [*(name for name, _ in reversed(kinds)), _PLAIN_LLAMA3, known]:
            kind = PRE_TOKENIZERS[name]
            if kind.splits == PRE_TOKENIZERS[known].splits:
                found[splits, kind.ignore_merges] = name
    return found


_NAMES = _names()


def pre_tokenizer_name(tokenizer: dict[str, Any]) -> str | None:
    """Return GGUF's name for how a ``tokenizer.json`` splits and merges; None where it has none."""
    merges_whole = tokenizer["model"].get("ignore_merges") is True
    return _NAMES.get((_splits(tokenizer.get("pre_tokenizer")), merges_whole))


def byte_level_keys(folder: Path, tokenizer: dict[str, Any], vocab_size: int) -> Keys:
    """Return the vocabulary's keys.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.

    Raises:
        UnsupportedError: GGUF has no name for how it splits and merges, or no place for its normalizer.
    """
    path = folder / "tokenizer.json"
    model = tokenizer.get("model")
    check_bpe(folder, model)
    pre = pre_tokenizer_name(tokenizer)
    if pre is None:
        raise UnsupportedError(f"{path}: the pre-tokenizer is none that convert knows")
    texts, types = token_table(folder, tokenizer, vocab_size, lambda piece: piece)
    composes = _composes(folder, tokenizer.get("normalizer"))
    named = composes == PRE_TOKENIZERS[pre].composes  # as llama.cpp's files, which have no such key
    merges = [" ".join(merge_pair(folder, m)) for m in tokenizer["model"]["merges"]]
    return {
        "tokenizer.ggml.model": ("gpt2", "str"),
        "tokenizer.ggml.pre": (pre, "str"),
        **({} if named else {COMPOSES_KEY: (composes, "bool")}),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.merges": (merges, "arr[str]"),
    }


def _composes(folder: Path, normalizer: Any) -> bool:
    """Return whether a text is brought to Unicode's composed form (NFC) first.

    Raises:
        UnsupportedError: The normalizer does something else.
    """
    found = [kind_of(step) for step in steps(normalizer, "normalizers")]
    if others := set(found) - {"NFC"}:
        raise UnsupportedError(
            f"{folder / 'tokenizer.json'}: the normalizer {', '.join(sorted(others))} is not supported "
            "before merges of bytes, only NFC"
        )
    return bool(found)


def _splits(pre_tokenizer: Any) -> tuple[str, ...]:
    """Return the splitting steps for ``_PRE_TOKENIZERS``; empty if one is unknown or bytes don't end."""
    try:
        steps = [pre_tokenizer]
        if pre_tokenizer["type"] == "Sequence":
            steps = pre_tokenizer["pretokenizers"]
        *splits, last = steps
        if last["type"] != "ByteLevel" or last["add_prefix_space"] is not False:
            return ()
        return (*map(_split, splits), *([_GPT2] if last.get("use_regex", True) else []))
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()


def _split(step: dict[str, Any]) -> str:
    if step["type"] == "Digits" and step["individual_digits"] is True:
        return _DIGITS
    plain = (step["type"], step["behavior"], step["invert"]) == ("Split", "Isolated", False)
    split = str(step["pattern"]["Regex"]) if plain else ""
    return _SAME.get(split, split)


def pre_tokenizer_json(name: str) -> dict[str, Any] | None:
    """Return the pre-tokenizer of ``tokenizer.json`` for GGUF's name; None where it is none of bytes."""
    splits = next((s for s, known in _PRE_TOKENIZERS.items() if known == name), None)
    if splits is None:
        kind = PRE_TOKENIZERS.get(name)
        if kind is None or not kind.byte_level:
            return None
        splits = kind.splits
    steps: list[dict[str, Any]] = []
    for split in splits:
        if split == _DIGITS:
            steps.append({"type": "Digits", "individual_digits": True})
        elif split != _GPT2:
            pattern = {"Regex": split}
            steps.append(
                {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
            )
    end = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps.append({**end, "use_regex": _GPT2 in splits})
    return {"type": "Sequence", "pretokenizers": steps}


def byte_level_parts(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """Return the parts of ``tokenizer.json`` for BPE of bytes.

    Raises:
        UnsupportedError: The pre-tokenizer has no form in ``tokenizer.json`` here.
    """
    name = checkpoint.file.get("tokenizer.ggml.pre", "default") or "default"
    pre = pre_tokenizer_json(name)
    if pre is None:
        raise UnsupportedError(
            f"{checkpoint.path}: tokenizer.ggml.pre {name!r} has no tokenizer.json; save it as gguf"
        )
    plain = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    model = bpe_model(
        vocabulary, stated_merges(checkpoint), ignore_merges=PRE_TOKENIZERS[name].ignore_merges
    )
    composes = pre_tokenizer(checkpoint.file).composes
    normalizer = {"type": "NFC"} if composes else None
    return {"normalizer": normalizer, "pre_tokenizer": pre, "decoder": plain, "model": model}
