"""Vocabularies of a folder that has SentencePiece's own ``tokenizer.model`` and no ``tokenizer.json``."""

from __future__ import annotations

import math
from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.vocabulary import CONTROL, USER_DEFINED, placed_tokens
from oxibonsai.errors import FormatError, UnsupportedError

FILE = "tokenizer.model"


def spm_file_keys(folder: ModelFolder, vocab_size: int) -> Metadata:
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
    path, model = folder.path / FILE, _parse(folder)
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
    texts, types = placed_tokens(str(folder.path), pieces + _added(folder), vocab_size)
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


def _parse(folder: ModelFolder) -> Any:
    path = folder.path / FILE
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


def _added(folder: ModelFolder) -> list[tuple[str, Any, int]]:
    """Text, id and type of the tokens that other files add."""
    found: list[tuple[str, Any, int]] = []
    if (folder.path / "added_tokens.json").is_file():
        found += [(t, i, USER_DEFINED) for t, i in folder.json("added_tokens.json").items()]
    if (folder.path / "tokenizer_config.json").is_file():
        table = folder.json("tokenizer_config.json").get("added_tokens_decoder", {})
        for i, token in table.items() if isinstance(table, dict) else ():
            if not isinstance(token, dict) or not isinstance(token.get("content"), str):
                raise FormatError(f"{folder.path}: added_tokens_decoder holds no token at {i!r}")
            kind = CONTROL if token.get("special") is True else USER_DEFINED
            found.append((token["content"], int(i) if i.isdecimal() else i, kind))
    return found
