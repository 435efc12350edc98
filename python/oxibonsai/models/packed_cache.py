"""Packed weights kept on disk, so that a second start maps them instead of packing again.

A file is one page of JSON, which says what it holds, then the packed weights as they lie in memory.
Its name is the hash of everything that they depend on.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from oxibonsai import _core
from oxibonsai.files.cache_folder import cache_folder, cache_limit

_HEADER_BYTES = 4096
_MAGIC = "oxibonsai packed weights 1"
_SUFFIX = ".packed"
_DEFAULT_GB = 20.0


@dataclass(frozen=True)
class Entry:
    """One model's packed weights."""

    path: Path
    model: str  # name of the file that they were packed from
    tier: str
    bytes: int
    last_used: float  # seconds since the epoch


class PackedCache:
    """A folder of packed weights, bounded in size: the least recently used go first.

    Args:
        folder: None: ``packed`` in :func:`oxibonsai.files.cache_folder.cache_folder`.
        limit_bytes: None: ``OXIBONSAI_PACKED_CACHE_GB`` (20) in bytes.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, limit_bytes: int | None = None
    ) -> None:
        self.folder = cache_folder() / "packed" if folder is None else Path(folder)
        if limit_bytes is None:
            limit_bytes = cache_limit("OXIBONSAI_PACKED_CACHE_GB", _DEFAULT_GB)
        self.limit_bytes = limit_bytes

    def key(self, identity: str, matrices: list[_core.Weight]) -> str:
        """Return the hash of what the packed form depends on: files, matrices, the kernels' layouts.

        Args:
            identity: :meth:`oxibonsai.checkpoint.Checkpoint.identity`.
            matrices: All that linear layers use.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([_MAGIC, _core.cpu.name(), _core.cpu.tile_forms()]).encode())
        for w in matrices:
            digest.update(f"{w.name} {w.quant_type} {w.rows} {w.cols};".encode())
        digest.update(identity.encode())
        return digest.hexdigest()

    def attach(
        self, key: str, matrices: list[_core.Weight], device: _core.CpuDevice
    ) -> _core.PackedWeights | None:
        """Let a device use what is kept under a key; None where there is nothing whole."""
        path = self._path(key)
        header = _read_header(path)
        size = device.packed_size(matrices)
        if header is None or path.stat().st_size != _HEADER_BYTES + size:
            return None
        packed = device.attach(matrices, str(path), _HEADER_BYTES)
        # The time of access says when it was last used: one of change would tell those who have it
        # mapped that their weights are others.
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
        return packed

    def store(self, key: str, model: str | os.PathLike[str], packed: _core.PackedWeights) -> None:
        """Keep packed weights under a key: all of them, or nothing.

        Raises:
            OSError: The folder can't be written, or the disk is full.
        """
        if _HEADER_BYTES + packed.nbytes > self.limit_bytes:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        header = {"magic": _MAGIC, "model": Path(model).name, "tier": _core.cpu.name()}
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".part", delete=False) as out:
            part = Path(out.name)
            try:
                out.write(json.dumps(header).encode().ljust(_HEADER_BYTES))
                out.write(memoryview(packed))
                out.close()
                part.replace(self._path(key))
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        self._evict()

    def entries(self) -> list[Entry]:
        """Return the kept entries, the most recently used first."""
        found = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            header = _read_header(path)
            if header is not None:
                status = path.stat()
                found.append(
                    Entry(path, header["model"], header["tier"], status.st_size, status.st_atime)
                )
        return sorted(found, key=lambda e: e.last_used, reverse=True)

    def clear(self) -> int:
        """Remove everything, what a killed process left behind too; return the bytes freed."""
        freed = 0
        for path in [*self.folder.glob(f"*{_SUFFIX}"), *self.folder.glob("*.part")]:
            freed += path.stat().st_size
            path.unlink()
        return freed

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _evict(self) -> None:
        kept = 0
        for entry in self.entries():
            kept += entry.bytes
            if kept > self.limit_bytes:
                entry.path.unlink(missing_ok=True)


def _read_header(path: Path) -> dict[str, str] | None:
    """Return the header of a file of packed weights; None where it is none."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(_HEADER_BYTES))
    except (OSError, ValueError):
        return None
    return header if isinstance(header, dict) and header.get("magic") == _MAGIC else None
