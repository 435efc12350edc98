"""The database, SQLite in WAL mode or PostgreSQL: transactions and schema version."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, func, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.server.stores.errors import StoreError
from oxibonsai.server.stores.tables import OBJECTS, SCHEMA_VERSION, metadata, schema_version

_BUSY_SECONDS = 10
_CONNECTIONS = 16
_WRITERS = 8  # of PostgreSQL; SQLite has one


def _add_sizes(connection: Connection) -> None:
    for table in OBJECTS:
        if any(c["name"] == "body_size" for c in inspect(connection).get_columns(table.name)):
            continue  # version 2 had just added the table, which has all columns
        column = "body_size BIGINT DEFAULT 0 NOT NULL"
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column}"))
        # Bodies are ASCII.
        connection.execute(table.update().values(body_size=func.length(table.c.body)))
        (index,) = (i for i in table.indexes if i.name == f"ix_{table.name}_size")
        index.create(connection)


# Schema migrations by the version that they migrate to.
_MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {
    2: metadata.create_all,  # new tables only
    3: _add_sizes,
    4: metadata.create_all,
}


class Database:
    """Transactions on one database.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/name``.

    Attributes:
        name: The URL without its password.
        is_sqlite: Whether it is SQLite; else it is PostgreSQL.
        writing: Called for a context manager around each write.
        before_large_objects: Called before large objects are read; it may wait.

    Raises:
        RequestError: The URL is invalid, or its driver is not installed.
        UnsupportedError: A newer version wrote the database.
        FormatError: It is damaged, or not a database.
        StoreError: It can't be reached or opened.
    """

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        self.name = without_password(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self._writers = Permits(1 if self.is_sqlite else _WRITERS, self.name)
        self.writing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self.before_large_objects: Callable[[], None] = lambda: None
        if self.is_sqlite:
            self._engine = _sqlite_engine(parsed)
        else:
            self._engine = postgresql_engine(
                parsed, pool_size=_CONNECTIONS, max_overflow=0, pool_timeout=_BUSY_SECONDS,
                pool_pre_ping=True,
            )  # fmt: skip
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a read-only transaction."""
        with self._errors(), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a transaction that may write; committed at the end of the block, rolled back on errors."""
        with self.writing(), self.write_unnoted() as connection:
            yield connection

    @contextlib.contextmanager
    def write_unnoted(self) -> Iterator[Connection]:
        """Do what :meth:`write` does without the context manager of :attr:`writing`."""
        options = {"oxibonsai_write": True}
        with (
            self._writers.one(),
            self._errors(),
            self._engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield connection

    def lock(self, connection: Connection, name: str) -> None:
        """Lock ``name`` until the transaction ends; SQLite's write lock covers all names."""
        if not self.is_sqlite:
            digest = hashlib.sha256(name.encode()).digest()
            key = int.from_bytes(digest[:8], "big", signed=True)
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as e:
            reason = " ".join(str(getattr(e, "orig", None) or e).split())
            raise StoreError(f"the store {self.name} can't be used now: {reason}") from e

    def _open(self) -> None:
        try:
            with self.read() as connection:
                if "schema_version" in inspect(connection).get_table_names():
                    version = connection.execute(select(schema_version.c.version)).scalar()
                    if version == SCHEMA_VERSION:
                        return
            with self.write() as connection:
                self.lock(connection, "oxibonsai schema")
                self._migrate(connection)
        except StoreError as e:
            if "malformed" in str(e) or "not a database" in str(e):
                raise FormatError(
                    f"the store {self.name} is damaged: move it away and start again, or restore a "
                    f"copy ({e})"
                ) from e
            raise

    def _migrate(self, connection: Connection) -> None:
        if "schema_version" not in inspect(connection).get_table_names():
            metadata.create_all(connection)
            connection.execute(schema_version.insert().values(version=SCHEMA_VERSION))
            return
        version = connection.execute(select(schema_version.c.version)).scalar()
        if version is None or version > SCHEMA_VERSION:
            raise UnsupportedError(
                f"the store {self.name} has schema version {version}, and this oxibonsai "
                f"supports versions up to {SCHEMA_VERSION}: use the oxibonsai that wrote it, or "
                "name another --store"
            )
        for step in range(version + 1, SCHEMA_VERSION + 1):
            _MIGRATIONS[step](connection)
        connection.execute(schema_version.update().values(version=SCHEMA_VERSION))


def without_password(url: str) -> str:
    """Return a database URL for messages, without the password."""
    return _parse(url).render_as_string()


def postgresql_engine(url: URL | str, *, name: str = "oxibonsai", **options: Any) -> Engine:
    """Return an SQLAlchemy engine for PostgreSQL.

    Args:
        url: URL of the database.
        name: Application name under which PostgreSQL lists the connections.
        options: Options of ``create_engine``.

    Raises:
        RequestError: The driver is not installed.
    """
    connecting = {"connect_timeout": _BUSY_SECONDS, "application_name": name}
    try:
        return create_engine(url, connect_args=connecting, **options)
    except (NoSuchModuleError, ModuleNotFoundError) as e:
        raise RequestError(
            "--store names PostgreSQL: install its driver with pip install 'oxibonsai[postgres]'"
        ) from e


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as e:
        raise RequestError(f"--store {url.split('@')[-1]!r} is not a database URL") from e
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise RequestError(
            f"--store names the driver {parsed.drivername!r}: it is sqlite or postgresql+psycopg"
        )
    return parsed


def _sqlite_engine(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise RequestError("--store names no file: give sqlite:///path")
    try:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StoreError(f"cannot make the folder of the store {url.database}: {e.strerror}") from e
    engine = create_engine(
        url, pool_size=_CONNECTIONS, max_overflow=0, pool_timeout=_BUSY_SECONDS,
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        # sqlite3 would begin transactions late and deferred; they begin explicitly below.
        connection.isolation_level = None
        _turn_on_wal(connection)
        for pragma in ("synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("oxibonsai_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _turn_on_wal(connection: sqlite3.Connection) -> None:
    """Set WAL mode; retries, since SQLite fails at once if another connection does so too."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as e:
            if "locked" not in str(e) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


# Short enough that readiness probes are answered within 5 s.
PATIENCE_SECONDS = 3.0


class Permits:
    """Limits the writes of a process, so that a store that hangs does not block all its threads.

    Args:
        count: Number of concurrent writes.
        name: Name of the store, for error messages.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._changed = threading.Condition()
        self._begun: dict[object, float] = {}  # monotonic seconds, the oldest first

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a permit and hold it.

        Raises:
            StoreError: The current writes have taken longer than ``PATIENCE_SECONDS``.
        """
        me = object()
        with self._changed:
            while len(self._begun) >= self._count:
                rest = next(iter(self._begun.values())) + PATIENCE_SECONDS - time.monotonic()
                if rest <= 0:
                    raise StoreError(
                        f"the store {self._name} can't be used now: another write has waited for "
                        f"more than {PATIENCE_SECONDS:g} s"
                    )
                self._changed.wait(rest)
            self._begun[me] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._begun[me]
                self._changed.notify()
