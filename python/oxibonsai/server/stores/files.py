"""Uploaded files: metadata in the database, contents there or in a folder."""

from __future__ import annotations

import contextlib
import time
from typing import IO

from sqlalchemy import Connection, func, select

from oxibonsai.server.stores.blobs import Blobs
from oxibonsai.server.stores.collection import Collection, Object
from oxibonsai.server.stores.database import Database
from oxibonsai.server.stores.errors import NoSuchObjectError, TooLargeError
from oxibonsai.server.stores.tables import files


class FileStore(Collection):
    """Files, with their contents.

    Args:
        database: Holds the metadata.
        blobs: Holds the contents.
        max_file_bytes: Size limit of one file.
        max_total_bytes: Size limit of all files of an owner.
    """

    def __init__(
        self, database: Database, blobs: Blobs, max_file_bytes: int, max_total_bytes: int
    ) -> None:
        super().__init__(database, files, "file-", "file")
        self._blobs = blobs
        self._max_file_bytes = max_file_bytes
        self._max_total_bytes = max_total_bytes

    def upload(self, owner: str, body: Object, source: IO[bytes]) -> Object:
        """Store a file; metadata and content are durable when this returns.

        Args:
            owner: Its owner.
            body: The file object; ``bytes`` is filled in.
            source: The content.

        Raises:
            TooLargeError: The file, or all files of the owner, are too large.
            StoreError: The disk is full or not writable.
        """
        with (
            self._database.writing(),
            self._blobs.receive(source, self._max_file_bytes) as upload,
            self._database.write() as connection,
        ):
            self._database.lock(connection, f"files of {owner}")
            if self._total(connection, owner) + upload.size > self._max_total_bytes:
                raise TooLargeError(f"all files together exceed {self._max_total_bytes} bytes")
            self._database.lock(connection, upload.sha256)
            # Before the object, so that an object always has its content.
            self._blobs.keep(connection, upload)
            return self.create_in(
                connection, owner, {**body, "bytes": upload.size},
                sha256=upload.sha256, size=upload.size,
            )  # fmt: skip

    def open(self, owner: str, file_id: str) -> IO[bytes]:
        """Return a file's content.

        Raises:
            NoSuchObjectError: The owner has no such file.
        """
        with self._database.read() as connection:
            row = self._row(connection, files.c.sha256, owner, file_id)
            if row is None:
                raise NoSuchObjectError("file", file_id)
            # Within the transaction, so that SQLite allows no delete in between; with PostgreSQL the
            # content may be gone, as it would be a moment later.
            return self._blobs.open(connection, row.sha256)

    def delete(self, owner: str, object_id: str, *, parent: str | None = None) -> None:
        """Delete the object, and its content if no other object refers to it."""
        with self._database.read() as connection:
            row = self._row(connection, files.c.sha256, owner, object_id)
        super().delete(owner, object_id)
        # The content last: a process that dies in between leaves an orphaned content, never an
        # object without one.
        self._drop_content(row.sha256)

    def sweep(self) -> None:
        """Delete expired files, and orphaned contents left by processes that died."""
        for owner, file in self.search('"expires_at":'):
            if is_expired(file):
                # A request may have deleted it already.
                with contextlib.suppress(NoSuchObjectError):
                    self.delete(owner, file["id"])
        self._blobs.sweep_uploads()
        with self._database.read() as connection:
            used = set(connection.execute(select(files.c.sha256).distinct()).scalars())
            kept = set(self._blobs.contents(connection))
        # `used` may miss a new file; _drop_content checks again under a lock.
        for sha256 in kept - used:
            self._drop_content(sha256)

    def _drop_content(self, sha256: str) -> None:
        with self._database.write() as connection:
            self._database.lock(connection, sha256)
            users = select(files.c.seq).where(files.c.sha256 == sha256).limit(1)
            if connection.execute(users).first() is None:
                self._blobs.remove(connection, sha256)

    def _total(self, connection: Connection, owner: str) -> int:
        query = select(func.coalesce(func.sum(files.c.size), 0)).where(files.c.owner == owner)
        return int(connection.execute(query).scalar_one())


def is_expired(file: Object) -> bool:
    """Return whether a file has expired and must be treated as deleted."""
    return file.get("expires_at") is not None and file["expires_at"] <= time.time()
