"""Errors of the store."""

from __future__ import annotations

from oxibonsai.errors import CapacityError


class StoreError(CapacityError):
    """The database or the folder is not usable now: locked, full, read-only or unreachable."""


class NoSuchObjectError(LookupError):
    """The owner has no object with this id: unknown, deleted, or another owner's."""

    def __init__(self, kind: str, object_id: str) -> None:
        super().__init__(f"no {kind} {object_id[:80]!r}")
        self.kind = kind
        self.object_id = object_id


class TooLargeError(ValueError):
    """A file, or all files or objects of an owner together, exceed the limit."""
