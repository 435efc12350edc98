"""A gunicorn worker that slow clients can't block.

Idle connections, partial headers and bodies up to 256 KiB wait in the event loop and block no thread.
The rest of a larger body is read by a thread under a deadline; at most half of the threads do that.
A body is read completely before the application is called. A key never gets a thread where it has as
many at work as are free, so that another key's request finds one; its own wait in the event loop. When
there are too many connections, the one that has been waiting for its client for longest is closed.
"""

from __future__ import annotations

from oxibonsai.files.platform import HAS_FORK

assert HAS_FORK

import contextlib
import errno
import io
import selectors
import signal
import socket
import tempfile
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, Any

from gunicorn.http.errors import (
    ExpectationFailed,
    ForbiddenProxyRequest,
    LimitRequestHeaders,
    LimitRequestLine,
    NoMoreData,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.workers.gthread import ThreadWorker

from oxibonsai.serial_queue import Shares
from oxibonsai.server.http.client import (
    CLIENT_IS_GONE,
    HAND_OVER,
    IS_REPEAT,
    HandedOverError,
    plain_error,
)
from oxibonsai.server.http.connection import (
    MAX_COLLECTED_BYTES,
    Connection,
    SocketReaper,
    body_seconds,
    is_closed,
)
from oxibonsai.server.lifecycle import STREAM_END_SECONDS, Lifecycle, Phase
from oxibonsai.server.settings import Settings

_SWEEP_SECONDS = 0.5
# How long to wait for the client to close its side of a connection.
_LINGER_SECONDS = 2.0
# Between two attempts to accept while the process has no free file descriptor.
_FULL_SECONDS = 0.05
_ACCEPT_BURST = 64
# Grace period for connections that are accepted when the listeners close.
_CLOSE_SECONDS = 0.2

_STATUSES = {
    LimitRequestLine: (414, "URI Too Long"),
    LimitRequestHeaders: (431, "Request Header Fields Too Large"),
    ExpectationFailed: (417, "Expectation Failed"),
    UnsupportedTransferCoding: (501, "Not Implemented"),
    ForbiddenProxyRequest: (403, "Forbidden"),
}


class DeadlineWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """One process of threads; ``self.app`` is a :class:`gunicorn_launcher.ServerApplication`."""

    def init_process(self) -> None:
        """Run in the worker's process, after the fork."""
        self._settings: Settings = self.app.settings
        self._lifecycle: Lifecycle = self.app.lifecycle
        # Ordered by the start of their waiting; the first is closed when there are too many.
        self._waiting: dict[Connection, None] = {}
        self._running: set[Connection] = set()
        self._reaper = SocketReaper()
        self._reaper.start()
        self._queued: dict[str, deque[Connection]] = {}  # by whose share of the threads they use
        self._busy: Counter[str] = Counter()  # threads of the pool, by whose requests they handle
        self._uploads = Shares(max(1, self.cfg.threads // 2))  # threads that read a large body
        self._probe_threads = ThreadPoolExecutor(2)
        self._next_sweep = 0.0
        self._handling = threading.local()  # its connection
        self._interrupted = False
        super().init_process()

    def load_wsgi(self) -> None:
        """Load the application, and let its requests be handed over to the next worker."""
        super().load_wsgi()
        answer = self.wsgi.wsgi_app

        def wsgi_app(environ: dict[str, Any], start_response: Any) -> Any:
            conn: Connection = self._handling.conn
            environ[CLIENT_IS_GONE] = partial(is_closed, conn.sock)
            environ[IS_REPEAT] = conn.is_repeat
            environ[HAND_OVER] = partial(self._hand_over, conn)
            body = answer(environ, start_response)
            if conn.handed_over:
                body.close()
                raise HandedOverError
            return body

        self.wsgi.wsgi_app = wsgi_app

    # Signals

    def init_signals(self) -> None:
        """Read the API keys again on SIGHUP, and tell SIGINT from SIGQUIT."""
        super().init_signals()
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGHUP, lambda *_: self.method_queue.defer(self._reload_keys))
        signal.siginterrupt(signal.SIGHUP, False)

    def _reload_keys(self) -> None:
        if self.wsgi is not None:
            self.wsgi.keys.refresh(force=True)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Drain on SIGTERM."""
        self._lifecycle.advance(Phase.DRAINING)
        super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Stop at once on SIGQUIT; stores are safe at any point, programs of tools are ended."""
        self.app.process.stop(0)

    def _interrupt(self, sig: int, frame: Any) -> None:
        """Stop on SIGINT: at once, or as soon as state is kept; nothing waits for requests."""
        if not self.app.process.keeps_state:
            self.app.process.stop(0)
        self._interrupted = True
        self.handle_exit(sig, frame)

    # The event loop

    def run(self) -> None:
        """Serve until SIGTERM or a failure, then until nothing runs or the drain timeout expires."""
        self.poller.register(
            self.method_queue.fileno(), selectors.EVENT_READ, self.method_queue.run_callbacks
        )
        self.set_accept_enabled(True)
        while self.alive and self.is_parent_alive() and not self._lifecycle.failed:
            self._turn(1.0)
        self._lifecycle.advance(Phase.DRAINING)
        # Probes are still answered; other requests are rejected with a reason.
        limit = time.monotonic() + self._settings.drain_timeout
        while self._running or self._lifecycle.background:
            left = limit - time.monotonic()
            if left < STREAM_END_SECONDS:
                self._lifecycle.advance(Phase.STOPPED)
            if self._interrupted:
                break
            if left <= 0:
                self.log.warning("Drain timeout: %d requests are aborted", len(self._running))
                break
            self._turn(min(0.25, left))
        self._lifecycle.advance(Phase.STOPPED)
        self._stop_listening()
        for conn in [*self._waiting, *self._running]:
            if conn.handed_over:
                continue
            with contextlib.suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR)

    def _stop_listening(self) -> None:
        """Close the listeners; connections that were just accepted still get a response."""
        self.set_accept_enabled(False)
        for listener in self.sockets:
            self.accept(listener)
            listener.close()
        limit = time.monotonic() + _CLOSE_SECONDS
        while time.monotonic() < limit:
            self._turn(_CLOSE_SECONDS / 4)

    def _turn(self, seconds: float) -> None:
        self.notify()
        self.wait_for_and_dispatch_events(min(seconds, _SWEEP_SECONDS))
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        for conn in [c for c in self._waiting if c.deadline <= now]:
            self._time_out(conn)
        if self._lifecycle.phase == Phase.READY:
            self._take_over()

    def accept(self, listener: socket.socket) -> None:
        """Accept new connections; they block no thread until a request has arrived."""
        for _ in range(_ACCEPT_BURST):
            try:
                sock, address = listener.accept()
            except OSError as e:
                # Out of file descriptors: close the connection that has been waiting for longest.
                if e.errno in (errno.EMFILE, errno.ENFILE):
                    if self._waiting:
                        self._drop(next(iter(self._waiting)))
                    else:  # the listener stays readable: don't spin
                        time.sleep(_FULL_SECONDS)
                return
            if self.nr_conns >= self._settings.max_connections:
                if not self._waiting:
                    sock.close()
                    continue
                self._drop(next(iter(self._waiting)))
            self.nr_conns += 1
            conn = Connection(self.cfg, sock, address, listener.getsockname())
            conn.wait_for_request(self._settings.read_timeout)
            self._wait(conn, self._receive)

    def _take_over(self) -> None:
        """Handle the requests that the worker before this one handed over."""
        for sock, request in self.app.handover.receive():
            try:
                conn = Connection(self.cfg, sock, sock.getpeername(), sock.getsockname())
            except OSError:  # the client left
                sock.close()
                continue
            self.nr_conns += 1
            conn.wait_for_request(self._settings.read_timeout)
            conn.is_repeat = True
            conn.add(request, self._max_body)
            self.enqueue_req(conn)

    def _wait(self, conn: Connection, callback: Any) -> None:
        self._waiting[conn] = None

        def readable(_: Any) -> None:
            # An event of the same batch may have closed it already.
            if conn in self._waiting:
                callback(conn)

        self.poller.register(conn.sock, selectors.EVENT_READ, readable)

    def _stop_waiting(self, conn: Connection) -> None:
        self._waiting.pop(conn, None)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self.poller.unregister(conn.sock)

    def _drop(self, conn: Connection) -> None:
        self._stop_waiting(conn)
        self.nr_conns -= 1
        conn.close()

    def _time_out(self, conn: Connection) -> None:
        if conn.received:
            self._send_error(conn, 408, "Request Timeout", "The request was sent too slowly.")
        self._drop(conn)

    def _send_error(self, conn: Connection, status: int, reason: str, message: str) -> None:
        with contextlib.suppress(OSError):
            conn.sock.send(plain_error(status, reason, message))

    def _receive(self, conn: Connection) -> None:
        try:
            data = conn.sock.recv(65536)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._drop(conn)
        elif conn.add(data, self._max_body):
            self._stop_waiting(conn)
            self.enqueue_req(conn)
        elif conn.header_is_too_long:
            self._send_error(
                conn, 431, "Request Header Fields Too Large", "The header is too long."
            )
            self._drop(conn)

    def enqueue_req(self, conn: Connection) -> None:
        """Hand a request to a thread as soon as its key may have one; probes have threads of their own."""
        self._running.add(conn)
        if conn.is_probe:
            self._submit(self._probe_threads, conn)
            return
        conn.sharer = self.wsgi.callers.sharer(conn.credentials)
        self._queued.setdefault(conn.sharer, deque()).append(conn)
        self._dispatch()

    def _submit(self, threads: ThreadPoolExecutor, conn: Connection) -> None:
        future = threads.submit(self.handle, conn)
        future.add_done_callback(
            lambda done: self.method_queue.defer(self.finish_request, conn, done)
        )

    def _dispatch(self) -> None:
        """Start requests that wait for a thread, first those of keys with the fewest at work."""
        while self._queued:
            sharer = min(self._queued, key=lambda one: self._busy[one])
            free = self.cfg.threads - self._busy.total()
            if free == 0 or (sharer and self._busy[sharer] >= free):
                return
            conn = self._queued[sharer].popleft()
            if not self._queued[sharer]:
                del self._queued[sharer]
            self._busy[sharer] += 1
            self._submit(self.tpool, conn)

    def finish_request(self, conn: Connection, fs: Any) -> None:
        """Wait in the event loop for the next request, or close the connection."""
        self._running.discard(conn)
        if not conn.is_probe:
            self._busy -= Counter([conn.sharer])
            self._dispatch()
        if conn.handed_over:
            self._drop(conn)
            return
        try:
            keep = not fs.cancelled() and fs.exception() is None and fs.result()
            conn.sock.setblocking(False)
            if keep:
                self._wait_for_next(conn)
            else:
                conn.sock.shutdown(socket.SHUT_WR)
                # Read what the client still sends, else it may lose the end of the response.
                conn.wait_for_request(_LINGER_SECONDS)
                self._wait(conn, self._linger)
        except (OSError, ValueError):
            self._drop(conn)

    def _wait_for_next(self, conn: Connection) -> None:
        ahead = conn.parser.unreader.take_buffered()
        conn.wait_for_request(self._settings.read_timeout if ahead else self.cfg.keepalive)
        if conn.add(ahead, self._max_body):
            self.enqueue_req(conn)
        else:
            self._wait(conn, self._receive)

    def _linger(self, conn: Connection) -> None:
        try:
            ended = not conn.sock.recv(65536)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ended = True
        if ended:
            self._drop(conn)

    # In a thread of the pool

    @property
    def _max_body(self) -> int:
        return self._settings.max_upload_bytes

    def handle(self, conn: Connection) -> bool:
        """Handle one request; return True to keep the connection."""
        try:
            request = self._read_request(conn)
            if request is None:
                return False
            self._handling.conn = conn
            with contextlib.closing(request.body):
                keep = self.handle_request(request, conn)
            # The parser reads on here before the next request.
            request.body = io.BytesIO()
            return bool(keep)
        except HandedOverError:
            self.log.info("%s: the next worker answers its request", conn.client)
        except TimeoutError:
            self.log.info("%s does not read its response", conn.client)
        except (StopIteration, NoMoreData, ConnectionError):
            pass
        except OSError as e:
            if e.errno not in (errno.ENOTCONN, errno.EBADF):
                self.log.exception("Socket error")
        except Exception as e:
            self.handle_error(None, conn.sock, conn.client, e)
        return False

    def _hand_over(self, conn: Connection) -> bool:
        """Hand a request over if this worker has failed and another one will follow; once."""
        is_replaced = self.alive and self._lifecycle.failed and self._lifecycle.has_successor
        if conn.is_repeat or conn.whole is None or not is_replaced:
            return False
        conn.handed_over = self.app.handover.send(conn.sock, conn.whole)
        return conn.handed_over

    def _read_request(self, conn: Connection) -> Any:
        """Return a request with its complete body; None if an error response was sent instead."""
        conn.init()
        conn.sock.settimeout(self._settings.write_timeout)
        conn.parser.unreader.unread(conn.take_received())
        try:
            request = next(conn.parser)
            request.body = self._read_body(request, conn)
        except TimeoutError as e:
            self.log.info("%s: %s", conn.client, e)
            self._send_error(conn, 408, "Request Timeout", "The request was sent too slowly.")
        except _BusyError:
            message = "Too many slow uploads: try again later."
            self._send_error(conn, 503, "Service Unavailable", message)
        else:
            return request
        return None

    def _read_body(self, request: Any, conn: Connection) -> IO[bytes]:
        """Return the complete body, in memory or on disk; of a too large one, just over the limit."""
        size = _declared(request)
        body = tempfile.SpooledTemporaryFile(MAX_COLLECTED_BYTES)  # noqa: SIM115  # handle() closes it
        if size == 0:
            return body
        if size is not None and size > self._max_body:
            request.force_close()
            return body
        if request._expected_100_continue:
            conn.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            request._expected_100_continue = False
        collected = size is not None and len(conn.parser.unreader.buf.getvalue()) >= size
        if not collected and not self._uploads.take(conn.sharer):
            raise _BusyError
        try:
            allowed = body_seconds(self._settings.read_timeout, size or MAX_COLLECTED_BYTES)
            conn.sock.settimeout(None)
            with self._reaper.watch(conn.sock, allowed):
                read = self._copy(request, body)
        finally:
            conn.sock.settimeout(self._settings.write_timeout)
            if not collected:
                self._uploads.give_back(conn.sharer)
        if size is None:
            _declare(request, read)
        elif read < size:
            raise NoMoreData
        if read > self._max_body:
            request.force_close()
        body.seek(0)
        return body

    def _copy(self, request: Any, body: IO[bytes]) -> int:
        read = 0
        while read <= self._max_body and (piece := request.body.read(65536)):
            body.write(piece)
            read += len(piece)
        return read

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Send an error response in the usual format for requests that gunicorn rejects."""
        if isinstance(exc, ParseException):
            status, reason = _STATUSES.get(type(exc), (400, "Bad Request"))
            message = f"The request is malformed: {exc}"
            self.log.info("%s: rejected: %s", addr, exc)
        else:
            status, reason, message = 500, "Internal Server Error", "The server failed."
            self.log.error("Unexpected error", exc_info=exc)
        with contextlib.suppress(OSError):
            client.sendall(plain_error(status, reason, message[:400]))


class _BusyError(Exception):
    """The threads that may read large bodies are in use, and not too few of them by this caller."""


def _declared(request: Any) -> int | None:
    """Return the body's size according to the header; None for a chunked one."""
    fields = {name: value for name, value in request.headers}
    if "TRANSFER-ENCODING" in fields:
        return None
    return int(fields.get("CONTENT-LENGTH", 0))


def _declare(request: Any, size: int) -> None:
    """Set the Content-Length of a chunked body that has been read completely."""
    kept = [(n, v) for n, v in request.headers if n != "TRANSFER-ENCODING"]
    request.headers = [*kept, ("CONTENT-LENGTH", str(size))]
