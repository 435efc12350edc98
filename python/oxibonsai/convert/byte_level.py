"""Byte-level BPE vocabularies: ``tokenizer.json`` to ``tokenizer.ggml.*``."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.sentencepiece import steps
from oxibonsai.convert.vocabulary import token_table
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer.pre_tokenizers import COMPOSES_KEY, PRE_TOKENIZERS

_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_HEAD = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_CAPITAL, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(ending: str, digits: str) -> str:
    """Words come apart where capital letters begin."""
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
# What save_pretrained writes for other names: the splits of our tokenizers, and whether a part that is a
# token is merged.
_OURS = {
    (tuple(_SAME.get(s, s) for s in kind.splits), kind.ignore_merges): name
    for name, kind in reversed(PRE_TOKENIZERS.items())
    if kind.byte_level
}


def byte_level_keys(folder: ModelFolder, tokenizer: dict[str, Any], vocab_size: int) -> Metadata:
    """Return the vocabulary's keys.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    path = folder.path / "tokenizer.json"
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise UnsupportedError(f"{path}: the tokenizer is not BPE")
    if not isinstance(model.get("vocab"), dict) or not isinstance(model.get("merges"), list):
        raise FormatError(f"{path}: the model has no vocab or no merges")
    splits = _splits(tokenizer.get("pre_tokenizer"))
    pre = _PRE_TOKENIZERS.get(splits) or _OURS.get((splits, model.get("ignore_merges") is True))
    if pre is None:
        raise UnsupportedError(f"{path}: the pre-tokenizer is none that convert knows")
    texts, types = token_table(folder, tokenizer, vocab_size, lambda piece: piece)
    composes = _composes(folder, tokenizer.get("normalizer"))
    named = composes == PRE_TOKENIZERS[pre].composes  # as llama.cpp's files, which have no such key
    return {
        "tokenizer.ggml.model": ("gpt2", "str"),
        "tokenizer.ggml.pre": (pre, "str"),
        **({} if named else {COMPOSES_KEY: (composes, "bool")}),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.merges": ([_merge(folder, m) for m in model["merges"]], "arr[str]"),
    }


def _composes(folder: ModelFolder, normalizer: Any) -> bool:
    """Whether a text is brought to Unicode's composed form (NFC) first.

    Raises:
        UnsupportedError: The normalizer does something else.
    """
    found = [s.get("type") if isinstance(s, dict) else s for s in steps(normalizer, "normalizers")]
    others = set(found) - {"NFC"}
    if others:
        names = ", ".join(sorted(map(str, others)))
        raise UnsupportedError(
            f"{folder.path / 'tokenizer.json'}: the normalizer {names} is not supported before merges "
            "of bytes, only NFC"
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


def _merge(folder: ModelFolder, merge: Any) -> str:
    """Two pieces with a space between: older files write them so, newer ones as a list."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
        raise FormatError(f"{folder.path / 'tokenizer.json'}: {merge!r} is no merge of two pieces")
    return " ".join(pair)
