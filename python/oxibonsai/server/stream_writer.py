"""Writes the streams of all clients that keep up, in one thread.

A thread for each stream would wake for each of its tokens, and all of them at once after a step of
the engine, to wait for each other and to take the cores from the engine. This one wakes once a step.
What needs patience goes back to the request's own thread: a client that does not read, a text that
pauses, the end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oxibonsai.server.disconnect import POLL_SECONDS, ClientGoneError


class Bell(threading.Event):
    """What an engine rings when a text has grown, and what the thread that writes it waits for.

    Args:
        writer: Takes over a stream that runs.

    Attributes:
        rung: Whether the engine has rung it yet.
    """

    def __init__(self, writer: StreamWriter) -> None:
        super().__init__()
        self._writer = writer
        self._carried = False
        self.rung = False

    def set(self) -> None:
        """There may be something new. Called by the engine's thread."""
        self.rung = True
        # Whoever finds it set has yet to look at what is new.
        if not self.is_set():
            super().set()
        if self._carried:
            self._writer.wake()

    @property
    def patience(self) -> float:
        """Seconds that whoever follows the text may wait for news: none in the writer's thread."""
        return 0.0 if self._carried else POLL_SECONDS

    def carry(
        self, sock: socket.socket, frames: Iterator[str | None], stopping: Callable[[], bool]
    ) -> None:
        """Lets the writer go on with a stream; returns when it is to be gone on with here.

        Args:
            sock: Of the client; its answer has begun, in chunks.
            frames: The rest of the answer, None where nothing is there yet.
            stopping: Whether the server is about to end; then the stream comes back.

        Raises:
            ClientGoneError: Nobody reads the answer any more.
            TimeoutError: The client has not read for as long as the socket allows.
            Exception: What ``frames`` raises.
        """
        stream = _Stream(self, sock, frames, stopping)
        patience = sock.gettimeout()
        sock.setblocking(False)
        self._carried = True
        try:
            self._writer.add(stream)
            stream.returned.wait()
        finally:
            self._carried = False
            with contextlib.suppress(OSError):
                sock.settimeout(patience)
        if stream.error is not None:
            raise stream.error
        if stream.unsent:
            sock.sendall(stream.unsent)


def carried_socket(environ: Mapping[str, Any]) -> socket.socket | None:
    """The client's socket, where a thread of ours may write to it; None elsewhere."""
    sock = environ.get("gunicorn.socket")
    # An answer of HTTP/1.0 has no chunks; TLS has a mind of its own about when it can write.
    if type(sock) is not socket.socket or environ.get("SERVER_PROTOCOL") != "HTTP/1.1":
        return None
    return sock


@dataclass
class _Stream:
    bell: Bell
    sock: socket.socket
    frames: Iterator[str | None]
    stopping: Callable[[], bool]
    looked: float = field(default_factory=time.monotonic)  # when something last came
    unsent: bytes = b""
    error: BaseException | None = None
    returned: threading.Event = field(default_factory=threading.Event)

    def advance(self) -> bool:
        """Writes what has come; whether the stream goes on here."""
        ended, text = self._gather()
        if text:
            data = text.encode()
            self.looked = time.monotonic()
            try:
                self._send(b"%X\r\n%b\r\n" % (len(data), data))
            except OSError as e:
                self.error = ClientGoneError(f"the client closed its connection: {e}")
        return not (ended or self.unsent or self.error is not None)

    def _gather(self) -> tuple[bool, str]:
        pieces: list[str] = []
        try:
            for piece in self.frames:
                if piece is None:
                    return False, "".join(pieces)
                pieces.append(piece)
        except Exception as e:
            self.error = e
        return True, "".join(pieces)

    def _send(self, data: bytes) -> None:
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        self.unsent = data[sent:]


class StreamWriter:
    """The thread; it starts with the first stream, so after the fork."""

    def __init__(self) -> None:
        self._streams: list[_Stream] = []  # guarded by the lock
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """One of its streams may have something new."""
        if not self._work.is_set():
            self._work.set()

    def add(self, stream: _Stream) -> None:
        """Takes a stream, until it sets its ``returned``."""
        with self._lock:
            self._streams.append(stream)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
                self._thread.start()
        stream.bell.set()  # what came meanwhile is written now

    def _run(self) -> None:
        while True:
            self._work.wait(POLL_SECONDS if self._streams else None)
            self._work.clear()
            with self._lock:
                streams = list(self._streams)
            for stream in streams:
                if not self._stays(stream):
                    with self._lock:
                        self._streams.remove(stream)
                    stream.returned.set()

    def _stays(self, stream: _Stream) -> bool:
        if stream.stopping():
            return False
        if stream.bell.is_set():
            return stream.advance()
        return time.monotonic() - stream.looked < POLL_SECONDS
