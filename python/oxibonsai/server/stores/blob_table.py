"""Contents of files in the database, for servers that share one and no folder."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, delete, insert, select

from oxibonsai.server.stores.blobs import BlobFolder, Upload
from oxibonsai.server.stores.errors import StoreError
from oxibonsai.server.stores.tables import file_contents

_PIECE = 2**20
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
        """As :meth:`BlobFolder.receive`."""
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
        """As :meth:`BlobFolder.sweep_uploads`."""
        self._uploads.sweep_uploads()
