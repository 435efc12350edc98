"""Bytes on disk, named by their SHA-256, each content once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from oxibonsai.server.stores.errors import StoreError, TooLargeError

_PIECE = 2**20
# An upload that is older was left by a process that died.
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Upload:
    """Bytes that are on disk under a temporary name."""

    path: Path
    sha256: str
    size: int


class BlobFolder:
    """A folder of contents; who refers to them is kept in the database.

    Args:
        folder: Made if it is not there.

    Raises:
        StoreError: The folder can't be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temporary = folder / "incoming"
        with _errors(folder):
            self._temporary.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Where a content is, or would be."""
        return self._folder / sha256[:2] / sha256

    @contextlib.contextmanager
    def receive(self, source: IO[bytes], max_bytes: int) -> Iterator[Upload]:
        """Writes a stream to disk, for the block to keep.

        Raises:
            TooLargeError: More than ``max_bytes``.
            StoreError: The disk is full or can't be written.
        """
        path = self._temporary / secrets.token_hex(16)
        try:
            with _errors(path):
                upload = _write(path, source, max_bytes)
            yield upload
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def keep(self, upload: Upload) -> None:
        """Gives an upload its final name; it survives a loss of power from then on."""
        final = self.path(upload.sha256)
        with _errors(final):
            if final.exists():
                return
            final.parent.mkdir(exist_ok=True)
            upload.path.replace(final)
            _sync_folder(final.parent)
            _sync_folder(self._folder)

    def open(self, sha256: str) -> IO[bytes]:
        """A content, for reading.

        Raises:
            StoreError: It is not there.
        """
        with _errors(self.path(sha256)):
            return self.path(sha256).open("rb")

    def remove(self, sha256: str) -> None:
        """Forgets a content."""
        with _errors(self.path(sha256)):
            self.path(sha256).unlink(missing_ok=True)

    def contents(self) -> Iterator[str]:
        """All contents that are there."""
        for path in self._folder.glob("??/*"):
            yield path.name

    def sweep_uploads(self) -> None:
        """Deletes what uploads of processes that died have left."""
        for path in self._temporary.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    path.unlink()


def _write(path: Path, source: IO[bytes], max_bytes: int) -> Upload:
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > max_bytes:
                raise TooLargeError(f"the file is larger than {max_bytes} bytes")
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return Upload(path, digest.hexdigest(), size)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise StoreError(f"cannot use {path}: {e.strerror or e}") from e
