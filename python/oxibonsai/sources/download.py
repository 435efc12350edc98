"""Downloads that survive: kills, broken connections, full disks and servers that lie.

The file appears under its name when it is complete and verified, and not before.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oxibonsai.errors import CapacityError, RequestError, SourceError
from oxibonsai.sources.http import Answer, Contradiction, Passing, Unreachable, asked, web_client
from oxibonsai.sources.partial_file import PartialFile

if TYPE_CHECKING:
    import httpx2

Progress = Callable[[int, int | None], None]  # bytes that have come, bytes in all where known

_LONGEST_DELAY = 30.0  # seconds between two tries
_MAX_STARTS = 5  # from the first byte on, in one call
_HASH = re.compile(r"[0-9a-f]{64}")
_PAGE = re.compile(rb"\s*<(!doctype html|html)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Patience:
    """How long to go on with a server that fails.

    Attributes:
        tries: Requests in a row that bring no byte.
        delay: Seconds before the second; every further wait is twice as long.
        timeout: Seconds that a server may be silent.
    """

    tries: int = 5
    delay: float = 0.5
    timeout: float = 20.0


def download(
    url: str,
    place: Path,
    *,
    sha256: str | None = None,
    headers: Mapping[str, str] | None = None,
    patience: Patience | None = None,
    progress: Progress | None = None,
    public_only: bool = False,
) -> str:
    """Fetch a file, or the rest of it where an earlier call was interrupted.

    Args:
        url: Where from.
        place: What to call it; one that is there already is replaced at the end.
        sha256: What the content must hash to, in hexadecimal.
        headers: Sent with every request; an ``Authorization`` among them stays with the first server.
        patience: How long to go on with a server that fails.
        progress: Told how far it has come.
        public_only: Reach public hosts only; see :func:`web_client`.

    Returns:
        The content's sha256.

    Raises:
        RequestError: ``sha256`` is no hash.
        SourceError: The server refuses, lies, or stays out of reach; another process is fetching
            the same file; the content has another hash.
        CapacityError: The disk is full.
    """
    expected = None if sha256 is None else checked_hash(sha256)
    if place.is_dir():
        raise RequestError(f"{place} is a folder: name a file in it")
    with (
        PartialFile(place) as partial,
        web_client((patience or Patience()).timeout, headers, public_only=public_only) as client,
    ):
        partial.restore(url)
        transfer = _Transfer(client, url, partial, expected, patience or Patience(), progress)
        transfer.run()
        if expected is not None and partial.sha256 != expected and transfer.joined:
            # The parts may be of different versions, whatever the server said.
            partial.reset()
            transfer.run()
        found = partial.sha256
        if expected is not None and found != expected:
            partial.reset()
            raise SourceError(f"{url} has the sha256 {found}, not {expected}: it is another file")
        partial.finish()
        return found


def checked_hash(text: str) -> str:
    """Return a sha256 in hexadecimal, in lower case."""
    if not _HASH.fullmatch(text.lower()):
        raise RequestError(f"{text!r} is no sha256: it has 64 hexadecimal digits")
    return text.lower()


class _Transfer:
    """Requests, one after another, until all bytes are there."""

    def __init__(
        self,
        client: httpx2.Client,
        url: str,
        partial: PartialFile,
        sha256: str | None,
        patience: Patience,
        progress: Progress | None,
    ) -> None:
        self._client = client
        self._url = url
        self._partial = partial
        self._sha256 = sha256
        self._patience = patience
        self._progress = progress
        self._starts = 0
        self.joined = partial.length > 0  # parts from more than one answer

    def run(self) -> None:
        failures = 0
        while True:
            before = self._partial.length
            try:
                if self._fetch():
                    return
                reason: Exception = Passing("the connection ended early")
            except Contradiction as e:
                self._partial.reset()
                reason = e
            except Passing as e:
                reason = e
            failures = 0 if self._partial.length > before else failures + 1
            if failures >= self._patience.tries:
                raise Unreachable(
                    f"cannot fetch {self._url}: {reason}; tried {failures} times in vain"
                ) from reason
            delay = min(self._patience.delay * 2.0 ** max(failures - 1, 0), _LONGEST_DELAY)
            time.sleep(getattr(reason, "wait", None) or delay)

    def _fetch(self) -> bool:
        """Send one request; return whether the file is complete after it."""
        partial = self._partial
        if partial.length and partial.length == partial.version.size:
            return True
        if partial.length and not partial.version.known and self._sha256 is None:
            partial.reset()  # nobody could tell whether the rest is of the same file
        with asked(self._client, self._url, partial.length, partial.version) as answer:
            self._check(answer)
            if answer.first == 0:
                self._start(answer)
            else:
                self.joined = True
            self._check_room()
            self._take(answer)
        if partial.version.size is None:
            return True  # its hash decides
        return partial.length == partial.version.size

    def _check(self, answer: Answer) -> None:
        old, new = self._partial.version, answer.version
        if answer.first:
            if new.size is not None and old.size is not None and new.size != old.size:
                raise Contradiction("the file has another size than before")
            same = new.etag == old.etag if new.etag or old.etag else new.modified == old.modified
            if not same:
                raise Contradiction("the file has changed at the server")
        elif new.size is None and self._sha256 is None:
            raise SourceError(
                f"the server does not say how large {self._url} is: give its --sha256, or nobody can "
                "tell whether all of it came"
            )

    def _start(self, answer: Answer) -> None:
        self._starts += 1
        if self._starts > _MAX_STARTS:
            raise SourceError(
                f"cannot fetch {self._url}: the connection breaks or the file changes before all of "
                f"it has come, {_MAX_STARTS} times"
            )
        self._partial.begin(answer.version)

    def _check_room(self) -> None:
        size = self._partial.version.size
        folder = self._partial.place.parent
        free = shutil.disk_usage(folder).free
        if size is not None and size - self._partial.length > free:
            raise CapacityError(
                f"{self._url} needs {size - self._partial.length} bytes more, but {folder} has room "
                f"for {free}"
            )

    def _take(self, answer: Answer) -> None:
        partial = self._partial
        is_page = "html" in answer.response.headers.get("content-type", "")
        end = None if answer.count is None else answer.first + answer.count
        for piece in answer.pieces():
            if partial.length == 0 and is_page and _PAGE.match(piece):
                raise SourceError(f"{self._url} answers with a web page, not with a file")
            if end is not None and partial.length + len(piece) > end:
                raise Contradiction("the server sends more than it said")
            partial.append(piece)
            if self._progress is not None:
                self._progress(partial.length, partial.version.size)
