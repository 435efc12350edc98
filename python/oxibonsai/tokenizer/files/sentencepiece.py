"""SentencePiece's BPE: ``tokenizer.json`` with merges instead of scores, both ways; ``tokenizer.model``."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.json_object import read_object
from oxibonsai.tokenizer.files.tokenizer_json import (
    SPACE,
    Parts,
    bpe_model,
    check_bpe,
    kind_of,
    merge_pair,
    stated_merges,
    steps,
)
from oxibonsai.tokenizer.files.tokens import Keys, placed_tokens, token_table
from oxibonsai.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
)

FILE = "tokenizer.model"
_LOWEST = -1e9  # of pieces that no merge makes


def spm_keys(folder: Path, tokenizer: dict[str, Any], vocab_size: int) -> Keys:
    """Return the tokenizer's keys.

    Args:
        folder: For errors.
        tokenizer: ``tokenizer.json``, whose model is BPE with byte fallback.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    model = tokenizer["model"]
    check_bpe(folder, model)
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


def _ranks(folder: Path, merges: list[Any]) -> dict[str, int]:
    """Return the place of each piece among those that merges make, the earliest merge first.

    SentencePiece gives a piece one score, however it is made, and its merges are listed by score.
    """
    ranks: dict[str, int] = {}
    for merge in merges:
        pair = merge_pair(folder, merge)
        ranks.setdefault("".join(pair), len(ranks))
    return ranks


def _adds_space(folder: Path, tokenizer: dict[str, Any]) -> bool:
    """Return whether a text gets a space in front; UnsupportedError for what SPM in GGUF does not do."""
    path = folder / "tokenizer.json"
    prefix = False
    for step in steps(tokenizer.get("normalizer"), "normalizers"):
        if step == {"type": "Prepend", "prepend": SPACE}:
            prefix = True
        elif step != {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}:
            raise UnsupportedError(f"{path}: the normaliser is none that GGUF has a place for")
    for step in steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        kind = kind_of(step)
        if kind == "Metaspace" and step.get("replacement") == SPACE:
            scheme = step.get("prepend_scheme", "always")
            prefix = prefix or (scheme != "never" and step.get("add_prefix_space", True) is True)
        elif kind != "Split" or step.get("pattern") != {"String": " "}:
            raise UnsupportedError(f"{path}: the pre-tokenizer is none that convert knows")
    return prefix


def spm_file_keys(folder: Path, vocab_size: int) -> Keys:
    """Return the tokenizer's keys.

    Pieces, scores and types are taken as they are: GGUF counts its types as SentencePiece does. Tokens
    that ``added_tokens.json`` or ``tokenizer_config.json`` name lie behind them or in their place.

    Args:
        folder: Has ``tokenizer.model``.
        vocab_size: Rows of the model's table; ids without a text are filled up.

    Raises:
        UnsupportedError: The package sentencepiece is not there, or the model is not BPE without
            normalisation.
        FormatError: The file is damaged, or has more pieces than the model's table rows.
    """
    path = folder / FILE
    model = _parse(path)
    trained, normalizer = model.trainer_spec, model.normalizer_spec
    if trained.model_type != trained.BPE:
        raise UnsupportedError(f"{path}: its pieces are not those of BPE, the only kind that runs")
    if normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces:
        raise UnsupportedError(f"{path}: it normalises texts, which GGUF has no place for")
    if len(model.pieces) > vocab_size:
        raise FormatError(
            f"{path} has {len(model.pieces)} pieces, but the model a vocabulary of {vocab_size}"
        )
    if not all(math.isfinite(p.score) for p in model.pieces):
        raise FormatError(f"{path}: a score is not finite")
    pieces = [(p.piece, i, p.type) for i, p in enumerate(model.pieces)]
    texts, types = placed_tokens(str(folder), pieces + _added(folder), vocab_size)
    scores = [p.score for p in model.pieces] + [0.0] * (vocab_size - len(model.pieces))
    ids = {"bos": trained.bos_id, "eos": trained.eos_id, "unknown": trained.unk_id}
    return {
        "tokenizer.ggml.model": ("llama", "str"),
        "tokenizer.ggml.pre": ("default", "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.scores": (scores, "arr[f32]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.add_space_prefix": (normalizer.add_dummy_prefix, "bool"),
        **{
            f"tokenizer.ggml.{name}_token_id": (i, "u32")
            for name, i in ids.items()
            if 0 <= i < len(model.pieces)
        },
    }


def _parse(path: Path) -> Any:
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as e:
        raise UnsupportedError(
            f"{path} is read with the packages sentencepiece and protobuf, which are not there: "
            "pip install 'oxibonsai[convert]'"
        ) from e
    messages: Any = sentencepiece_model_pb2
    try:
        return messages.ModelProto.FromString(path.read_bytes())
    except (OSError, DecodeError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e


def _added(folder: Path) -> list[tuple[str, Any, int]]:
    """Return text, id and type of the tokens that other files add."""
    found: list[tuple[str, Any, int]] = []
    if (folder / "added_tokens.json").is_file():
        found += [
            (t, i, USER_DEFINED) for t, i in read_object(folder / "added_tokens.json").items()
        ]
    if (folder / "tokenizer_config.json").is_file():
        table = read_object(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
        for i, token in table.items() if isinstance(table, dict) else ():
            if not isinstance(token, dict) or not isinstance(token.get("content"), str):
                raise FormatError(f"{folder}: added_tokens_decoder holds no token at {i!r}")
            kind = CONTROL if token.get("special") is True else USER_DEFINED
            found.append((token["content"], int(i) if i.isdecimal() else i, kind))
    return found


def spm_parts(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """Return SentencePiece's BPE, whose merges follow from the scores."""
    return _characters(checkpoint, vocabulary, _merges(vocabulary), prefix=True)


def gemma4_parts(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Parts:
    """Return the parts of Gemma 4: merges of its own, and no space in front of a text."""
    return _characters(checkpoint, vocabulary, stated_merges(checkpoint), prefix=False)


def _characters(
    checkpoint: Checkpoint, vocabulary: Vocabulary, merges: list[list[str]], *, prefix: bool
) -> Parts:
    """Return BPE of characters, with a mark in place of spaces, and bytes for what the vocabulary lacks.

    Args:
        checkpoint: Of the model.
        vocabulary: Its own.
        merges: The first one counts most.
        prefix: Whether a text gets a space in front, where the file does not say.
    """
    space = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps: list[dict[str, Any]] = [space]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix and checkpoint.file.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, {"type": "Prepend", "prepend": SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = None if vocabulary.unk_id is None else vocabulary.texts[vocabulary.unk_id]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": bpe_model(
            vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True
        ),
    }


def _merges(vocabulary: Vocabulary) -> list[list[str]]:
    """Return every pair of pieces that makes a third, the one of the best score first."""
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    ids = {text: i for i, (text, kind) in enumerate(kinds) if kind == NORMAL}
    found = []
    for piece in sorted(ids, key=lambda t: -vocabulary.scores[ids[t]]):
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [(a, b) for a, b in cuts if a in ids and b in ids]
        found += sorted(([a, b] for a, b in pairs), key=lambda p: (ids[p[0]], ids[p[1]]))
    return found
