"""Token buckets and daily budgets in the database, which outlive the server."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite

from oxibonsai.server.rate_limit import Balance, Rate
from oxibonsai.server.stores.database import Database
from oxibonsai.server.stores.tables import rate_limits, token_budgets


class StoredRateLimits:
    """Buckets in a database, those of all servers that share it.

    They are what :class:`~oxibonsai.server.rate_limit.RateLimiter` has in memory. Each call costs one
    statement, and the clock is the database's.

    Args:
        database: A PostgreSQL database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, name: str, rate: Rate, tokens: float = 1) -> Balance:
        """See :class:`~oxibonsai.server.rate_limit.Buckets`.

        Raises:
            StoreError: The database can't be used.
        """
        assert rate.capacity is not None
        most = (rate.capacity - tokens) / rate.per_second
        with self._database.write() as connection:
            until_full = self._move(connection, name, tokens / rate.per_second, most)
            if until_full is not None:
                return Balance.of(rate, until_full)
            until_full = self._until_full(connection, name)
            return Balance.of(rate, until_full, max(until_full - most, 0.001))

    def charge(self, name: str, rate: Rate, tokens: float) -> Balance:
        """See :class:`~oxibonsai.server.rate_limit.Buckets`.

        Raises:
            StoreError: The database can't be used.
        """
        with self._database.write() as connection:
            until_full = self._move(connection, name, tokens / rate.per_second, None)
            assert until_full is not None
            return Balance.of(rate, until_full)

    def look(self, name: str, rate: Rate) -> Balance:
        """See :class:`~oxibonsai.server.rate_limit.Buckets`.

        Raises:
            StoreError: The database can't be used.
        """
        with self._database.read() as connection:
            return Balance.of(rate, self._until_full(connection, name))

    def _move(
        self, connection: Connection, name: str, seconds: float, most: float | None
    ) -> float | None:
        """Let a bucket be full later; return after how many seconds.

        Args:
            connection: In a transaction.
            name: Of the bucket.
            seconds: How much later.
            most: Nothing is changed, and the result is None, where it is full only later than after
                so many seconds; None: whenever it is.
        """
        table, now = rate_limits, _now()
        begun = func.greatest(table.c.full_at, now)
        statement = postgresql.insert(table).values(owner=bindparam("who"), full_at=now + seconds)
        statement = statement.on_conflict_do_update(
            index_elements=[table.c.owner],
            set_={"full_at": begun + seconds},
            where=None if most is None else begun - now <= most,
        )
        taken = connection.execute(statement.returning(table.c.full_at - now), {"who": name})
        until_full = taken.scalar_one_or_none()
        return None if until_full is None else float(until_full)

    def _until_full(self, connection: Connection, name: str) -> float:
        until_full = select(rate_limits.c.full_at - _now()).where(rate_limits.c.owner == name)
        return float(connection.execute(until_full).scalar_one_or_none() or 0.0)


class StoredBudgets:
    """Tokens that callers have used on a day, in SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, name: str, day: int, tokens: int, most: int) -> bool:
        """See :class:`~oxibonsai.server.rate_limit.Budgets`.

        Raises:
            StoreError: The database can't be used.
        """
        return tokens <= most and self._add(name, day, tokens, most)

    def charge(self, name: str, day: int, tokens: int) -> None:
        """See :class:`~oxibonsai.server.rate_limit.Budgets`.

        Raises:
            StoreError: The database can't be used.
        """
        self._add(name, day, tokens, None)

    def _add(self, name: str, day: int, tokens: int, most: int | None) -> bool:
        table = token_budgets
        used = table.c.used + tokens
        # The two dialects' statements have the same methods.
        make: Any = sqlite.insert if self._database.is_sqlite else postgresql.insert
        statement = make(table).values(owner=name, day=day, used=tokens)
        statement = statement.on_conflict_do_update(
            index_elements=[table.c.owner, table.c.day],
            set_={"used": used},
            where=None if most is None else used <= most,
        )
        with self._database.write() as connection:
            added = connection.execute(statement.returning(table.c.used))
            return added.scalar_one_or_none() is not None


def _now() -> ColumnElement[Any]:
    """Return the database's clock, in seconds."""
    return func.extract("epoch", func.clock_timestamp())
