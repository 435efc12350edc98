"""Byte-level BPE vocabularies: ``tokenizer.json`` to ``tokenizer.ggml.*``."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.vocabulary import special_tokens, token_table
from oxibonsai.errors import FormatError, UnsupportedError

# GGUF's name of a pre-tokenizer by the expression that it splits with.
_PRE_TOKENIZERS = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen2"
}
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding"}


def byte_level_keys(folder: ModelFolder, vocab_size: int) -> Metadata:
    """The tokenizer's keys, and the chat template where there is one.

    Args:
        folder: With ``tokenizer.json`` and ``tokenizer_config.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    tokenizer = folder.json("tokenizer.json")
    path = folder.path / "tokenizer.json"
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise UnsupportedError(f"{path}: the tokenizer is not BPE")
    if not isinstance(model.get("vocab"), dict) or not isinstance(model.get("merges"), list):
        raise FormatError(f"{path}: the model has no vocab or no merges")
    pre = _PRE_TOKENIZERS.get(_expression(tokenizer.get("pre_tokenizer")))
    if pre is None:
        raise UnsupportedError(f"{path}: the pre-tokenizer is none that convert knows")
    texts, types = token_table(folder, tokenizer, vocab_size, lambda piece: piece)
    keys: Metadata = {
        "tokenizer.ggml.model": ("gpt2", "str"),
        "tokenizer.ggml.pre": (pre, "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.merges": ([_merge(folder, m) for m in model["merges"]], "arr[str]"),
    }
    return keys | _frame(folder, {t: i for i, t in enumerate(texts)})


def _expression(pre_tokenizer: Any) -> str:
    """The one expression of a split that is followed by plain bytes; empty for anything else."""
    try:
        split, byte_level = pre_tokenizer["pretokenizers"]
        plain = (split["type"], split["behavior"], split["invert"], byte_level["type"]) == (
            "Split", "Isolated", False, "ByteLevel",
        ) and byte_level["use_regex"] is byte_level["add_prefix_space"] is False  # fmt: skip
        return str(split["pattern"]["Regex"]) if plain else ""
    except (KeyError, TypeError, ValueError):
        return ""


def _merge(folder: ModelFolder, merge: Any) -> str:
    """Two pieces with a space between: older files write them so, newer ones as a list."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
        raise FormatError(f"{folder.path / 'tokenizer.json'}: {merge!r} is no merge of two pieces")
    return " ".join(pair)


def _frame(folder: ModelFolder, ids: dict[str, int]) -> Metadata:
    """Special ids, whether a bos goes first, and the chat template."""
    special = special_tokens(folder)
    keys: Metadata = {}
    for name, gguf_name in _SPECIAL.items():
        text = special.get(name)
        if text is None:
            continue
        if not isinstance(text, str) or text not in ids:
            raise FormatError(f"{folder.path}: {name} is {text!r}, which is no token")
        keys[f"tokenizer.ggml.{gguf_name}_token_id"] = (ids[text], "u32")
    if isinstance(special.get("add_bos_token"), bool):
        keys["tokenizer.ggml.add_bos_token"] = (special["add_bos_token"], "bool")
    template = special.get("chat_template")
    file = folder.path / "chat_template.jinja"
    if file.is_file():
        template = file.read_text(encoding="utf-8")
    if isinstance(template, str):
        keys["tokenizer.chat_template"] = (template, "str")
    return keys
