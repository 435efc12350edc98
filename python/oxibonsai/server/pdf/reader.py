"""Pages of PDF files, read by pypdf in a process of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.files.watched_process import kept_within
from oxibonsai.serial_queue import SerialQueue

MOST_BYTES = 32 << 20  # of a file
MOST_PAGES = 500
_SECONDS = 30
_MEMORY_BYTES = 2 << 30
MOST_PAGE_BYTES = 64 << 20  # of texts and scans
_KEPT_BYTES = 32 << 20
_SCRIPT = Path(__file__).with_name("process.py")


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        text: Its text; empty for one that was scanned.
        scan: A PNG of its largest image where it has no text; None: there is none, or it was not wanted.
    """

    text: str
    scan: bytes | None

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.text) + len(self.scan or b"")


@dataclass
class Allowance:
    """The time that the documents of one request may still take, for which others wait.

    Attributes:
        seconds: Of reading; waiting does not count.
    """

    seconds: float = 2.0 * _SECONDS


class PdfReader:
    """Reads PDF files one after the other, and keeps the latest: a conversation sends them in every turn.

    Args:
        queue: Where requests wait for each other.
    """

    def __init__(self, queue: SerialQueue) -> None:
        self._queue = queue
        self._kept: OrderedDict[bytes, list[Page]] = OrderedDict()
        self._lock = threading.Lock()

    def pages(
        self,
        name: str,
        data: bytes,
        look: Callable[[], None] | None = None,
        *,
        scans: bool,
        allowance: Allowance | None = None,
    ) -> list[Page]:
        """Return the pages of a file.

        Args:
            name: For errors.
            data: The file.
            look: Called while others are read; what it raises ends the waiting.
            scans: Whether images of pages without text are wanted.
            allowance: Of the request; None: this is its one document.

        Raises:
            RequestError: The file is too large, no PDF, damaged, encrypted, or takes too long.
            UnsupportedError: pypdf is not installed.
            CapacityError: Too many wait.
        """
        if len(data) > MOST_BYTES:
            raise RequestError(f"{name} has more than the {MOST_BYTES >> 20} MiB that are read")
        if b"%PDF-" not in data[:1024]:
            raise RequestError(f"{name} is no PDF file, the only kind of document that is read")
        key = hashlib.blake2b(data, digest_size=16, key=b"scans" if scans else b"").digest()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        if allowance is not None and allowance.seconds <= 0:
            raise RequestError(
                f"{name} is not read: the other documents of the request took too long; send fewer"
            )
        with self._queue.turn(look):
            began = time.monotonic()
            pages = _read(name, data, scans=scans)
            if allowance is not None:
                allowance.seconds -= time.monotonic() - began
        with self._lock:
            self._kept[key] = pages
            while len(self._kept) > 1 and self._size() > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return pages

    def _size(self) -> int:
        return sum(page.size for pages in self._kept.values() for page in pages)


def _read(name: str, data: bytes, *, scans: bool) -> list[Page]:
    limits = (MOST_PAGES, _SECONDS, _MEMORY_BYTES, MOST_PAGE_BYTES)
    command = [sys.executable, str(_SCRIPT), *map(str, limits), "scans" if scans else "text"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # warnings have no bounds
    )
    with process, kept_within(process, _SECONDS, _MEMORY_BYTES):
        try:
            # Twice the processor's time, since other work may share it.
            output, _ = process.communicate(data, timeout=2 * _SECONDS)
        except subprocess.TimeoutExpired:
            raise RequestError(f"{name} takes more than {_SECONDS} s to read") from None
        finally:
            process.kill()  # does nothing to one that has ended
    if process.returncode != 0:  # its last line may be cut
        raise RequestError(f"{name} takes more than {_SECONDS} s or too much memory to read")
    lines = [json.loads(line) for line in output.splitlines()]
    last = lines[-1] if lines else {}
    if "missing" in last:
        raise UnsupportedError(
            f"{name} can't be read: {last['missing']} is not installed where the server runs: "
            "pip install 'oxibonsai[pdf]' brings it"
        )
    if "error" in last:
        raise RequestError(f"{name} {last['error']}")
    return [
        Page(line["text"], None if line["scan"] is None else base64.b64decode(line["scan"]))
        for line in lines
    ]
