"""GGUF's keys of a folder's tokenizer: which kind, how texts are framed, where they end, chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.json_object import read_object
from oxibonsai.tokenizer.files import plamo, rwkv, sentencepiece
from oxibonsai.tokenizer.files.byte_level import byte_level_keys
from oxibonsai.tokenizer.files.chat_templates import chat_templates
from oxibonsai.tokenizer.files.tokenizer_json import kind_of, steps
from oxibonsai.tokenizer.files.tokens import (
    SPECIAL_FILES,
    Keys,
    added_token_objects,
    frame_keys,
    generation_ends,
    post_template,
    special_tokens,
)
from oxibonsai.tokenizer.files.unigram import unigram_keys
from oxibonsai.tokenizer.files.wordpiece import is_japanese, japanese_keys, wordpiece_keys
from oxibonsai.tokenizer.stripping import LSTRIP_KEY, RSTRIP_KEY
from oxibonsai.tokenizer.vocabulary import USER_DEFINED

_MOST_ENDS = 3  # ids that end a generation, in GGUF
# Tokens of Gemma 4 that a parser of answers must see, though tokenizers call them special.
_VISIBLE = {
    *("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"),
    *("<|tool_response>", "<tool_response|>", '<|"|>'),
}
_RANKS = "qwen.tiktoken"  # the first Qwen's vocabulary


def vocabulary_keys(folder: Path, vocab_size: int) -> Keys:
    """Return everything of ``tokenizer.*``.

    A folder without the file of a vocabulary gives a file for token ids only.

    Args:
        folder: With the tokenizer's files.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    tokenizer: dict[str, Any] = {}
    if (folder / "tokenizer.json").is_file():
        tokenizer = read_object(folder / "tokenizer.json")
        model = tokenizer.get("model")
        model = model if isinstance(model, dict) else {}
        spm = model.get("byte_fallback") is True and model.get("type") != "Unigram"
        read = unigram_keys if model.get("type") == "Unigram" else byte_level_keys
        keys = (sentencepiece.spm_keys if spm else read)(folder, tokenizer, vocab_size)
    elif (folder / sentencepiece.FILE).is_file():
        keys = sentencepiece.spm_file_keys(folder, vocab_size)
    elif (folder / rwkv.FILE).is_file():
        return rwkv.rwkv_keys(folder, vocab_size) | _template(folder)
    elif (folder / plamo.FILE).is_file():
        keys = plamo.plamo_keys(folder, vocab_size)
    elif (folder / _RANKS).is_file():
        raise UnsupportedError(
            f"{folder} has {_RANKS} and no tokenizer.json, which convert needs: make one of it first"
        )
    else:
        return {"tokenizer.ggml.model": ("no_vocab", "str")}
    ids = {t: i for i, t in enumerate(keys["tokenizer.ggml.tokens"][0])}
    frame = frame_keys(folder, tokenizer, ids, vocab_size)
    return keys | frame | _strip_keys(folder, tokenizer) | _template(folder)


def encoder_vocabulary_keys(folder: Path, vocab_size: int) -> Keys:
    """Return the keys of an encoder's tokenizer; without its files, the model is for ids only.

    Args:
        folder: With the tokenizer's files.
        vocab_size: Rows of the model's table; ids without a text are filled up.

    Raises:
        FormatError: The folder has files of a tokenizer and no ``tokenizer.json``.
    """
    if is_japanese(folder):
        return japanese_keys(folder, vocab_size)
    if (folder / "tokenizer.json").is_file():
        tokenizer = read_object(folder / "tokenizer.json")
        model = tokenizer.get("model")
        if isinstance(model, dict) and model.get("type") == "WordPiece":
            return wordpiece_keys(folder, vocab_size) | _strip_keys(folder, tokenizer)
    elif other := [n for n in (*SPECIAL_FILES, "vocab.txt") if (folder / n).is_file()]:
        raise FormatError(
            f"{folder} has {other[0]} and no tokenizer.json: save its tokenizer with transformers "
            "first (AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER))"
        )
    return vocabulary_keys(folder, vocab_size)


