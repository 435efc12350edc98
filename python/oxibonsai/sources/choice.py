"""Which model is meant among named files: one rule for folders, the hub and Python packages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from oxibonsai.errors import SourceError
from oxibonsai.sources.shards import require_shards, shards


def choose(names: Collection[str], choice: str | None, holder: str, form: str) -> list[str]:
    """The files of the one model that is meant, the first shard first.

    Args:
        names: The files that there are, folder and all.
        choice: A file or a quant type; None where there should be one model only.
        holder: What has the files, for errors.
        form: How to write a choice, for errors.

    Raises:
        SourceError: There is no such model or not all of it, or there are several; they are listed.
    """
    found = matching(names, choice)
    if len(found) == 1:
        return require_shards(found[0], names.__contains__, holder)
    candidates = found or matching(names, None)
    if not candidates:
        advice = "; it has safetensors: make a GGUF of it with oxibonsai convert IN OUT"
        convertible = any(n.endswith(".safetensors") for n in names)
        raise SourceError(f"{holder} holds no GGUF model" + (advice if convertible else ""))
    problem = ("several models" if found else "no model") + (f" for {choice}" if choice else "")
    raise SourceError(f"{holder} holds {problem}; choose with {form} from: {', '.join(candidates)}")


def matching(names: Iterable[str], choice: str | None) -> list[str]:
    """The models that a choice names, split ones by their first shard.

    A file's whole path goes before its name in any folder, any shard names its set. Vision
    projectors are no models.
    """
    models = sorted(
        {
            shards(n)[0]
            for n in names
            if n.endswith(".gguf") and "mmproj" not in PurePosixPath(n).name.lower()
        }
    )
    if choice is None:
        return models
    if choice.endswith(".gguf"):
        wanted = shards(choice)[0]
        return [m for m in models if m == wanted] or [
            m for m in models if PurePosixPath(m).name == wanted
        ]
    quant = re.compile(rf"(?<![A-Za-z0-9]){re.escape(choice)}(?![A-Za-z0-9_])", re.IGNORECASE)
    return [m for m in models if quant.search(PurePosixPath(m).name)]
