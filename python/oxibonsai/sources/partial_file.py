"""A file that is being fetched: what has come, proof of it for a later process, one writer at a time.

``NAME.oxipart`` holds the bytes, ``NAME.oxiresume`` says what they are: where from, which version of
the file, and the sha256 of a prefix. A later process hashes that prefix again and drops what follows
it, so neither a kill nor a crash of the machine can leave wrong bytes in the result.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from oxibonsai.errors import CapacityError, SourceError
from oxibonsai.files import platform

_CHECKPOINT_BYTES = 4 << 20  # fetched again at most after a kill
_HASH_BYTES = 1 << 20
_STATE_BYTES = 1 << 16  # no honest state is larger
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Version:
    """A server's description of the file that it sends.

    Attributes:
        size: Bytes; None where it does not say.
        etag: Its tag of this content.
        modified: Its date.
    """

    size: int | None = None
    etag: str | None = None
    modified: str | None = None

    @property
    def known(self) -> bool:
        """Whether a change of the content can be seen."""
        return self.etag is not None or self.modified is not None

    @property
    def precondition(self) -> str | None:
        """Return the value of ``If-Range``: a strong tag."""
        return self.etag if self.etag is not None and not self.etag.startswith("W/") else None


@dataclass(frozen=True)
class _State:
    """The contents of the sidecar: of the first ``verified`` bytes, their sha256."""

    url: str
    verified: int
    verified_sha256: str
    size: int | None
    etag: str | None
    modified: str | None


_STATE_TYPES = {
    "url": (str,), "verified": (int,), "verified_sha256": (str,),
    "size": (int, type(None)), "etag": (str, type(None)), "modified": (str, type(None)),
}  # fmt: skip


def _read_state(sidecar: Path) -> _State | None:
    """Read the state; None where there is none, or none that this version wrote."""
    try:
        with sidecar.open("rb") as file:
            state = json.loads(file.read(_STATE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(state, dict) or state.keys() != _STATE_TYPES.keys():
        return None
    if not all(type(state[key]) in types for key, types in _STATE_TYPES.items()):
        return None
    return _State(**state) if state["verified"] > 0 else None


class PartialFile:
    """The bytes that have come so far; a context, which closes and keeps them.

    Args:
        place: Where the complete file will be.

    Attributes:
        length: Bytes that have come.
        version: Of which version of the file.

    Raises:
        SourceError: Another process is fetching this file, or the folder can't be written.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.part = place.with_name(f"{place.name}.oxipart")
        self.sidecar = place.with_name(f"{place.name}.oxiresume")
        self._draft = place.with_name(f"{place.name}.oxiresume.tmp")
        self.length = 0
        self.version = Version()
        self._url = ""
        self._finished = self._closed = False
        self._hash = hashlib.sha256()
        self._checkpoint = 0
        try:
            self._file = self._open_alone()
        except OSError as e:
            raise SourceError(f"cannot write {place}: {e.strerror}") from e

    def _open_alone(self) -> int:
        while True:
            file = platform.open_descriptor(self.part, os.O_RDWR | os.O_CREAT, follow=False)
            try:
                platform.lock(file, wait=False)
            except BlockingIOError as e:
                os.close(file)
                raise SourceError(
                    f"another process is fetching {self.place}: wait for it, or stop it"
                ) from e
            # The one before may have finished, and the file been renamed, since it was opened.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self.part.stat()):
                    return file
            os.close(file)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # what was kept before is still good
            if not self._finished and self.length == 0:
                self._drop_state()
                self._close_before_move()
                self.part.unlink(missing_ok=True)
            elif not self._finished and self.length > self._checkpoint:
                self._save()
        self._close()

    def _close_before_move(self) -> None:
        if not platform.MOVES_OPEN_FILES:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._file)

    def restore(self, url: str) -> None:
        """Take up what an earlier process left of this URL; anything doubtful is dropped."""
        self._url = url
        state = _read_state(self.sidecar)
        if state is None or state.url != url or not self._hash_prefix(state):
            self.reset()
            return
        self.version = Version(state.size, state.etag, state.modified)

    def _hash_prefix(self, state: _State) -> bool:
        """Hash what came before; return whether it is what the state says."""
        if os.fstat(self._file).st_size < state.verified:
            return False
        digest = hashlib.sha256()
        os.lseek(self._file, 0, os.SEEK_SET)
        left = state.verified
        while left:
            piece = os.read(self._file, min(_HASH_BYTES, left))
            if not piece:
                return False
            digest.update(piece)
            left -= len(piece)
        if digest.hexdigest() != state.verified_sha256:
            return False
        os.ftruncate(self._file, state.verified)
        self._hash, self.length, self._checkpoint = digest, state.verified, state.verified
        return True

    def begin(self, version: Version) -> None:
        """Start over, with this version of the file."""
        self.reset()
        self.version = version

    def reset(self) -> None:
        """Drop all bytes."""
        self._drop_state()
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self.length = self._checkpoint = 0
        self.version = Version()
        self._hash = hashlib.sha256()

    def append(self, data: bytes) -> None:
        """Add the next bytes.

        Raises:
            CapacityError: The disk is full; what came before is kept.
        """
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._file, view)
                self._hash.update(view[:written])
                self.length += written
                view = view[written:]
            if self.length - self._checkpoint >= _CHECKPOINT_BYTES:
                self._save()
        except OSError as e:
            if e.errno not in _NO_ROOM:
                raise
            raise CapacityError(
                f"no room is left for {self.place}: make some and fetch it again; it goes on at byte "
                f"{self._checkpoint}"
            ) from e

    def _save(self) -> None:
        """Note what has come, for a process after this one."""
        state = _State(self._url, self.length, self._hash.hexdigest(), **asdict(self.version))
        # A URL may hold a key: nobody else reads it.
        file = platform.open_descriptor(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as out:
            json.dump(asdict(state), out)
        self._draft.replace(self.sidecar)
        self._checkpoint = self.length

    def _drop_state(self) -> None:
        self.sidecar.unlink(missing_ok=True)
        self._draft.unlink(missing_ok=True)  # a kill may have left it

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of all bytes that have come, in hexadecimal."""
        return self._hash.hexdigest()

    def finish(self) -> None:
        """Give the file its name, and the permissions of one that it replaces."""
        if self.place.exists():
            platform.copy_permissions(self.place, self._file)
        os.fsync(self._file)
        self._close_before_move()
        self.part.replace(self.place)
        self._finished = True
        self._drop_state()
        platform.sync_folder(self.place.parent)
