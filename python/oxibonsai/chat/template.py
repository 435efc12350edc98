"""Which chat template a conversation is written with."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.chat_template import ChatTemplate, compiled_template
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.tokenizer import Tokenizer


def model_template(engine: Engine) -> ChatTemplate | None:
    """Return the template of an engine's model; see :func:`load_template`."""
    if not engine.has_tokenizer:
        return None
    return load_template(engine.model.weights.checkpoint, engine.tokenizer)


def load_template(checkpoint: Checkpoint, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the file's own template; ChatML if the file has none but ChatML's tokens; else None."""
    source = checkpoint.file.get("tokenizer.chat_template")
    if isinstance(source, str) and source:
        return _with_tokens(source, tokenizer)
    return ChatTemplate.chatml() if "<|im_start|>" in tokenizer.vocabulary.texts else None


def choose_template(
    engine: Engine, source: str | None, file: str | os.PathLike[str] | None
) -> ChatTemplate | None:
    """Return the template that a user names, else the model's.

    Args:
        engine: Its tokenizer provides the texts of ``bos_token`` and ``eos_token``.
        source: Jinja, or ``chatml``.
        file: A file with Jinja; not with ``source``.

    Raises:
        RequestError: Both are given, or the file can't be read.
        FormatError: It is not valid Jinja.
    """
    if source is not None and file is not None:
        raise RequestError("--chat-template and --chat-template-file exclude each other")
    if source == "chatml":
        return ChatTemplate.chatml()
    if file is not None:
        try:
            source = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise RequestError(f"can't read {file}: {e}") from e
    if source is None:
        return model_template(engine)
    template = _with_tokens(source, engine.tokenizer)
    template.check()
    return template


def _with_tokens(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    def text(token: int | None) -> str:
        return "" if token is None else tokenizer.vocabulary.texts[token]

    return compiled_template(source, text(tokenizer.bos_id), text(tokenizer.eos_id))
