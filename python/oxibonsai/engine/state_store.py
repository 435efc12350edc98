"""Computed state beside a device's pools: in host memory within a budget, then on disk within another."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from oxibonsai.engine.state_file import StateFormat
from oxibonsai.errors import FormatError

_log = logging.getLogger(__name__)

_FORMAT = StateFormat(b"OXISTATE", 1, "state of a prefix cache")
_SUFFIX = ".state"


class StateKey(NamedTuple):
    """Names an entry of a store.

    Attributes:
        kind: ``page``: the keys and values of 64 positions; ``snapshot``: the recurrent state at any
            position, and the page that is partly written there; ``draft``: the same of a layer that drafts.
        kv_type: Of the keys and values; empty where the model has none.
        digest: Hash of all tokens up to there.
    """

    kind: str
    kv_type: str
    digest: bytes

    @property
    def file_name(self) -> str:
        """Return the name of its file."""
        return f"{self.kind}-{self.kv_type}-{self.digest.hex()}{_SUFFIX}"


@dataclass(frozen=True)
class Entry:
    """The value that a store keeps under a key.

    Attributes:
        parts: Its bytes.
        parent: Of a snapshot: the hash of the full pages before it.
        length: Of a snapshot: how many tokens follow these.
    """

    parts: tuple[bytes, ...]
    parent: bytes = b""
    length: int = 0

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(map(len, self.parts))


@dataclass
class StoreCounts:
    """Counts of a store's work since its start.

    Attributes:
        hits: Snapshots that a prompt was continued from.
        spilled_bytes: Bytes written to disk.
        restored_bytes: Bytes read from disk.
        dropped: Entries that no budget had room for.
    """

    hits: int = 0
    spilled_bytes: int = 0
    restored_bytes: int = 0
    dropped: int = 0


class StateStore:
    """Keeps pages and snapshots by their tokens; the least recently used go to disk first, then away.

    Calls may come from any thread: the engines of one model share a store.

    Args:
        ram_bytes: Host memory that the entries may take.
        snapshots: Snapshots in host memory at most.
        folder: Where entries go that memory has no room for; None: nowhere.
    """

    def __init__(self, ram_bytes: int, snapshots: int, folder: StateFolder | None = None) -> None:
        self.ram_limit = ram_bytes
        self.folder = folder
        self.counts = StoreCounts()
        self._most_snapshots = snapshots
        self._entries: OrderedDict[StateKey, Entry] = OrderedDict()  # oldest first
        self._used = self._snapshots = 0
        # Of the snapshots in memory and on disk: the run of full pages before each, and their lengths.
        self._parents: dict[StateKey, bytes] = {}
        self._lengths: dict[tuple[str, bytes], dict[StateKey, int]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="oxibonsai-state")
        self._writing: tuple[StateKey, Entry, Future[bool]] | None = None
        self._lock = threading.RLock()
        if folder is not None:
            for key, entry in folder.snapshots():
                self._note(key, entry)

    @property
    def num_snapshots(self) -> int:
        """Snapshots in host memory."""
        return self._snapshots

    @property
    def used_bytes(self) -> int:
        """Bytes of all entries in host memory."""
        return self._used

    @property
    def most_bytes(self) -> int:
        """Host memory that the entries may take; what they take now where there is no limit."""
        return self._used if self.ram_limit == sys.maxsize else self.ram_limit

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the snapshots among them."""
        with self._lock:
            return sum(e.size for k, e in self._entries.items() if k.kind == "snapshot")

    @property
    def disk_bytes(self) -> int:
        """Bytes of all entries on disk."""
        return 0 if self.folder is None else self.folder.used_bytes

    def __contains__(self, key: StateKey) -> bool:
        """Return whether there is such an entry, in memory or on disk."""
        with self._lock:
            return (
                key in self._entries
                or (self._writing is not None and self._writing[0] == key)
                or (self.folder is not None and key in self.folder)
            )

    def lengths(self, kv_type: str, parent: bytes) -> list[int]:
        """Return the lengths of the snapshots behind a run of full pages, the longest first."""
        with self._lock:
            known = self._lengths.get((kv_type, parent), {})
            for key in [k for k in known if k not in self]:  # no room was left on disk
                self._unnote(key)
            return sorted(set(known.values()), reverse=True)

    def put(self, key: StateKey, entry: Entry) -> None:
        """Keep an entry, which is now the most recently used."""
        with self._lock:
            if self.touch(key):
                return
            if key.kind == "snapshot":
                self._note(key, entry)
            if entry.size > self.ram_limit:
                self._spill(key, entry)
                return
            self._entries[key] = entry
            self._used += entry.size
            self._snapshots += key.kind == "snapshot"
            self._shrink()

    def touch(self, key: StateKey) -> bool:
        """Make an entry the most recently used; return whether there is one."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return key in self

    def get(self, key: StateKey) -> Entry | None:
        """Return an entry; None where there is none, or its file is damaged.

        A snapshot is now the most recently used. A page is not: it goes back to a pool.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                if key.kind == "snapshot":
                    self._entries.move_to_end(key)
                return entry
            if self._writing is not None and self._writing[0] == key:
                return self._writing[1]
            if self.folder is None or key not in self.folder:
                return None
            entry = self.folder.read(key)
            if entry is None:
                self._unnote(key)
                return None
            self.counts.restored_bytes += entry.size
            return entry

    def drop(self, key: StateKey) -> bool:
        """Drop an entry from memory and from disk; return whether there was one."""
        with self._lock:
            self._wait()
            found = key in self
            if (entry := self._entries.pop(key, None)) is not None:
                self._forget(key, entry)
            if self.folder is not None:
                self.folder.drop(key)
            self._unnote(key)
            return found

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            keys = list(self._entries)
            keys += [] if self.folder is None else self.folder.keys()
            for key in keys:
                self.drop(key)

    def flush(self) -> None:
        """Move everything from memory to disk, as far as it has room; the most recently used stays."""
        with self._lock:
            self._wait()
            entries = list(self._entries.items())
            self._entries.clear()
            self._used = self._snapshots = 0
            room = 0 if self.folder is None else self.folder.limit_bytes
            fitting = []
            for key, entry in reversed(entries):
                room -= entry.size
                if room < 0:
                    break
                fitting.append((key, entry))
            for key, entry in reversed(fitting):
                self._spill(key, entry)
            self._wait()
            for key, _ in entries[: len(entries) - len(fitting)]:
                self._lose(key)

    def _shrink(self) -> None:
        """Bring the entries in memory within their budgets."""
        while self._used > self.ram_limit or self._snapshots > self._most_snapshots:
            kinds = ("snapshot",) if self._used <= self.ram_limit else ("snapshot", "page")
            key = next(k for k in self._entries if k.kind in kinds)
            entry = self._entries.pop(key)
            self._forget(key, entry)
            self._spill(key, entry)

    def _spill(self, key: StateKey, entry: Entry) -> None:
        """Write an entry to disk beside what else is done; one at a time, so that memory is bounded."""
        self._wait()
        if self.folder is None:
            self._lose(key)
        elif key in self.folder:
            self.folder.touch(key)
        else:
            done = self._writer.submit(self.folder.write, key, entry)
            self._writing = (key, entry, done)

    def _wait(self) -> None:
        """Wait for the file that is being written."""
        if self._writing is None:
            return
        key, entry, done = self._writing
        self._writing = None
        if done.result():
            self.counts.spilled_bytes += entry.size
        else:
            self._lose(key)

    def _lose(self, key: StateKey) -> None:
        if key not in self:
            self.counts.dropped += 1
            self._unnote(key)

    def _forget(self, key: StateKey, entry: Entry) -> None:
        self._used -= entry.size
        self._snapshots -= key.kind == "snapshot"

    def _note(self, key: StateKey, entry: Entry) -> None:
        self._parents[key] = entry.parent
        self._lengths.setdefault((key.kv_type, entry.parent), {})[key] = entry.length

    def _unnote(self, key: StateKey) -> None:
        if key in self._parents:
            place = (key.kv_type, self._parents.pop(key))
            del self._lengths[place][key]
            if not self._lengths[place]:
                del self._lengths[place]


