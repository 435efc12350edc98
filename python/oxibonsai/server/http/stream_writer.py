"""Lets the engine's thread write the streams of all clients that keep up.

A thread for each stream would wake for each of its tokens, and all of them at once after a step of the
engine, to wait for each other and to take the cores from the next step. Between two steps the cores
have nothing to do, so what came is written there, by the thread that made it. It never waits: what
needs patience goes back to the request's own thread, which sleeps meanwhile. That is a client that does
not read, a text that pauses, the end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oxibonsai.server.http.disconnect import POLL_SECONDS, ClientGoneError


class Bell(threading.Event):
    """What an engine rings when a text has grown, and what the thread that follows it waits for.

    Args:
        writer: Takes over a stream that runs.

    Attributes:
        rung: Whether the engine has rung it yet.
        relieve: Called now and then while the client does not read: frees what the text needs no more.
    """

    def __init__(self, writer: StreamWriter) -> None:
        super().__init__()
        self._writer = writer
        self._carried = False
        self.rung = False
        self.relieve: Callable[[], None] = lambda: None

    def set(self) -> None:
        """There may be something new. Called by the engine's thread."""
        self.rung = True
        # Whoever finds it set has yet to look at what is new.
        if not self.is_set():
            super().set()

    @property
    def patience(self) -> float:
        """Seconds that whoever follows the text may wait for news: none in the engine's thread."""
        return 0.0 if self._carried else POLL_SECONDS

    def carry(
        self,
        sock: socket.socket | None,
        frames: Iterator[str | None],
        interrupted: Callable[[], bool],
    ) -> None:
        """Lets the engine's thread go on with a text; returns when it is to be gone on with here.

        Args:
            sock: Of the client, whose answer has begun, in chunks; None where nothing is written.
            frames: The rest of the answer, None where nothing is there yet.
            interrupted: Asked a few times a second whether the text is to come back.

        Raises:
            ClientGoneError: Nobody reads the answer any more.
            TimeoutError: The client has not read for as long as the socket allows.
            Exception: What ``frames`` raises.
        """
        stream = _Stream(self, sock, frames)
        patience = None if sock is None else sock.gettimeout()
        if sock is not None:
            sock.setblocking(False)
        self._carried = True
        try:
            self._writer.carry(stream, interrupted)
        finally:
            self._carried = False
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.settimeout(patience)
        if sock is not None and stream.unsent:
            self._deliver(sock, stream.unsent)
        if stream.error is not None:
            raise stream.error

    def _deliver(self, sock: socket.socket, data: bytes) -> None:
        patience, progress = sock.gettimeout(), time.monotonic()
        left = memoryview(data)
        sock.settimeout(POLL_SECONDS)
        try:
            while left:
                try:
                    left = left[sock.send(left) :]
                    progress = time.monotonic()
                except TimeoutError:
                    if patience is not None and time.monotonic() - progress >= patience:
                        raise
                    self.relieve()
        finally:
            with contextlib.suppress(OSError):
                sock.settimeout(patience)


def carried_socket(environ: Mapping[str, Any]) -> socket.socket | None:
    """The client's socket, where another thread may write to it; None elsewhere."""
    sock = environ.get("gunicorn.socket")
    # An answer of HTTP/1.0 has no chunks; TLS has a mind of its own about when it can write.
    if type(sock) is not socket.socket or environ.get("SERVER_PROTOCOL") != "HTTP/1.1":
        return None
    return sock


@dataclass(eq=False)
class _Stream:
    bell: Bell
    sock: socket.socket | None
    frames: Iterator[str | None]
    wrote: float = field(default_factory=time.monotonic)  # when something last came of the text
    unsent: bytes = b""
    error: BaseException | None = None
    returned: threading.Event = field(default_factory=threading.Event)

    def advance(self, *, anyway: bool = False) -> bool:
        """Writes what has come; whether the stream goes on without its own thread.

        Args:
            anyway: Look also where the bell has not been rung since the last look.
        """
        if not anyway and not self.bell.is_set():
            return True
        try:
            ended, text = self._gather()
            # Tokens may come without text: the request's own thread then looks after its client.
            if text or self.sock is None:
                self.wrote = time.monotonic()
            if text and self.sock is not None:
                data = text.encode()
                self._send(self.sock, b"%X\r\n%b\r\n" % (len(data), data))
        except Exception as e:
            self.error = e
        return self.error is None and not ended and not self.unsent

    def _gather(self) -> tuple[bool, str]:
        """Whether that was all, and what came before an error."""
        pieces: list[str] = []
        try:
            for piece in self.frames:
                if piece is None:
                    return False, "".join(pieces)
                pieces.append(piece)
        except Exception as e:
            self.error = e
        return True, "".join(pieces)

    def _send(self, sock: socket.socket, data: bytes) -> None:
        try:
            sent = sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as e:
            raise ClientGoneError(f"the client closed its connection: {e}") from e
        self.unsent = data[sent:]


class StreamWriter:
    """The streams that are written after each step of an engine, which calls :meth:`write`."""

    def __init__(self) -> None:
        self._streams: list[_Stream] = []
        self._lock = threading.Lock()  # of the list, and of the streams that are on it

    def write(self) -> None:
        """Writes what the step has made."""
        if not self._streams:
            return
        with self._lock:
            for stream in [s for s in self._streams if not s.advance()]:
                self._streams.remove(stream)
                stream.returned.set()

    def carry(self, stream: _Stream, interrupted: Callable[[], bool]) -> None:
        """Has a stream written until it needs a thread of its own."""
        with self._lock:
            # What came meanwhile, and what came with the frame that was just taken.
            if not stream.advance(anyway=True):
                return
            self._streams.append(stream)
            # A step that ended in between has found no stream to write.
            if not stream.advance():
                self._streams.remove(stream)
                return
        while not stream.returned.wait(POLL_SECONDS):
            quiet = time.monotonic() - stream.wrote >= POLL_SECONDS
            if quiet or interrupted():
                with self._lock, contextlib.suppress(ValueError):
                    self._streams.remove(stream)
                return
