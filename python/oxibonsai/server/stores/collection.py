"""A collection of objects of one kind; each object is visible to its owner only."""

from __future__ import annotations

import builtins
import contextlib
import json
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Column, Connection, Select, Table, delete, insert, select, update

from oxibonsai.errors import RequestError
from oxibonsai.server.stores.database import Database
from oxibonsai.server.stores.errors import NoSuchObjectError

Object = dict[str, Any]
Order = Literal["asc", "desc"]

MAX_PAGE = 100
# A page that has reached this size ends; it has one object at least.
_PAGE_BYTES = 4 * 2**20
# A larger object, or page, is read when its request has the turn of large ones.
_LARGE_BYTES = 2**20
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,80}")
# Looked up in place of an invalid id, so that both take the same time.
_NO_ID = "-"


@dataclass(frozen=True)
class Page:
    """A page of a list, in the format of OpenAI's list routes."""

    data: list[Object]
    has_more: bool

    def to_json(self) -> Object:
        """Return the list object."""
        ids = [item["id"] for item in self.data]
        first, last = (ids[0], ids[-1]) if ids else (None, None)
        return {
            "object": "list",
            "data": self.data,
            "first_id": first,
            "last_id": last,
            "has_more": self.has_more,
        }


def new_id(prefix: str) -> str:
    """Return an id that can't be guessed: 144 random bits."""
    return prefix + secrets.token_hex(18)


