"""Ensures that only one server uses a PostgreSQL database, or only servers that share it."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
from collections.abc import Callable

from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import SQLAlchemyError

from oxibonsai.server.stores.database import postgresql_engine, without_password
from oxibonsai.server.stores.errors import StoreError

_log = logging.getLogger("oxibonsai.server")


def lock_key(name: bytes) -> int:
    """Return the number of an advisory lock, of 32 bits."""
    return int.from_bytes(hashlib.sha256(name).digest()[:4], "big")


KEY = lock_key(b"oxibonsai server")
_EVERY_SECONDS = 5.0
# PostgreSQL keeps the lock of an unreachable machine until keepalives fail.
_SETTINGS = ("tcp_keepalives_idle = 10", "tcp_keepalives_interval = 5", "tcp_keepalives_count = 3")
_HOLDER = text(
    "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype ="
    " 'advisory' AND classid = 0 AND objid = :key AND objsubid = 1 AND granted"
    " AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class DatabaseLock:
    """An advisory lock of a session, monitored by a thread; released when the process ends.

    Args:
        url: URL of a PostgreSQL database.
        port: Port of this server, for the error message of another server.
        on_lost: Called once if the connection broke and another server took the lock.

    Raises:
        StoreError: Another server uses the database, or it can't be reached.
    """

    def __init__(self, url: str, port: int, on_lost: Callable[[], None]) -> None:
        self._name = without_password(url)
        self._on_lost = on_lost
        who = f"oxibonsai on port {port}, process {os.getpid()} of {socket.gethostname()}"
        self._engine = postgresql_engine(
            url, name=who[:63], poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        self._closed = threading.Event()
        try:
            connection, holder = self._take()
        except SQLAlchemyError as e:
            raise self._unusable(e) from e
        if connection is None:
            raise StoreError(
                f"the store {self._name} is in use by {holder}: end that server, or give this one "
                "another database with --store"
            )
        self._connection: Connection | None = connection
        self._thread = threading.Thread(target=self._watch, name="store-lock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Release the lock."""
        self._closed.set()
        self._thread.join()

    def _take(self) -> tuple[Connection | None, str]:
        """Return the connection that holds the lock, or None and the name of the holder."""
        connection = self._engine.connect()
        try:
            for setting in _SETTINGS:
                connection.execute(text(f"SET {setting}"))
            if self._acquire(connection):
                return connection, ""
            holder = connection.execute(_HOLDER, {"key": KEY}).scalar()
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None, holder or "another server"

    @property
    def _every_seconds(self) -> float:
        """Between two beats."""
        return _EVERY_SECONDS

    def _acquire(self, connection: Connection) -> bool:
        """Take the lock; False if another server holds it."""
        taken = text("SELECT pg_try_advisory_lock(:key)")
        return bool(connection.execute(taken, {"key": KEY}).scalar_one())

    def _beat(self, connection: Connection) -> None:
        """Use the connection, so that its end is noticed."""
        connection.execute(text("SELECT 1"))

    def _unusable(self, error: SQLAlchemyError) -> StoreError:
        return StoreError(f"the store {self._name} can't be used now: {_reason(error)}")

    def _watch(self) -> None:
        while not self._closed.wait(self._every_seconds):
            try:
                if self._connection is not None:
                    self._beat(self._connection)
                    continue
                self._connection, holder = self._take()
            except SQLAlchemyError as e:
                if self._connection is not None:
                    _log.warning("the store %s: %s", self._name, _reason(e))
                    self._drop()
                continue
            if self._connection is None:
                _log.error("the lock of the store %s was taken by %s", self._name, holder)
                self._on_lost()
                return
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()


def _reason(error: SQLAlchemyError) -> str:
    return " ".join(str(getattr(error, "orig", None) or error).split())
