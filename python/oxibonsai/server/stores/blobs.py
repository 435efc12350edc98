"""Content-addressed contents on disk or in the database, named by SHA-256 and stored once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from sqlalchemy import Connection, delete, insert, select

from oxibonsai.files.platform import lock, sync_folder
from oxibonsai.server.stores.errors import StoreError, TooLargeError
from oxibonsai.server.stores.tables import file_contents

_PIECE = 2**20


@dataclass(frozen=True)
class Upload:
    """Content on disk under a temporary name."""

    path: Path
    sha256: str
    size: int


class Blobs(Protocol):
    """Contents by their SHA-256; the database records which objects refer to them.

    The connection is the transaction in which an object begins or ceases to refer to a content; a
    folder has no use for it.
    """

    def receive(self, source: IO[bytes], max_bytes: int) -> AbstractContextManager[Upload]: ...
    def keep(self, connection: Connection, upload: Upload) -> None: ...
    def open(self, connection: Connection, sha256: str) -> IO[bytes]: ...
    def remove(self, connection: Connection, sha256: str) -> None: ...
    def contents(self, connection: Connection) -> Iterator[str]: ...
    def sweep_uploads(self) -> None: ...


class BlobFolder:
    """A folder of contents.

    Args:
        folder: Created if missing.

    Raises:
        StoreError: The folder can't be created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temporary = folder / "incoming"
        with _errors(folder):
            self._temporary.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Return the path of a content, whether it exists or not."""
        return self._folder / sha256[:2] / sha256

    @contextlib.contextmanager
    def receive(self, source: IO[bytes], max_bytes: int) -> Iterator[Upload]:
        """Write a stream to a temporary file, which is deleted after the block unless kept.

        The file is locked for as long, so that others see that its owner lives.

        Raises:
            TooLargeError: The stream is longer than ``max_bytes``.
            StoreError: The disk is full or not writable.
        """
        with _errors(self._temporary):
            path, file = self._new_file()
        with file:
            try:
                with _errors(path):
                    upload = _write(path, file, source, max_bytes)
                yield upload
            finally:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def _new_file(self) -> tuple[Path, IO[bytes]]:
        """Make a temporary file and lock it."""
        while True:
            path = self._temporary / secrets.token_hex(16)
            file = path.open("xb")
            lock(file.fileno())
            if os.fstat(file.fileno()).st_nlink:
                return path, file
            file.close()  # somebody swept between the two

    def keep(self, connection: Connection, upload: Upload) -> None:
        """Move an upload to its final name; it is durable when this returns."""
        final = self.path(upload.sha256)
        with _errors(final):
            if final.exists():
                return
            final.parent.mkdir(exist_ok=True)
            upload.path.replace(final)
            sync_folder(final.parent)
            sync_folder(self._folder)

    def open(self, connection: Connection, sha256: str) -> IO[bytes]:
        """Open a content for reading.

        Raises:
            StoreError: It does not exist.
        """
        with _errors(self.path(sha256)):
            return self.path(sha256).open("rb")

    def remove(self, connection: Connection, sha256: str) -> None:
        """Delete a content; idempotent."""
        with _errors(self.path(sha256)):
            self.path(sha256).unlink(missing_ok=True)

    def contents(self, connection: Connection) -> Iterator[str]:
        """Yield the names of all contents."""
        for path in self._folder.glob("??/*"):
            yield path.name

    def sweep_uploads(self) -> None:
        """Delete temporary files that nobody locks: their owners died."""
        for path in self._temporary.iterdir():
            with contextlib.suppress(OSError), path.open("rb") as file:
                lock(file.fileno(), wait=False)
                path.unlink()


def _write(path: Path, file: IO[bytes], source: IO[bytes], max_bytes: int) -> Upload:
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_PIECE):
        size += len(piece)
        if size > max_bytes:
            raise TooLargeError(f"the file is larger than {max_bytes} bytes")
        digest.update(piece)
        file.write(piece)
    file.flush()
    os.fsync(file.fileno())
    return Upload(path, digest.hexdigest(), size)


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise StoreError(f"cannot use {path}: {e.strerror or e}") from e


_PIECES_IN_MEMORY = 4


class BlobTable:
    """Contents in a table; uploads and downloads pass through a folder of this server.

    Args:
        folder: Created if missing.

    Raises:
        StoreError: The folder can't be created.
    """

    def __init__(self, folder: Path) -> None:
        self._uploads = BlobFolder(folder)
        self._folder = folder

    def receive(self, source: IO[bytes], max_bytes: int) -> AbstractContextManager[Upload]:
        """Do what :meth:`BlobFolder.receive` does."""
        return self._uploads.receive(source, max_bytes)

    def keep(self, connection: Connection, upload: Upload) -> None:
        """Write an upload to the table; it is durable when the transaction ends."""
        table = file_contents
        there = select(table.c.piece).where(table.c.sha256 == upload.sha256).limit(1)
        if connection.execute(there).first() is not None:
            return
        with upload.path.open("rb") as file:
            index, data = 0, file.read(_PIECE)
            while data or index == 0:  # an empty content has one piece
                row = {"sha256": upload.sha256, "piece": index, "data": data}
                connection.execute(insert(table).values(**row))
                index, data = index + 1, file.read(_PIECE)

    def open(self, connection: Connection, sha256: str) -> IO[bytes]:
        """Open a copy of a content, which is gone when it is closed.

        Raises:
            StoreError: It does not exist, or the disk is full.
        """
        table = file_contents
        # One statement, which sees all pieces or, of a content that is being deleted, none.
        query = select(table.c.data).where(table.c.sha256 == sha256).order_by(table.c.piece)
        rows = connection.execute(query.execution_options(yield_per=_PIECES_IN_MEMORY)).scalars()
        found = False
        try:
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(tempfile.TemporaryFile(dir=self._folder))
                for data in rows:
                    file.write(data)
                    found = True
                if not found:
                    raise StoreError(f"the content {sha256} is gone")
                file.seek(0)
                stack.pop_all()
                return file
        except OSError as e:
            raise StoreError(f"cannot use {self._folder}: {e.strerror or e}") from e

    def remove(self, connection: Connection, sha256: str) -> None:
        """Delete a content; idempotent."""
        connection.execute(delete(file_contents).where(file_contents.c.sha256 == sha256))

    def contents(self, connection: Connection) -> Iterator[str]:
        """Yield the names of all contents."""
        names = select(file_contents.c.sha256).where(file_contents.c.piece == 0)
        yield from connection.execute(names).scalars()

    def sweep_uploads(self) -> None:
        """Do what :meth:`BlobFolder.sweep_uploads` does."""
        self._uploads.sweep_uploads()
