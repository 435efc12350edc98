"""The tokenizer's files: ``tokenizer.json``, its configuration, the chat template."""

from __future__ import annotations

import json
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.reader import Reader
from oxibonsai.errors import UnsupportedError
from oxibonsai.tokenizer.files import rwkv
from oxibonsai.tokenizer.files.byte_level import byte_level_parts
from oxibonsai.tokenizer.files.sentencepiece import gemma4_parts, spm_parts
from oxibonsai.tokenizer.files.unigram import unigram_parts
from oxibonsai.tokenizer.files.wordpiece import wordpiece_parts
from oxibonsai.tokenizer.stripping import Stripping, read_stripping
from oxibonsai.tokenizer.tokenizer import Tokenizer
from oxibonsai.tokenizer.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary

# By tokenizer.ggml.model.
_KINDS = {
    "gpt2": byte_level_parts,
    "llama": spm_parts,
    "gemma4": gemma4_parts,
    "bert": wordpiece_parts,
    "t5": unigram_parts,
}
# Special tokens beside bos, eos, padding and the unknown one, and GGUF's names, its spelling included.
_OTHERS = {"sep_token": "seperator", "cls_token": "cls", "mask_token": "mask"}


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the text of each file by its name; none for a model without a tokenizer.

    Raises:
        UnsupportedError: The vocabulary or its pre-tokenizer has no form in ``tokenizer.json`` here.
    """
    if not checkpoint.has_tokenizer:
        return {}
    file = checkpoint.file
    vocabulary, kind = Tokenizer.from_gguf(file).vocabulary, file.get("tokenizer.ggml.model")
    template = file.get("tokenizer.chat_template")
    chat = {"chat_template.jinja": template} if isinstance(template, str) else {}
    if kind == "rwkv":
        return {rwkv.FILE: rwkv.rwkv_file(vocabulary), **chat}
    if kind not in _KINDS:
        raise UnsupportedError(
            f"{checkpoint.path}: tokenizer.ggml.model {kind!r} has no tokenizer.json; save it as gguf"
        )
    parts = _KINDS[kind](checkpoint, vocabulary)
    special = _special(checkpoint, vocabulary)
    # Encoders put a separator between the texts of a pair, not a second beginning.
    joint = kind in ("bert", "t5") or "cls_token" in special
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(vocabulary, read_stripping(file, vocabulary)),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": _frame(vocabulary, joint=joint),
        "decoder": None,
        **parts,
    }
    files = {
        "tokenizer.json": json.dumps(document),
        "tokenizer_config.json": json.dumps(_config(vocabulary, special) | _inputs(file), indent=2),
    }
    return files | chat


def _special(checkpoint: Checkpoint, vocabulary: Vocabulary) -> dict[str, str | None]:
    """Return the special tokens' texts by Hugging Face's names; WordPiece's frame is no bos and eos."""
    framed = checkpoint.file.get("tokenizer.ggml.model") == "bert"
    ids = {
        "bos_token": None if framed else vocabulary.bos_id,
        "eos_token": None if framed else vocabulary.eos_id,
        "pad_token": vocabulary.pad_id,
        "unk_token": vocabulary.unk_id,
    }
    found = {k: None if i is None else vocabulary.texts[i] for k, i in ids.items()}
    for name, key in _OTHERS.items():
        number = checkpoint.file.get(f"tokenizer.ggml.{key}_token_id")
        if number is not None:
            found[name] = vocabulary.texts[number]
    return found


def _config(vocabulary: Vocabulary, special: dict[str, str | None]) -> dict[str, Any]:
    return {
        **special,
        "add_bos_token": vocabulary.add_bos,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def _inputs(file: Reader) -> dict[str, Any]:
    """Return the inputs of a model that tells the texts of a pair apart."""
    if file.get("tokenizer.ggml.token_type_count", 1) < 2:
        return {}
    return {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}


def _added(vocabulary: Vocabulary, stripping: Stripping) -> list[dict[str, Any]]:
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    return [
        {
            "id": i,
            "content": text,
            "special": kind != USER_DEFINED,
            "single_word": False,
            "lstrip": i in stripping.left,
            "rstrip": i in stripping.right,
            "normalized": False,
        }
        for i, (text, kind) in enumerate(kinds)
        if kind in (CONTROL, USER_DEFINED, UNKNOWN)
    ]


def _frame(vocabulary: Vocabulary, *, joint: bool) -> dict[str, Any] | None:
    """Return which tokens go before and after a text.

    Args:
        vocabulary: The model's.
        joint: Whether a pair of texts begins once.
    """
    first = vocabulary.leading_bos
    last = vocabulary.eos_id if vocabulary.add_eos else None
    around = {i: vocabulary.texts[i] for i in (first, last) if i is not None}
    if not around:
        return None

    def sequence(name: str, kind: int) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"Sequence": {"id": name, "type_id": kind}}]
        if first is not None and not (joint and kind):
            parts.insert(0, {"SpecialToken": {"id": around[first], "type_id": kind}})
        if last is not None:
            parts.append({"SpecialToken": {"id": around[last], "type_id": kind}})
        return parts

    between = vocabulary.sep_id if joint and vocabulary.add_sep else None
    middle: list[dict[str, Any]] = []
    if between is not None:
        around[between] = vocabulary.texts[between]
        middle.append({"SpecialToken": {"id": around[between], "type_id": 0}})
    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": sequence("A", 0) + middle + sequence("B", 1),
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in around.items()},
    }
