"""Splits a model file into shards that llama.cpp opens too, and merges shards into one file.

Tensors are copied from one mapping to the next file, one at a time. All shards are written in a
folder beside the target and get their names when the last one is whole.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from oxibonsai import _core
from oxibonsai.checkpoint.gguf import (
    SPLIT_COUNT,
    SPLIT_KEYS,
    SPLIT_NUMBER,
    SPLIT_SET,
    SPLIT_TENSORS,
    GgufModel,
)
from oxibonsai.checkpoint.reader import Reader, TensorInfo
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.files.shards import MOST_SHARDS, shard_name
from oxibonsai.files.whole_file import (
    follow_links,
    is_replaced,
    make_room,
    put_in_place,
    written_whole,
)

_Tensors = list[TensorInfo]

_SAMPLE_BYTES = 4096  # of each tensor, in the set's identity
_SPLIT_ENTRIES_BYTES = 512  # more than the split.* keys, the header's counts and padding take
_TENSOR_ENTRY_BYTES = 128  # more than a tensor's entry without its name, and its padding


def split(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
    max_tensors: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write a model as shards ``OUT-0000i-of-0000n.gguf``.

    Args:
        source: A GGUF file, or any shard of a split one.
        out: Folder, made where it is not there, and stem of the shards' names; a last ``.gguf`` is
            left out.
        max_bytes: Largest size of a shard; a tensor that is larger has one to itself.
        max_tensors: Most tensors of a shard. One of the two is given.
        progress: Told after each tensor.

    Returns:
        The shards. They replace files of their names.

    Raises:
        RequestError: Neither limit is given, or both, or one below 1, or there would be too many.
        SourceError, FormatError: As :meth:`GgufModel.open`.
    """
    limits = [n for n in (max_bytes, max_tensors) if n is not None]
    if len(limits) != 1 or limits[0] < 1:
        raise RequestError("split takes one of max_bytes and max_tensors, at least 1")
    source, out = Path(source), Path(out)
    file = GgufModel.open(source)
    parts = _parts(file, max_bytes, max_tensors)
    if len(parts) > MOST_SHARDS:
        raise RequestError(
            f"{source} would make {len(parts)} shards; names have room for {MOST_SHARDS}"
        )
    stem = out.with_suffix("") if out.suffix == ".gguf" else out
    names = [stem.parent / shard_name(stem.name, i, len(parts)) for i in range(1, len(parts) + 1)]
    if {follow_links(n) for n in names} & {p.resolve() for p in file.paths}:
        raise RequestError(f"{source} would be overwritten by its own shards: name another OUT")
    for name in names:
        make_room(name)
    report = _counted(file, progress)
    identity = _identity(file)
    with _scratch_folder(stem.parent) as folder:
        for i, part in enumerate(parts):
            with written_whole(Path(folder) / str(i)) as sink:
                writer = _core.GgufWriter(sink, file.alignment)
                if i == 0:
                    _copy_metadata(file, writer)
                writer.add_metadata(SPLIT_NUMBER, i, "u16")
                writer.add_metadata(SPLIT_COUNT, len(parts), "u16")
                writer.add_metadata(SPLIT_TENSORS, len(file.tensors), "i32")
                writer.add_metadata(SPLIT_SET, identity, "str")
                if i > 0 and "general.alignment" in file.keys():  # noqa: SIM118 - not a dict
                    writer.copy_metadata(file.shards[0], "general.alignment")
                _copy_tensors(file, part, writer, report)
        _put_in_place([Path(folder) / str(i) for i in range(len(names))], names)
    return names


