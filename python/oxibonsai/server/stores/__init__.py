"""Storage of responses, conversations, chat completions, batches, assistants, threads and files."""

from oxibonsai.server.stores.collection import Collection, Object, Page
from oxibonsai.server.stores.errors import NoSuchObjectError, StoreError, TooLargeError
from oxibonsai.server.stores.files import FileStore
from oxibonsai.server.stores.store import Store

__all__ = [
    "Collection",
    "FileStore",
    "NoSuchObjectError",
    "Object",
    "Page",
    "Store",
    "StoreError",
    "TooLargeError",
]