class Collection:
    """Creates, reads, changes, deletes and lists objects.

    Args:
        database: The database.
        table: The objects' table.
        prefix: Prefix of new ids.
        noun: Name of the kind in error messages.
    """

    def __init__(self, database: Database, table: Table, prefix: str, noun: str) -> None:
        self._database = database
        self.table = table
        self._prefix = prefix
        self._noun = noun

    def create(self, owner: str, body: Object, *, parent: str | None = None) -> Object:
        """Store a new object; it is durable when this returns.

        Args:
            owner: Its owner.
            body: The object; an ``id`` is generated if it has none.
            parent: Id of the object that it belongs to.

        Raises:
            NoSuchObjectError: The parent does not exist.
            RequestError: The id exists already or is malformed.
        """
        with self._database.write() as connection:
            return self.create_in(connection, owner, body, parent=parent)

    def create_in(
        self, connection: Connection, owner: str, body: Object, *, parent: str | None = None,
        **columns: Any,
    ) -> Object:  # fmt: skip
        """Do what :meth:`create` does within an existing transaction."""
        object_id = body.get("id") or new_id(self._prefix)
        if not isinstance(object_id, str) or not _ID.fullmatch(object_id):
            raise RequestError(f"{object_id!r} can't be the id of a {self._noun}")
        body = {"id": object_id, **body}
        if parent is not None:
            self._check_parent(connection, owner, parent)
            columns["parent"] = parent
        if self._row(connection, self.table.c.seq, owner, object_id) is not None:
            raise RequestError(f"there is a {self._noun} {object_id!r} already")
        values = {"owner": owner, "id": object_id, "created": time.time()}
        connection.execute(insert(self.table).values(**values, **_stored(body), **columns))
        return body

    def create_all(
        self, owner: str, bodies: Iterable[Object], *, parent: str
    ) -> builtins.list[Object]:
        """Store new children of an object, all of them or none.

        Args:
            owner: Their owner.
            bodies: The objects; an ``id`` is generated where there is none. Ids that clients chose
                may exist already and don't belong here.
            parent: Id of the object that they belong to.

        Raises:
            NoSuchObjectError: The parent does not exist.
        """
        whole = [{"id": new_id(self._prefix), **body} for body in bodies]
        shared = {"owner": owner, "parent": parent, "created": time.time()}
        rows = [{**shared, "id": body["id"], **_stored(body)} for body in whole]
        with self._database.write() as connection:
            self._check_parent(connection, owner, parent)
            if rows:
                connection.execute(insert(self.table), rows)
        return whole

    def delete_all(self, owner: str, *, parent: str) -> None:
        """Delete all children of an object."""
        with self._database.write() as connection:
            rows = delete(self.table).where(
                self.table.c.owner == owner, self.table.c.parent == parent
            )
            connection.execute(rows)

    def get(self, owner: str, object_id: str, *, parent: str | None = None) -> Object:
        """Return the object.

        Raises:
            NoSuchObjectError: The owner has no object with that id (in ``parent``, if given).
        """
        size = self.table.c.body_size
        with self._database.read() as connection:
            row = self._row(connection, size, owner, object_id, parent)
            if row is None or row.body_size <= _LARGE_BYTES:
                return self._load(connection, owner, object_id, parent)
        self._database.before_large_objects()
        with self._database.read() as connection:
            return self._load(connection, owner, object_id, parent)

    def change(
        self,
        owner: str,
        object_id: str,
        edit: Callable[[Object], Object],
        *,
        parent: str | None = None,
    ) -> Object:
        """Replace the object by ``edit(object)`` atomically.

        Raises:
            NoSuchObjectError: As :meth:`get`. If ``edit`` raises, the object is unchanged.
        """
        with self._database.write() as connection:
            body = edit(self._load(connection, owner, object_id, parent, lock=True))
            body = {**body, "id": object_id}
            rows = update(self.table).where(*self._is(owner, object_id))
            connection.execute(rows.values(**_stored(body)))
            return body

    def delete(self, owner: str, object_id: str, *, parent: str | None = None) -> None:
        """Delete the object and its children.

        Raises:
            NoSuchObjectError: As :meth:`get`.
        """
        with self._database.write() as connection:
            self._load(connection, owner, object_id, parent, lock=True)
            connection.execute(delete(self.table).where(*self._is(owner, object_id)))

    def list(
        self,
        owner: str,
        *,
        parent: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
        keep: Callable[[Object], bool] | None = None,
    ) -> Page:
        """Return a page of objects in the order of their creation.

        Args:
            owner: The owner of the objects.
            parent: List only the children of this object.
            after: Start after the object with this id, in the requested order.
            before: End before the object with this id; the objects closest to it are returned.
            limit: 1 to 100. A page has fewer objects where they are large together.
            order: ``"desc"``: newest first.
            keep: A filter; only objects for which it returns True are listed.

        Raises:
            NoSuchObjectError: The parent does not exist.
            RequestError: A limit out of range, or a cursor that is not an object of this list.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise RequestError(f"limit is {limit}; it is 1 to {MAX_PAGE}", param="limit")
        seq = self.table.c.seq
        query = select(seq, self.table.c.body_size).where(self.table.c.owner == owner)
        ascending = order == "asc"
        with self._database.read() as connection:
            if parent is not None:
                self._check_parent(connection, owner, parent)
                query = query.where(self.table.c.parent == parent)
            for cursor, behind in ((after, True), (before, False)):
                if cursor is not None:
                    at = self._position(connection, owner, parent, cursor)
                    query = query.where(seq > at if behind == ascending else seq < at)
        # With `before` alone the page ends at the cursor, so it is read backwards.
        backwards = before is not None and after is None
        page: list[Object] = []
        total, more = 0, False
        ahead = limit + 1 if keep is None else MAX_PAGE
        for body, size in self._bodies(query, ascending=ascending != backwards, ahead=ahead):
            if keep is not None and not keep(body):
                continue
            if more := len(page) == limit or (total > 0 and total + size > _PAGE_BYTES):
                break
            page.append(body)
            total += size
            if total > _LARGE_BYTES:
                self._database.before_large_objects()
        return Page(page[::-1] if backwards else page, more)

    def _bodies(
        self, query: Select[tuple[int, int]], *, ascending: bool, ahead: int
    ) -> Iterator[tuple[Object, int]]:
        """Yield objects and their sizes, a few at a time; no connection is held in between.

        Args:
            query: Chooses their ``seq`` and ``body_size``.
            ascending: The order.
            ahead: How many are read ahead where they are small.
        """
        seq, body = self.table.c.seq, self.table.c.body
        by_seq = seq.asc() if ascending else seq.desc()
        rest: Select[tuple[int, int]] = query
        more = True
        while more:
            sizes: dict[int, int] = {}
            total, more = 0, False
            with self._database.read() as connection:
                for row in connection.execute(rest.order_by(by_seq).limit(ahead)):
                    if sizes and total + row.body_size > _LARGE_BYTES:
                        more = True
                        break
                    sizes[row.seq] = row.body_size
                    total += row.body_size
            if not sizes:
                return
            if total > _LARGE_BYTES:
                self._database.before_large_objects()
            chosen = select(seq, body).where(seq.in_(list(sizes))).order_by(by_seq)
            with self._database.read() as connection:
                bodies = deque(tuple(row) for row in connection.execute(chosen))
            while bodies:
                at, text = bodies.popleft()
                yield json.loads(text), sizes[at]
            more = more or len(sizes) == ahead
            last = next(reversed(sizes))
            rest = query.where(seq > last if ascending else seq < last)

    def search(self, text: str) -> Iterator[tuple[str, Object]]:
        """Yield the objects of all owners whose stored JSON contains ``text``, with their owners."""
        query = select(self.table.c.owner, self.table.c.id)
        query = query.where(self.table.c.body.contains(text, autoescape=True))
        with self._database.read() as connection:
            found = list(connection.execute(query.order_by(self.table.c.seq)))
        for owner, object_id in found:
            with contextlib.suppress(NoSuchObjectError):  # it was deleted
                yield owner, self.get(owner, object_id)

    def _check_parent(self, connection: Connection, owner: str, parent: str) -> None:
        (key, *_) = self.table.foreign_keys
        table = key.column.table
        object_id = parent if _ID.fullmatch(parent) else _NO_ID
        found = select(table.c.seq).where(table.c.owner == owner, table.c.id == object_id)
        if connection.execute(found).first() is None:
            raise NoSuchObjectError(table.name.removesuffix("s"), parent)

    def _position(self, connection: Connection, owner: str, parent: str | None, cursor: str) -> int:
        row = self._row(connection, self.table.c.seq, owner, cursor, parent)
        if row is None:
            raise RequestError(f"the cursor {cursor[:80]!r} is not in this list")
        return int(row.seq)

    def _load(
        self,
        connection: Connection,
        owner: str,
        object_id: str,
        parent: str | None,
        *,
        lock: bool = False,
    ) -> Object:
        row = self._row(connection, self.table.c.body, owner, object_id, parent, lock=lock)
        if row is None:
            raise NoSuchObjectError(self._noun, object_id)
        body: Object = json.loads(row.body)
        return body

    def _row(
        self,
        connection: Connection,
        column: Column[Any],
        owner: str,
        object_id: str,
        parent: str | None = None,
        *,
        lock: bool = False,
    ) -> Any:
        query = select(column).where(*self._is(owner, object_id))
        if parent is not None:
            query = query.where(self.table.c.parent == parent)
        return connection.execute(query.with_for_update() if lock else query).first()

    def _is(self, owner: str, object_id: str) -> tuple[Any, Any]:
        known = object_id if _ID.fullmatch(object_id) else _NO_ID
        return self.table.c.owner == owner, self.table.c.id == known


def _stored(body: Object) -> dict[str, Any]:
    """Return the columns of an object's body."""
    # ASCII, since databases reject some characters (PostgreSQL has no NUL).
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    return {"body": text, "body_size": len(text)}
