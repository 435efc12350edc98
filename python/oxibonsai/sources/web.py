"""A model file on the web, fetched once and kept in the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit, urlunsplit

from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.shards import shards
from oxibonsai.sources.download import download
from oxibonsai.sources.http import file_name
from oxibonsai.sources.progress import progress_bar


def web_folder() -> Path:
    """Return where files from the web are kept: a folder for each address."""
    return cache_folder() / "web"


def resolve_url(url: str, *, progress: bool | None = None, public_only: bool = False) -> Path:
    """Find the GGUF file of an address, with the other shards of a set.

    What has been fetched before is used as it is; ``oxibonsai pull`` fetches it anew.

    Args:
        url: Of the file.
        progress: As for :func:`oxibonsai.sources.resolve`.
        public_only: Fetch from public hosts only.

    Raises:
        SourceError: The address names no such file, or the server refuses.
    """
    name = file_name(url)
    if name is None or not name.endswith(".gguf"):
        raise SourceError(f"{url} names no GGUF file: write the address of one")
    parts = urlsplit(url)
    # Shards lie in one folder, and have one address but for their names.
    base = urlunsplit(parts._replace(path=parts.path.rpartition("/")[0]))
    folder = web_folder() / hashlib.sha256(base.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for shard in shards(name):
        place = folder / shard
        if place.is_file():
            continue
        path = str(PurePosixPath(parts.path).with_name(shard))
        with progress_bar(shard, progress) as shown:
            download(
                urlunsplit(parts._replace(path=path)), place, progress=shown,
                public_only=public_only,
            )  # fmt: skip
    return folder / name