def _scratch_folder(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for shards; once they are out of it, it is no error that it can't be removed."""
    return tempfile.TemporaryDirectory(dir=parent, prefix=".split-", ignore_cleanup_errors=True)


def _put_in_place(shards: list[Path], names: list[Path]) -> None:
    """Return shards their names: all of them, or none."""
    placed: list[Path] = []
    try:
        for shard, name in zip(shards, names, strict=True):
            put_in_place(shard, name)
            placed.append(name)
    except OSError:
        for name in placed:
            if is_replaced(name):
                follow_links(name).unlink(missing_ok=True)
        raise


def merge(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> None:
    """Write the shards of a split model as one file.

    Args:
        sources: One shard, which stands for its set by its name; or all shards, under any names and
            in any order.
        out: The file; replaced where it exists.
        progress: Told after each tensor.

    Raises:
        RequestError: There are no sources, or one is the target.
        SourceError: A shard is missing; it is named.
        FormatError: One is damaged, appears twice or is of another model; it is named.
    """
    if not sources:
        raise RequestError("merge takes at least one shard")
    file, out = _open_set([Path(s) for s in sources]), Path(out)
    if follow_links(out) in {p.resolve() for p in file.paths}:
        raise RequestError(f"{out} is one of the shards: name another file")
    write_whole(file, out, progress)


def write_whole(file: Reader, out: Path, progress: Progress | None = None) -> None:
    """Write an opened model as one file, with the metadata and tensors that it has."""
    with written_whole(out) as sink:
        writer = _core.GgufWriter(sink, file.alignment)
        _copy_metadata(file, writer)
        _copy_tensors(file, file.tensors, writer, _counted(file, progress))


def _open_set(sources: Sequence[Path]) -> GgufModel:
    if len(sources) == 1:
        return GgufModel.open(sources[0])
    if len({p.resolve() for p in sources}) != len(sources):
        raise RequestError("merge is given a shard twice")
    files = [_core.GgufFile(str(p)) for p in sources]
    named = {_number(f): f for f in files}
    expected = files[0].get(SPLIT_COUNT)
    if isinstance(expected, int) and len(named) == len(files) < expected <= MOST_SHARDS:
        absent = [str(i + 1) for i in range(expected) if i not in named]
        listed = ", ".join(absent[:8]) + (" ..." if len(absent) > 8 else "")
        raise RequestError(f"merge lacks {len(absent)} of {expected} shards: {listed}")
    return GgufModel(sorted(files, key=_number))


def _number(file: _core.GgufFile) -> int:
    number = file.get(SPLIT_NUMBER)
    if isinstance(number, bool) or not isinstance(number, int):
        raise FormatError(f"{file.path} has no {SPLIT_NUMBER}: it is no shard of a split model")
    return number


def _parts(file: GgufModel, max_bytes: int | None, max_tensors: int | None) -> list[_Tensors]:
    """Return the tensors of each shard, in their order."""
    if max_tensors is not None:
        count = max(1, len(file.tensors))
        return [file.tensors[i : i + max_tensors] for i in range(0, count, max_tensors)]
    metadata = file.shards[0].tensors[0].offset if file.shards[0].tensors else file.shards[0].size
    parts: list[_Tensors] = [[]]
    size = metadata + _SPLIT_ENTRIES_BYTES
    for tensor in file.tensors:
        needed = tensor.nbytes + len(tensor.name.encode()) + _TENSOR_ENTRY_BYTES + file.alignment
        if parts[-1] and size + needed > (max_bytes or 0):
            parts.append([])
            size = _SPLIT_ENTRIES_BYTES + file.alignment
        parts[-1].append(tensor)
        size += needed
    return parts


def _identity(file: GgufModel) -> str:
    """Name a set, so that shards of two models with the same tensors are told apart."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in file.tensors:
        digest.update(f"{tensor.name} {tensor.shape} {tensor.gguf_id};".encode())
        digest.update(file.tensor_bytes(tensor.name)[:_SAMPLE_BYTES].tobytes())
    return digest.hexdigest()


def _copy_metadata(file: Reader, writer: _core.GgufWriter) -> None:
    for key in file.keys():  # noqa: SIM118 - not a dict
        if key not in SPLIT_KEYS:
            file.copy_metadata(writer, key)


def _copy_tensors(
    file: Reader,
    tensors: Sequence[TensorInfo],
    writer: _core.GgufWriter,
    report: Callable[[int], None],
) -> None:
    for tensor in tensors:
        writer.add_tensor(tensor.name, tensor.shape, tensor.gguf_id, tensor.nbytes)
    writer.write_header()
    for tensor in tensors:
        writer.write_tensor(file.tensor_bytes(tensor.name))
        report(tensor.nbytes)
    file.check_unchanged()
    writer.close()


def _counted(file: Reader, progress: Progress | None) -> Callable[[int], None]:
    return counted(sum(t.nbytes for t in file.tensors), progress)