class StateFolder:
    """Entries on disk, a file each; the least recently used go first.

    Whatever does not fit its hash, its name or the model is ignored with a line in the log.

    Args:
        folder: Of the entries of all models; made when it is first needed.
        model: What the state depends on: see :meth:`oxibonsai.models.Model.fingerprint`.
        limit_bytes: For the files of all models.
    """

    def __init__(self, folder: Path, model: str, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._model = model
        self._own = folder / hashlib.blake2b(model.encode(), digest_size=16).hexdigest()
        self._sizes: OrderedDict[Path, int] = OrderedDict()  # oldest first
        self._headers: dict[StateKey, Entry] = {}  # without their bytes
        self._lock = threading.Lock()
        self.used_bytes = 0
        for _, size, path in sorted(_files(folder)):
            self._add(path, size)
            if path.parent == self._own and path.suffix == _SUFFIX:
                try:
                    key, entry, _ = self._checked(path, _FORMAT.read_header(path))
                except (OSError, FormatError) as e:
                    _log.warning("ignored in the prefix cache: %s", e)
                else:
                    self._headers[key] = entry

    def __contains__(self, key: StateKey) -> bool:
        """Return whether there is a file of this name, whatever is in it."""
        return key in self._headers

    def keys(self) -> list[StateKey]:
        """Return all keys of this model."""
        return list(self._headers)

    def snapshots(self) -> Iterator[tuple[StateKey, Entry]]:
        """Yield the snapshots of this model, without their bytes."""
        for key, entry in list(self._headers.items()):
            if key.kind == "snapshot":
                yield key, entry

    def touch(self, key: StateKey) -> None:
        """Make an entry the most recently used."""
        path = self._own / key.file_name
        with suppress(OSError), self._lock:
            os.utime(path)
            self._sizes.move_to_end(path)

    def read(self, key: StateKey) -> Entry | None:
        """Return an entry, which is now the most recently used; None where its file is no good."""
        path = self._own / key.file_name
        try:
            header, data = _FORMAT.read(path)
            _, entry, sizes = self._checked(path, header)
            if sum(sizes) != len(data):
                raise FormatError(f"{path} has {len(data)} bytes, not those of its header")
            parts = []
            for size in sizes:
                parts.append(bytes(data[:size]))
                data = data[size:]
        except (OSError, FormatError) as e:
            _log.warning("ignored in the prefix cache: %s", e)
            self.drop(key)
            return None
        self.touch(key)
        return replace(entry, parts=tuple(parts))

    def write(self, key: StateKey, entry: Entry) -> bool:
        """Write an entry; return whether it is there now."""
        if entry.size > self.limit_bytes:
            return False
        path = self._own / key.file_name
        header = {
            "model": self._model,
            "key": [key.kind, key.kv_type, key.digest.hex()],
            "parent": entry.parent.hex(),
            "length": entry.length,
            "sizes": [len(p) for p in entry.parts],
        }
        try:
            self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
            # What a crash of the system leaves half written does not fit its hash.
            _FORMAT.write(path, header, entry.parts, sync=False)
            size = path.stat().st_size
        except OSError as e:
            _log.warning("the prefix cache cannot be written to disk: %s", e)
            return False
        with self._lock:
            self._add(path, size)
            self._headers[key] = replace(entry, parts=())
            while self.used_bytes > self.limit_bytes and self._sizes:
                self._remove(next(iter(self._sizes)))
        return key in self._headers

    def drop(self, key: StateKey) -> None:
        """Remove an entry's file."""
        with self._lock:
            self._headers.pop(key, None)
            if self._own / key.file_name in self._sizes:
                self._remove(self._own / key.file_name)

    def _checked(self, path: Path, header: dict[str, Any]) -> tuple[StateKey, Entry, list[int]]:
        """Return the key, the entry without bytes and the sizes of the parts that a header tells."""
        try:
            kind, kv_type, digest = header["key"]
            key = StateKey(str(kind), str(kv_type), bytes.fromhex(digest))
            entry = Entry((), bytes.fromhex(header["parent"]), int(header["length"]))
            sizes = [int(size) for size in header["sizes"]]
        except (KeyError, TypeError, ValueError) as e:
            raise FormatError(f"{path} has a header that this version cannot read: {e}") from e
        if header.get("model") != self._model or key.file_name != path.name:
            raise FormatError(
                f"{path} is of another model, or under another name than it was written"
            )
        return key, entry, sizes

    def _add(self, path: Path, size: int) -> None:
        self.used_bytes += size - self._sizes.pop(path, 0)
        self._sizes[path] = size

    def _remove(self, path: Path) -> None:
        self.used_bytes -= self._sizes.pop(path)
        if path.parent == self._own:
            own = next((key for key in self._headers if key.file_name == path.name), None)
            if own is not None:
                del self._headers[own]
        try:
            path.unlink(missing_ok=True)
        except OSError as e:
            _log.warning("a file of the prefix cache cannot be removed: %s", e)


def _files(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Time of last use, size and path of all files of all models."""
    for path in folder.glob("*/*"):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            status = path.stat()
        except OSError:  # another server has just removed it
            continue
        else:
            yield status.st_mtime_ns, status.st_size, path