def _framed(folder: Path, vocab_size: int) -> Keys:
    """Return BigBird's keys: the classifier's token and the separator stand around a text."""
    keys = encoder_vocabulary_keys(folder, vocab_size)
    frame = {"bos": "cls", "eos": "seperator"}
    ids = {end: keys.get(f"tokenizer.ggml.{name}_token_id") for end, name in frame.items()}
    for end, token in ids.items():
        if token is not None:
            keys[f"tokenizer.ggml.{end}_token_id"] = token
            keys[f"tokenizer.ggml.add_{end}_token"] = (True, "bool")
    return keys


def _gemma4(folder: Path, vocab_size: int) -> Keys:
    """Return the keys of Gemma 4: merges of characters, which scores cannot say, and visible tokens."""
    keys = vocabulary_keys(folder, vocab_size)
    if keys["tokenizer.ggml.model"][0] == "no_vocab":
        return keys
    merges = read_object(folder / "tokenizer.json").get("model", {}).get("merges")
    if not isinstance(merges, list):
        raise FormatError(f"{folder / 'tokenizer.json'} has no merges")
    texts = [m if isinstance(m, str) else " ".join(m) for m in merges]
    types = list(keys["tokenizer.ggml.token_type"][0])
    for i, token in enumerate(keys["tokenizer.ggml.tokens"][0]):
        if token in _VISIBLE:
            types[i] = USER_DEFINED
    return {
        **keys,
        "tokenizer.ggml.model": ("gemma4", "str"),
        "tokenizer.ggml.merges": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, keys["tokenizer.ggml.token_type"][1]),
    }


# By GGUF's architecture, where texts are framed in another way or the vocabulary is of one kind alone.
OF_ARCHITECTURE: Mapping[str, Callable[[Path, int], Keys]] = {
    "big-bird": _framed,
    "gemma4": _gemma4,
    "gemma-embedding": vocabulary_keys,
    "modern-bert": vocabulary_keys,
}


def _strip_keys(folder: Path, tokenizer: dict[str, Any]) -> Keys:
    """Return the keys of the added tokens that take the white space next to them."""
    added = added_token_objects(folder, tokenizer)
    sides = {LSTRIP_KEY: "lstrip", RSTRIP_KEY: "rstrip"}
    found = {key: [t["id"] for t in added if t.get(side) is True] for key, side in sides.items()}
    return {key: (ids, "arr[i32]") for key, ids in found.items() if ids}


def vocabulary_notes(folder: Path) -> list[str]:
    """Return what a folder says of its tokenizer that GGUF has no place for, a sentence each.

    Args:
        folder: With the tokenizer's files.
    """
    path = folder / "tokenizer.json"
    tokenizer = read_object(path) if path.is_file() else {}
    added = added_token_objects(folder, tokenizer)
    notes = []

    def listed(flag: str) -> str:
        return ", ".join(repr(t["content"]) for t in added if t.get(flag) is True)

    if alone := listed("single_word"):
        notes.append(
            f"{path} finds {alone} only as whole words; GGUF has no place for that, and they are found "
            "inside of words too"
        )
    kinds = {kind_of(step) for step in steps(tokenizer.get("normalizer"), "normalizers")}
    if kinds - {"NFC"} and (normalized := listed("normalized")):
        notes.append(
            f"{path} finds {normalized} in the normalized text; GGUF has no place for that, and they "
            "are found where they stand as they are"
        )
    special = special_tokens(folder)
    frame = {special.get(f"{name}_token") for name in ("bos", "eos", "cls", "sep")}
    around = [t for t in post_template(tokenizer.get("post_processor")) or [] if t]
    if lost := [t for t in around if t not in frame]:
        notes.append(
            f"{path} puts {', '.join(map(repr, lost))} around each text; GGUF has a place for a bos and "
            "an eos only"
        )
    ends = generation_ends(folder, 1 << 31)
    if len(ends) > _MOST_ENDS:
        notes.append(
            f"{folder / 'generation_config.json'} names {len(ends)} tokens that end an answer; GGUF has "
            f"a place for {_MOST_ENDS}, and {', '.join(map(str, ends[_MOST_ENDS:]))} end none"
        )
    return notes


def _template(folder: Path) -> Keys:
    """Return the chat template's key."""
    template = chat_templates(folder).get("default")
    return {} if template is None else {"tokenizer.chat_template": (template, "str")}
