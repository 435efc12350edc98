"""Split models: sets of files ``STEM-0000i-of-0000n.gguf`` in one folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from oxibonsai.errors import SourceError

_SHARD = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII)
_NAMED_AT_MOST = 8  # missing files in one message
MOST_SHARDS = 65535  # that the u16 split.count can say


@dataclass(frozen=True)
class SplitInfo:
    """Place of a file in its set; ``index`` counts from 1."""

    stem: str
    index: int
    count: int


def split_info(path: str | os.PathLike[str]) -> SplitInfo | None:
    """Return the set that a file's name belongs to; None for a file that is whole."""
    match = _SHARD.fullmatch(PurePath(path).name)
    if match is None:
        return None
    info = SplitInfo(match["stem"], int(match["index"]), int(match["count"]))
    return info if 1 <= info.index <= info.count else None


def shard_name(stem: str, index: int, count: int) -> str:
    """Return a shard's file name, as llama.cpp writes it; ``index`` counts from 1."""
    return f"{stem}-{index:05d}-of-{count:05d}.gguf"


def shards(name: str) -> list[str]:
    """Return names, folder and all, of the files of the model that ``name`` is a part of."""
    info = split_info(PurePath(name))
    if info is None:
        return [name]
    folder, slash, _ = name.rpartition("/")
    return [
        f"{folder}{slash}{shard_name(info.stem, i, info.count)}" for i in range(1, info.count + 1)
    ]


def require_shards(name: str, is_there: Callable[[str], bool], holder: str) -> list[str]:
    """Return the files of a model, the first shard first, all of which must be there.

    Raises:
        SourceError: Some are not; it says which ones ``holder`` lacks.
    """
    names = shards(name)
    missing = [PurePath(n).name for n in names if not is_there(n)]
    if missing:
        more = len(missing) - _NAMED_AT_MOST
        listed = ", ".join(missing[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
        raise SourceError(
            f"{holder} lacks {len(missing)} of the {len(names)} files of a split model: {listed}"
        )
    return names
