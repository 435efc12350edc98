"""What can go wrong with stored objects."""

from __future__ import annotations

from oxibonsai.errors import CapacityError


class StoreError(CapacityError):
    """The database or the folder can't be used now: locked, full, read-only, gone."""


class NoSuchObjectError(LookupError):
    """No object of this id for this owner: unknown, deleted, or another owner's."""

    def __init__(self, kind: str, object_id: str) -> None:
        super().__init__(f"no {kind} {object_id[:80]!r}")
        self.kind = kind
        self.object_id = object_id


class TooLargeError(ValueError):
    """A file, or all files of an owner together, beyond the limit."""
