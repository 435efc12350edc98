"""The servers that share a PostgreSQL database: which of them live, and what one asks of another."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError

from oxibonsai.server.stores.database_lock import KEY, DatabaseLock, lock_key
from oxibonsai.server.stores.errors import StoreError
from oxibonsai.server.stores.tables import cancellations

_log = logging.getLogger("oxibonsai.server")

# Owner and id of an object.
Key = tuple[str, str]

_EVERY_SECONDS = 1.0
# A server that is missing at so many beats is gone. One whose connection broke notices it at its next
# beat and connects again at the one after that.
_MISSED_BEATS = 4
# Of the locks that say which servers live; positive, as the first of two numbers is an int4.
_MEMBERS = lock_key(b"oxibonsai members") >> 1
_ENTER = text("SELECT pg_advisory_lock(:members, :number)")
_LIVING = text(
    "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND classid = :members"
    " AND objsubid = 2 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@dataclass(frozen=True)
class PeerWork:
    """Work that a server does for the others.

    Attributes:
        cancel: Cancels the background task of an object, if this server runs it.
        sweep: Ends or goes on with the unfinished objects of servers other than the given ones; may
            raise StoreError.
    """

    cancel: Callable[[Key], object]
    sweep: Callable[[frozenset[int]], object]


class Peers(DatabaseLock):
    """This server among those that share a database.

    A server that lives holds an advisory lock of its number, which ends with its connection, however
    that ends: there is no heartbeat to tune, and no row to clean up. All of them hold the lock of the
    database as well, shared, so that no server that wants it for itself can use it.

    Args:
        url: URL of a PostgreSQL database.
        port: Port of this server, for messages.
        on_lost: Called once if the connection broke and a server that shares nothing took the database.

    Attributes:
        number: Of this server; objects that it works on carry it.

    Raises:
        StoreError: A server that shares nothing uses the database, or it can't be reached.
    """

    def __init__(self, url: str, port: int, on_lost: Callable[[], None]) -> None:
        self.number = secrets.randbelow(2**31)
        self._work: PeerWork | None = None
        self._seen: deque[frozenset[int]] = deque(maxlen=_MISSED_BEATS)  # living at the last beats
        self._known: frozenset[int] | None = None  # those whose objects no sweep has ended
        super().__init__(url, port, on_lost)

    def begin(self, work: PeerWork) -> None:
        """Set what to do for the others; once."""
        self._work = work

    def ask_to_cancel(self, server: int, key: Key) -> None:
        """Ask a server to cancel the background task of an object; it looks every second.

        Raises:
            StoreError: The database can't be used.
        """
        statement = insert(cancellations).values(server=server, owner=key[0], id=key[1])
        try:
            with self._engine.connect() as connection:
                connection.execute(statement.on_conflict_do_nothing())
        except SQLAlchemyError as e:
            raise self._unusable(e) from e

    @property
    def _every_seconds(self) -> float:
        return _EVERY_SECONDS

    def _acquire(self, connection: Connection) -> bool:
        shared = text("SELECT pg_try_advisory_lock_shared(:key)")
        if not connection.execute(shared, {"key": KEY}).scalar_one():
            return False
        connection.execute(_ENTER, {"members": _MEMBERS, "number": self.number})
        return True

    def _beat(self, connection: Connection) -> None:
        living = frozenset(connection.execute(_LIVING, {"members": _MEMBERS}).scalars())
        if self._work is None:
            return
        table = cancellations
        mine = delete(table).where(table.c.server == self.number)
        for owner, object_id in connection.execute(mine.returning(table.c.owner, table.c.id)):
            self._work.cancel((owner, object_id))
        self._sweep(connection, living, self._work)

    def _sweep(self, connection: Connection, living: frozenset[int], work: PeerWork) -> None:
        """Sweep when a server was missing for some beats, and once after the start."""
        self._seen.append(living)
        if len(self._seen) < _MISSED_BEATS:
            return
        lately = frozenset().union(*self._seen)
        if self._known is not None and self._known <= lately:
            self._known |= living
            return
        try:
            work.sweep(lately)
        except StoreError as e:
            _log.error("the work of servers that ended: %s", e)
            return
        table = cancellations
        connection.execute(delete(table).where(table.c.server.not_in(lately)))
        self._known = lately
