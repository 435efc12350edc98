"""Pagination of list routes: ``limit``, ``order``, ``after``, ``before``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from flask import request

from oxibonsai.server.errors import ApiError
from oxibonsai.server.schemas.fields import Fields
from oxibonsai.server.stores import Collection, Object, Page
from oxibonsai.server.stores.collection import MAX_PAGE, Order
from oxibonsai.server.validation import as_body


class PageQuery(Fields):
    """The query parameters of list routes."""

    limit: int = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    before: str | None = None


def page_query(
    *, most: int = MAX_PAGE, default: int = 20, order: Literal["asc", "desc"] = "desc"
) -> PageQuery:
    """Return the pagination parameters of the current request.

    Args:
        most: The highest limit.
        default: The limit if the request has none.
        order: The order if the request has none.

    Raises:
        ApiError: 400 for a limit outside 1 to ``most`` or an unknown order.
    """
    given: dict[str, object] = {k: v for k, v in request.args.items() if v != ""}
    limit = str(given.pop("limit", default))
    number = int(limit) if limit.isdecimal() and len(limit) < 10 else -1
    if not 1 <= number <= most:
        raise ApiError(400, f"limit is {limit[:20]}; it is 1 to {most}", param="limit")
    return as_body(PageQuery, {"order": order, **given, "limit": number})


def list_page(
    collection: Collection,
    owner: str,
    query: PageQuery,
    *,
    parent: str | None = None,
    keep: Callable[[Object], bool] | None = None,
) -> Page:
    """Return the requested page of a collection; it may span several pages of the store.

    It has fewer objects than requested where they are large.
    """
    found: list[Object] = []
    after = query.after
    while True:
        most = min(MAX_PAGE, query.limit - len(found))
        page = collection.list(
            owner, parent=parent, after=after, before=query.before, order=query.order, keep=keep,
            limit=most,
        )  # fmt: skip
        found += page.data
        full = len(page.data) < most or len(found) >= query.limit
        # Pages before a cursor are read backwards, so they can't be joined.
        if not page.has_more or full or query.before is not None:
            return Page(found, page.has_more)
        after = page.data[-1]["id"]


def item_page(items: Sequence[Object], query: PageQuery) -> Page:
    """Return the requested page of a list in memory, which is in ascending order.

    Raises:
        ApiError: 400 if a cursor is not an item of the list.
    """
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    ids = [item["id"] for item in ordered]
    for name, cursor in (("after", query.after), ("before", query.before)):
        if cursor is not None and cursor not in ids:
            raise ApiError(
                400, f"the cursor '{cursor[:80]}' is not an item of this list", param=name
            )
    start = 0 if query.after is None else ids.index(query.after) + 1
    end = len(ids) if query.before is None else ids.index(query.before)
    if query.before is not None and query.after is None:
        start = max(0, end - query.limit)
        return Page(ordered[start:end], start > 0)
    part = ordered[start:end]
    return Page(part[: query.limit], len(part) > query.limit)


def json_size(value: Object) -> int:
    """Return how many bytes an object takes as JSON in a store."""
    return len(json.dumps(value, separators=(",", ":")))


def all_of(
    collection: Collection,
    owner: str,
    parent: str,
    *,
    order: Order = "asc",
    keep: Callable[[Object], bool] | None = None,
) -> Iterator[Object]:
    """Yield all children of an object, a page at a time; the oldest first, unless ``order`` says else.

    Raises:
        NoSuchObjectError: The parent does not exist.
    """
    after: str | None = None
    while True:
        page = collection.list(
            owner, parent=parent, after=after, order=order, keep=keep, limit=MAX_PAGE
        )
        yield from page.data
        if not page.has_more:
            return
        after = page.data[-1]["id"]
