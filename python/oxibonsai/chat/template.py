"""Which chat template a conversation is written with."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from oxibonsai.chat_template import BUILTIN, ChatTemplate, builtin_template, compiled_template
from oxibonsai.chat_template.builtin import find_builtin
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
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
    """Return the template that a user names, else the model's; None where it has none.

    Args:
        engine: Its tokenizer provides the texts of ``bos_token`` and ``eos_token``.
        source: Jinja, a name of ``chat_template.BUILTIN``, or a file.
        file: A file with Jinja; not with ``source``.

    Raises:
        RequestError: Both are given, the file can't be read, or the source is none of the three.
        FormatError: It is not valid Jinja.
    """
    jinja = read_template(source, file)
    if jinja is None:
        return model_template(engine)
    template = _with_tokens(jinja, engine.tokenizer)
    template.check()
    return template


def read_template(source: str | None, file: str | os.PathLike[str] | None) -> str | None:
    """Return the Jinja that a user names; None: nothing is named.

    Args:
        source: As for :func:`choose_template`.
        file: As for :func:`choose_template`.

    Raises:
        RequestError: As for :func:`choose_template`.
    """
    if source is not None and file is not None:
        raise RequestError("--chat-template and --chat-template-file exclude each other")
    if source in BUILTIN:
        return builtin_template(source)
    if source is not None and "{" not in source:
        if not os.path.isfile(with_home(source)):
            raise RequestError(
                f"--chat-template {source[:80]!r} is no template: it is neither Jinja, which has braces, "
                f"nor a file, nor one of {', '.join(BUILTIN)}"
            )
        file = with_home(source)
    if file is None:
        return source
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise RequestError(f"can't read {file}: {e}") from e


def fallback_template(engine: Engine) -> ChatTemplate:
    """Return a template for a model whose file has none, and warn that it is a guess.

    It is the one that the vocabulary or the family was made for, else ChatML.
    """
    file = engine.model.weights.checkpoint.file
    known = find_builtin(
        frozenset(engine.tokenizer.vocabulary.texts), str(file.get("general.architecture"))
    )
    why = "which its vocabulary or family was made for" if known else "which may not suit it"
    warnings.warn(
        f"the model's file has no chat template: {known or 'chatml'} is used, {why}; --chat-template "
        "names another",
        stacklevel=2,
    )
    return ChatTemplate(builtin_template(known or "chatml"))


def _with_tokens(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    def text(token: int | None) -> str:
        return "" if token is None else tokenizer.vocabulary.texts[token]

    return compiled_template(source, text(tokenizer.bos_id), text(tokenizer.eos_id))
