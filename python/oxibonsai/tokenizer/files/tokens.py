"""Ids, texts and special tokens that the vocabularies of all folders have, and GGUF's keys of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from oxibonsai.errors import FormatError
from oxibonsai.files.json_object import read_object
from oxibonsai.tokenizer.files.tokenizer_json import steps
from oxibonsai.tokenizer.vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED

# GGUF key -> value, and its type as `_core.GgufWriter.add_metadata` names it.
Keys = dict[str, tuple[Any, str]]

# Newer folders name special tokens in the first, older ones in the second.
SPECIAL_FILES = ("tokenizer_config.json", "special_tokens_map.json")
# Special tokens by Hugging Face's names, and GGUF's, its spelling included.
SPECIAL_NAMES = {
    "bos_token": "bos",
    "eos_token": "eos",
    "pad_token": "padding",
    "unk_token": "unknown",
    "sep_token": "seperator",
    "cls_token": "cls",
    "mask_token": "mask",
}
# What frames the texts of models that name no beginning and no end.
_FRAMES = {"bos_token": "cls_token", "eos_token": "sep_token"}


def token_table(
    folder: Path,
    tokenizer: dict[str, Any],
    vocab_size: int,
    gguf_form: Callable[[str], str],
) -> tuple[list[str], list[int]]:
    """Return texts and types by id, of a ``tokenizer.json``.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
        gguf_form: How GGUF writes a piece of the model's vocabulary; added tokens stay as they are.
    """
    entries = [(t, i, NORMAL) for t, i in tokenizer["model"]["vocab"].items()]
    entries += added_tokens(folder, tokenizer)
    texts, types = placed_tokens(str(folder / "tokenizer.json"), entries, vocab_size)
    return [gguf_form(t) if k == NORMAL else t for t, k in zip(texts, types, strict=True)], types


def placed_tokens(
    where: str, entries: Iterable[tuple[str, Any, int]], vocab_size: int
) -> tuple[list[str], list[int]]:
    """Return texts and types by id; ids without a text are filled up.

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


def added_tokens(folder: Path, tokenizer: dict[str, Any]) -> list[tuple[str, Any, int]]:
    """Return text, id and type of the tokens that are never split."""
    kinds = {True: CONTROL, False: USER_DEFINED}
    return [
        (t["content"], t.get("id"), kinds[t.get("special") is True])
        for t in added_token_objects(folder, tokenizer)
    ]


def added_token_objects(folder: Path, tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return ``added_tokens`` of a ``tokenizer.json``, each with its text in ``content``."""
    added = tokenizer.get("added_tokens", [])
    if not isinstance(added, list) or not all(
        isinstance(t, dict) and isinstance(t.get("content"), str) for t in added
    ):
        raise FormatError(f"{folder / 'tokenizer.json'}: added_tokens is no list of tokens")
    return added


def special_tokens(folder: Path) -> dict[str, Any]:
    """Return the contents of ``SPECIAL_FILES``; a token that is an object becomes its ``content``."""
    found: dict[str, Any] = {}
    for file in SPECIAL_FILES:
        if (folder / file).is_file():
            found |= read_object(folder / file)
    return {k: v.get("content") if isinstance(v, dict) else v for k, v in found.items()}


def frame_keys(
    folder: Path, tokenizer: dict[str, Any], ids: dict[str, int], vocab_size: int
) -> Keys:
    """Return the keys of special ids, and whether a bos goes first and an eos last.

    Args:
        folder: With ``SPECIAL_FILES`` and ``generation_config.json``, where it has them.
        tokenizer: ``tokenizer.json``; empty where there is none.
        ids: Of all tokens.
        vocab_size: Rows of the model's table.
    """
    special = special_tokens(folder)
    special |= {name: special.get(name) or special.get(other) for name, other in _FRAMES.items()}
    keys: Keys = {}
    for name, gguf_name in SPECIAL_NAMES.items():
        text = special.get(name)
        if text is None:
            continue
        if not isinstance(text, str) or text not in ids:
            raise FormatError(f"{folder}: {name} is {text!r}, which is no token")
        keys[f"tokenizer.ggml.{gguf_name}_token_id"] = (ids[text], "u32")
    template = post_template(tokenizer.get("post_processor"))
    for name, place in (("bos", 0), ("eos", -1)):
        stated = special.get(f"add_{name}_token")
        if template is not None:
            framed = bool(template) and template[place] == special.get(f"{name}_token")
            keys[f"tokenizer.ggml.add_{name}_token"] = (framed, "bool")
        elif isinstance(stated, bool):
            keys[f"tokenizer.ggml.add_{name}_token"] = (stated, "bool")
    if _pair_separators(tokenizer.get("post_processor")) > 1:
        keys["tokenizer.ggml.add_sep_token"] = (True, "bool")
    return keys | _end_keys(folder, keys, vocab_size)


def _pair_separators(processor: Any) -> int:
    """Return the number of special tokens between the two texts of a pair."""
    found = [0]
    for step in steps(processor, "processors"):
        try:
            if step["type"] == "RobertaProcessing":
                found.append(2)
                continue
            pair = ["SpecialToken" in p for p in step["pair"]]
            first = pair.index(False)
            found.append(pair.index(False, first + 1) - first - 1)
        except (KeyError, TypeError, ValueError):
            continue
    return max(found)


def post_template(processor: Any) -> list[str] | None:
    """Return the texts around a sequence, which is empty text; None where no template says."""
    for step in steps(processor, "processors"):
        try:
            if step["type"] == "RobertaProcessing":
                return [step["cls"][0], "", step["sep"][0]]
            if step["type"] == "TemplateProcessing":
                return [
                    p["SpecialToken"]["id"] if "SpecialToken" in p else "" for p in step["single"]
                ]
        except (KeyError, TypeError, IndexError):
            continue
    return None


def _end_keys(folder: Path, keys: Keys, vocab_size: int) -> Keys:
    """Return ids that end a generation beside the tokenizer's eos; GGUF has room for two."""
    ends = generation_ends(folder, vocab_size)
    eos = keys.get("tokenizer.ggml.eos_token_id", (None,))[0]
    names = ["eot", "eom"] if eos is not None else ["eos", "eot", "eom"]
    others = [e for e in ends if e != eos]
    return {f"tokenizer.ggml.{n}_token_id": (e, "u32") for n, e in zip(names, others, strict=False)}


def generation_ends(folder: Path, vocab_size: int) -> list[int]:
    """Return the ids of ``eos_token_id`` in ``generation_config.json``."""
    file = folder / "generation_config.json"
    stated = read_object(file).get("eos_token_id") if file.is_file() else None
    ends = stated if isinstance(stated, list) else [] if stated is None else [stated]
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int) or not 0 <= end < vocab_size:
            raise FormatError(
                f"{folder}: eos_token_id {end!r} is outside the vocabulary of {vocab_size}"
            )
    return list(dict.fromkeys(ends))


def read_text(path: Path) -> str:
    """Return a text file's content.

    Raises:
        FormatError: It can't be read, or is no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
