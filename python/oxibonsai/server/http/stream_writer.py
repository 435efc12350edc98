"""Lets the engine's thread write the streams of all clients that keep up.

With one thread per stream, all of them would wake after each step of the engine, contend for the
interpreter and take cores from the next step. Between two steps the cores are idle, so the engine's
thread writes the new output itself. It never blocks: a stream goes back to its request's own thread,
which sleeps meanwhile, when the client does not read, when no output comes for a while, and at the end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oxibonsai.server.http.client import POLL_SECONDS, ClientGoneError


class OutputEvent(threading.Event):
    """Set by the engine when there is new output; the thread that reads the output waits for it.

    Args:
        writer: Takes over running streams.

    Attributes:
        was_set: Whether the engine has set it at least once.
        release_finished: Called repeatedly while the client does not read: releases resources of
            finished sequences.
    """

    def __init__(self, writer: StreamWriter) -> None:
        super().__init__()
        self._writer = writer
        self._handed_over = False
        self.was_set = False
        self.release_finished: Callable[[], None] = lambda: None

    def set(self) -> None:
        """Note that there may be new output; the engine's thread calls this."""
        self.was_set = True
        # If it is already set, its reader has yet to read the output.
        if not self.is_set():
            super().set()

    @property
    def poll_timeout(self) -> float:
        """Return the seconds that a reader may wait for output: none in the engine's thread."""
        return 0.0 if self._handed_over else POLL_SECONDS

    def hand_over(
        self,
        sock: socket.socket | None,
        frames: Iterator[str | None],
        interrupted: Callable[[], bool],
    ) -> None:
        """Hand a stream to the engine's thread; return when the caller has to go on with it.

        Args:
            sock: The client's socket, after the response header, for chunked output; None if nothing
                is to be written.
            frames: The rest of the response; None where there is no output yet.
            interrupted: Called a few times a second; True takes the stream back.

        Raises:
            ClientGoneError: The client disconnected.
            TimeoutError: The client has not read for longer than the socket's timeout.
            Exception: Whatever ``frames`` raises.
        """
        stream = _Stream(self, sock, frames)
        timeout = None if sock is None else sock.gettimeout()
        if sock is not None:
            sock.setblocking(False)
        self._handed_over = True
        try:
            self._writer.hand_over(stream, interrupted)
        finally:
            self._handed_over = False
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.settimeout(timeout)
        if sock is not None and stream.unsent:
            self._deliver(sock, stream.unsent)
        if stream.error is not None:
            raise stream.error

    def _deliver(self, sock: socket.socket, data: bytes) -> None:
        timeout, progress = sock.gettimeout(), time.monotonic()
        left = memoryview(data)
        sock.settimeout(POLL_SECONDS)
        try:
            while left:
                try:
                    left = left[sock.send(left) :]
                    progress = time.monotonic()
                except TimeoutError:
                    if timeout is not None and time.monotonic() - progress >= timeout:
                        raise
                    self.release_finished()
        finally:
            with contextlib.suppress(OSError):
                sock.settimeout(timeout)


def writable_socket(environ: Mapping[str, Any]) -> socket.socket | None:
    """Return the client's socket if another thread may write to it, else None."""
    sock = environ.get("gunicorn.socket")
    # HTTP/1.0 has no chunked encoding; a TLS socket can't be written without blocking like this.
    if type(sock) is not socket.socket or environ.get("SERVER_PROTOCOL") != "HTTP/1.1":
        return None
    return sock


@dataclass(eq=False)
class _Stream:
    output_event: OutputEvent
    sock: socket.socket | None
    frames: Iterator[str | None]
    wrote: float = field(default_factory=time.monotonic)  # time of the last output
    unsent: bytes = b""
    error: BaseException | None = None
    returned: threading.Event = field(default_factory=threading.Event)

    def advance(self, *, anyway: bool = False) -> bool:
        """Write new output; return whether the engine's thread keeps the stream.

        Args:
            anyway: Check for output even if the event is not set.
        """
        if not anyway and not self.output_event.is_set():
            return True
        try:
            ended, text = self._gather()
            # Tokens may yield no text: the request's own thread then checks the connection.
            if text or self.sock is None:
                self.wrote = time.monotonic()
            if text and self.sock is not None:
                data = text.encode()
                self._send(self.sock, b"%X\r\n%b\r\n" % (len(data), data))
        except Exception as e:
            self.error = e
        return self.error is None and not ended and not self.unsent

    def _gather(self) -> tuple[bool, str]:
        """Return whether the stream has ended, and the text that came before the end or an error."""
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
    """The streams that an engine writes after each step, by calling :meth:`write`."""

    def __init__(self) -> None:
        self._streams: list[_Stream] = []
        self._lock = threading.Lock()  # of the list, and of the streams that are on it

    def write(self) -> None:
        """Write the output of the step."""
        if not self._streams:
            return
        with self._lock:
            for stream in [s for s in self._streams if not s.advance()]:
                self._streams.remove(stream)
                stream.returned.set()

    def hand_over(self, stream: _Stream, interrupted: Callable[[], bool]) -> None:
        """Let the engine's thread write a stream until it needs its own thread again."""
        with self._lock:
            # Output that arrived meanwhile, or together with the last frame.
            if not stream.advance(anyway=True):
                return
            self._streams.append(stream)
            # A step that ended before the append has not seen this stream.
            if not stream.advance():
                self._streams.remove(stream)
                return
        while not stream.returned.wait(POLL_SECONDS):
            quiet = time.monotonic() - stream.wrote >= POLL_SECONDS
            if quiet or interrupted():
                with self._lock, contextlib.suppress(ValueError):
                    self._streams.remove(stream)
                return
