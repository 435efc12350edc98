"""Parts of ``tokenizer.json`` for each kind of vocabulary: the model, and the steps around it."""

from __future__ import annotations

import ast
import base64
from typing import Any

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.byte_level import pre_tokenizer_json
from oxibonsai.convert.unigram import REMOVES_EDGES, SPACES
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer import japanese
from oxibonsai.tokenizer.pre_tokenizers import PRE_TOKENIZERS, pre_tokenizer
from oxibonsai.tokenizer.vocabulary import Vocabulary
from oxibonsai.tokenizer.wordpiece import LONGEST_WORD, library_form

_NORMAL, _UNUSED = 1, 5
_SPACE = "\u2581"
Parts = dict[str, Any]


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


def _stated_merges(checkpoint: Checkpoint) -> list[list[str]]:
    merges = []
    for merge in checkpoint.file.get("tokenizer.ggml.merges"):
        left, _, right = merge[1:].partition(" ")  # a piece may be a space, but does not hold one
        merges.append([merge[:1] + left, right])
    return merges


def byte_level(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """BPE of bytes.

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
    model = _model(
        vocabulary, _stated_merges(checkpoint), ignore_merges=PRE_TOKENIZERS[name].ignore_merges
    )
    composes = pre_tokenizer(checkpoint.file).composes
    normalizer = {"type": "NFC"} if composes else None
    return {"normalizer": normalizer, "pre_tokenizer": pre, "decoder": plain, "model": model}


def spm(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """SentencePiece's BPE, whose merges follow from the scores."""
    return _characters(checkpoint, vocabulary, _merges(vocabulary), prefix=True)


def gemma4(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """Return the parts of Gemma 4: merges of its own, and no space in front of a text."""
    return _characters(checkpoint, vocabulary, _stated_merges(checkpoint), prefix=False)


def _characters(
    checkpoint: Checkpoint, vocabulary: Vocabulary, merges: list[list[str]], *, prefix: bool
) -> Parts:
    """BPE of characters, with a mark in place of spaces, and bytes for what the vocabulary lacks.

    Args:
        checkpoint: Of the model.
        vocabulary: Its own.
        merges: The first one counts most.
        prefix: Whether a text gets a space in front, where the file does not say.
    """
    space = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    steps: list[dict[str, Any]] = [space]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix and checkpoint.file.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, {"type": "Prepend", "prepend": _SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = None if vocabulary.unk_id is None else vocabulary.texts[vocabulary.unk_id]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }


def word_piece(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """BERT's.

    Raises:
        UnsupportedError: Words are found by another program.
    """
    file = checkpoint.file
    pre = file.get("tokenizer.ggml.pre", "default")
    if pre in (japanese.WORDS, japanese.CHARACTERS):
        raise UnsupportedError(
            f"{checkpoint.path}: tokenizer.ggml.pre {pre!r} has no tokenizer.json; save it as gguf"
        )
    lower = file.get("tokenizer.ggml.normalizer.lowercase", True)
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    pieces = {
        library_form(text) if kind == _NORMAL else text: i
        for i, (text, kind) in enumerate(kinds)
        if kind != _UNUSED
    }
    unknown = vocabulary.unk_id
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": file.get("tokenizer.ggml.normalizer.strip_accents", lower),
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": None if unknown is None else vocabulary.texts[unknown],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": pieces,
        },
    }


def unigram(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """SentencePiece's unigrams.

    Raises:
        UnsupportedError: The vocabulary replaces characters and keeps all spaces, which
            ``tokenizer.json`` has no steps for that are read back.
    """
    file = checkpoint.file
    table = bytes(np.asarray(file.get("tokenizer.ggml.precompiled_charsmap", []), np.uint8))
    merges = file.get("tokenizer.ggml.remove_extra_whitespaces", False)
    if table and not merges:
        raise UnsupportedError(
            f"{checkpoint.path}: tokenizer.ggml.precompiled_charsmap without "
            "remove_extra_whitespaces has no tokenizer.json; save it as gguf"
        )
    steps: list[dict[str, Any]] = []
    if table:
        encoded = base64.b64encode(table).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if merges:
        steps.append(REMOVES_EDGES)
        steps.append({"type": "Replace", "pattern": {"Regex": SPACES}, "content": " "})
    prefix = file.get("tokenizer.ggml.add_space_prefix", False)
    space = {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": "always" if prefix else "never",
        "split": True,
    }
    used = max(i for i, kind in enumerate(vocabulary.types) if kind != _UNUSED) + 1
    pairs = zip(vocabulary.texts[:used], vocabulary.scores[:used], strict=True)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": space,
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unk_id,
            "vocab": [[text, score] for text, score in pairs],
            "byte_fallback": False,
        },
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


def rwkv_file(vocabulary: Vocabulary) -> str:
    """RWKV's own file: an id, a literal of bytes and their number a line."""
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    tokens = [(i, _bytes_of(text)) for i, (text, kind) in enumerate(kinds) if kind == _NORMAL]
    return "".join(f"{i} {token!r} {len(token)}\n" for i, token in tokens)


def _bytes_of(text: str) -> bytes:
    """Return the bytes whose repr, without its quotes, a token's text is."""
    for quote in ("'", '"'):  # repr takes the one that need not be escaped
        try:
            token: bytes = ast.literal_eval(f"b{quote}{text}{quote}")
        except SyntaxError:
            continue
        return token
    raise FormatError(f"the token {text!r} is no text with Python's escapes")
