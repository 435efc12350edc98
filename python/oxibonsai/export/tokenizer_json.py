"""The tokenizer's files: ``tokenizer.json``, its configuration, the chat template."""

from __future__ import annotations

import json
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.byte_level import pre_tokenizer_json
from oxibonsai.errors import UnsupportedError
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from oxibonsai.tokenizer.vocabulary import CONTROL, USER_DEFINED, Vocabulary

_NORMAL, _UNKNOWN, _UNUSED = 1, 2, 5
_SPACE = "\u2581"


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, str]:
    """Text of each file by its name; none for a model without a tokenizer.

    Raises:
        UnsupportedError: The pre-tokenizer has no form in ``tokenizer.json`` here.
    """
    if not checkpoint.has_tokenizer:
        return {}
    file = checkpoint.file
    vocabulary = Tokenizer.from_gguf(file).vocabulary
    spm = file.get("tokenizer.ggml.model") == "llama"
    parts = _spm(checkpoint, vocabulary) if spm else _byte_level(checkpoint, vocabulary)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(vocabulary),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": _frame(vocabulary),
        "decoder": None,
        **parts,
    }
    files = {
        "tokenizer.json": json.dumps(document),
        "tokenizer_config.json": json.dumps(_config(vocabulary), indent=2),
    }
    template = file.get("tokenizer.chat_template")
    return files | ({"chat_template.jinja": template} if isinstance(template, str) else {})


def _config(vocabulary: Vocabulary) -> dict[str, Any]:
    ids = {
        "bos_token": vocabulary.bos_id,
        "eos_token": vocabulary.eos_id,
        "pad_token": vocabulary.pad_id,
        "unk_token": vocabulary.unk_id,
    }
    named = {k: None if i is None else vocabulary.texts[i] for k, i in ids.items()}
    return {
        **named,
        "add_bos_token": vocabulary.add_bos,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def _added(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    return [
        {"id": i, "content": text, "special": kind != USER_DEFINED, **flags}
        for i, (text, kind) in enumerate(kinds)
        if kind in (CONTROL, USER_DEFINED, _UNKNOWN)
    ]


def _frame(vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Which tokens go before and after a text."""
    first = vocabulary.bos_id if vocabulary.add_bos else None
    last = vocabulary.eos_id if vocabulary.add_eos else None
    around = {i: vocabulary.texts[i] for i in (first, last) if i is not None}
    if not around:
        return None

    def sequence(name: str, kind: int) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"Sequence": {"id": name, "type_id": kind}}]
        if first is not None:
            parts.insert(0, {"SpecialToken": {"id": around[first], "type_id": kind}})
        if last is not None:
            parts.append({"SpecialToken": {"id": around[last], "type_id": kind}})
        return parts

    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": sequence("A", 0) + sequence("B", 1),
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in around.items()},
    }


def _model(vocabulary: Vocabulary, merges: list[list[str]], **options: Any) -> dict[str, Any]:
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    # With the special tokens: one that the model lacks gets another id from the library.
    ids = {text: i for i, (text, kind) in enumerate(kinds) if kind != _UNUSED}
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


def _byte_level(checkpoint: Checkpoint, vocabulary: Vocabulary) -> dict[str, Any]:
    name = checkpoint.file.get("tokenizer.ggml.pre", "default")
    pre = pre_tokenizer_json(name)
    if pre is None:
        raise UnsupportedError(
            f"{checkpoint.path}: tokenizer.ggml.pre {name!r} has no tokenizer.json; save it as gguf"
        )
    merges = []
    for merge in checkpoint.file.get("tokenizer.ggml.merges"):
        left, _, right = merge[1:].partition(" ")  # a piece may be a space, but does not hold one
        merges.append([merge[:1] + left, right])
    plain = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    model = _model(vocabulary, merges, ignore_merges=PRE_TOKENIZERS[name].ignore_merges)
    return {"pre_tokenizer": pre, "decoder": plain, "model": model}


def _spm(checkpoint: Checkpoint, vocabulary: Vocabulary) -> dict[str, Any]:
    space = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    steps: list[dict[str, Any]] = [space]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if checkpoint.file.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, {"type": "Prepend", "prepend": _SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = None if vocabulary.unk_id is None else vocabulary.texts[vocabulary.unk_id]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(
            vocabulary, _merges(vocabulary), unk_token=unknown, fuse_unk=True, byte_fallback=True
        ),
    }


def _merges(vocabulary: Vocabulary) -> list[list[str]]:
    """Every pair of pieces that makes a third, the one of the best score first."""
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    ids = {text: i for i, (text, kind) in enumerate(kinds) if kind == _NORMAL}
    found = []
    for piece in sorted(ids, key=lambda t: -vocabulary.scores[ids[t]]):
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [(a, b) for a, b in cuts if a in ids and b in ids]
        found += sorted(([a, b] for a, b in pairs), key=lambda p: (ids[p[0]], ids[p[1]]))
    return found
