"""Model files on this machine: a file, a folder, a set of shards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from oxibonsai.errors import SourceError

_SHARD = re.compile(r"^(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True)
class SplitInfo:
    """Place of a file in a set of shards ``STEM-0000i-of-0000n.gguf``; ``index`` counts from 1."""

    stem: str
    index: int
    count: int


def split_info(path: Path) -> SplitInfo | None:
    """What a file's name says about its set; None for a file that is whole."""
    match = _SHARD.match(path.name)
    if match is None:
        return None
    return SplitInfo(match["stem"], int(match["index"]), int(match["count"]))


def first_shard(path: Path) -> Path:
    """The first file of the set that ``path`` belongs to; missing ones are named."""
    info = split_info(path)
    if info is None:
        return path
    names = [f"{info.stem}-{i:05d}-of-{info.count:05d}.gguf" for i in range(1, info.count + 1)]
    missing = [n for n in names if not (path.parent / n).is_file()]
    if missing or not names:
        raise SourceError(
            f"{path} belongs to a set of {info.count} files; missing: {', '.join(missing)}"
        )
    return path.parent / names[0]


def is_model(name: str) -> bool:
    """A GGUF that holds a language model: not a vision projector, not a later shard."""
    if not name.endswith(".gguf") or Path(name).name.startswith("mmproj"):
        return False
    info = split_info(Path(name))
    return info is None or info.index == 1


def resolve_path(path: Path) -> Path:
    """The GGUF file that a file or folder stands for."""
    if path.is_file():
        return first_shard(path)
    if not path.exists():
        raise SourceError(
            f"{path} does not exist; name a GGUF file, a folder with one, hf:org/repo or pip:package"
        )
    found = sorted(p.name for p in path.iterdir() if p.is_file() and is_model(p.name))
    if not found:
        raise SourceError(f"the folder {path} holds no GGUF model")
    if len(found) > 1:
        raise SourceError(f"the folder {path} holds several models, name one: {', '.join(found)}")
    return first_shard(path / found[0])
