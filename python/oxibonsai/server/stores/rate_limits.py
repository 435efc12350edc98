"""Token buckets in the database, for servers that share one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert

from oxibonsai.server.stores.database import Database
from oxibonsai.server.stores.tables import rate_limits


class SharedRateLimits:
    """Allows ``burst`` requests at once and ``rate`` per second, for each owner, over all servers.

    A bucket is one number, the time at which it will be full again: a token that is taken moves it by
    ``1 / rate``, and there is one as long as it is at most ``(burst - 1) / rate`` away. So a request
    costs one statement, and the clock is the database's.

    Args:
        database: A PostgreSQL database.
        rate: Tokens per second.
        burst: Capacity of a bucket in tokens.
    """

    def __init__(self, database: Database, rate: float, burst: int) -> None:
        self._database = database
        self._step = 1 / rate
        self._most = (burst - 1) / rate

    def take(self, owner: str) -> float:
        """Take a token.

        Returns:
            0 if there was one, else the seconds until there will be.

        Raises:
            StoreError: The database can't be used.
        """
        table, now = rate_limits, _now()
        begun = func.greatest(table.c.full_at, now)
        statement = insert(table).values(owner=bindparam("who"), full_at=now + self._step)
        statement = statement.on_conflict_do_update(
            index_elements=[table.c.owner],
            set_={"full_at": begun + self._step},
            where=begun - now <= self._most,
        )
        with self._database.write() as connection:
            taken = connection.execute(statement.returning(table.c.full_at), {"who": owner})
            if taken.first() is not None:
                return 0.0
            left = select(table.c.full_at - now - self._most).where(table.c.owner == owner)
            return max(float(connection.execute(left).scalar_one()), 0.001)


def _now() -> ColumnElement[Any]:
    """Return the database's clock, in seconds."""
    return func.extract("epoch", func.clock_timestamp())
