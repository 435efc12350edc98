"""A loopback web server that answers each request by the next line of a script."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

ETAG = '"first"'


class Request(BaseHTTPRequestHandler):
    """One request, with what a script needs to answer it."""

    web: ClassVar[Web]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.web.ranges.append(self.headers.get("Range", ""))
        self.web.secrets.append(self.headers.get("Authorization"))
        self.close_connection = True
        script = self.web.script
        answer = script.pop(0) if len(script) > 1 else script[0]
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has seen enough
            answer(self)

    @property
    def first(self) -> int:
        """The byte that was asked for."""
        asked = self.headers.get("Range", "bytes=0-")
        return int(asked.removeprefix("bytes=").split("-")[0])

    @property
    def last(self) -> int | None:
        """The byte to end with."""
        asked = self.headers.get("Range", "bytes=0-")
        end = asked.removeprefix("bytes=").split("-")[1]
        return int(end) if end else None

    def send(self, status: int, headers: dict[str, object], body: bytes = b"") -> None:
        """Exactly these headers, exactly this body, and the end of the connection."""
        self.send_response_only(status)
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.send_header("Connection", "close")
        self.end_headers()
        self.web.sent += len(body)
        self.wfile.write(body)


class Web:
    """The script, and what has been asked."""

    def __init__(self) -> None:
        self.script: list[Callable[[Request], None]] = []
        self.ranges: list[str] = []
        self.secrets: list[str | None] = []  # Authorization of each request
        self.sent = 0  # bytes of bodies
        self.url = ""
        self.stop = threading.Event()


@contextmanager
def running() -> Iterator[Web]:
    """A server on a free loopback port."""
    web = Web()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Request,), {"web": web}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    web.url = f"http://127.0.0.1:{server.server_port}/folder/file.bin"
    try:
        yield web
    finally:
        web.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


def serve(
    data: bytes,
    *,
    etag: str | None = ETAG,
    cut: int | None = None,
    ranges: bool = True,
    headers: dict[str, object] | None = None,
    most: int | None = None,
) -> Callable[[Request], None]:
    """An honest server of some bytes, or nearly.

    Args:
        data: The file.
        etag: Its tag.
        cut: Bytes of the body after which the connection breaks.
        ranges: Whether it knows ranges and preconditions.
        headers: To replace or (None) leave out.
        most: Bytes of a part at most.
    """

    def answer(request: Request) -> None:
        condition = request.headers.get("If-Range")
        partial = ranges and "Range" in request.headers and condition in (None, etag)
        first = request.first if partial else 0
        last = request.last if partial and request.last is not None else len(data) - 1
        last = min(last, len(data) - 1)
        if most is not None and partial:
            last = min(last, first + most - 1)
        body = data[first : last + 1]
        said: dict[str, object] = {"Content-Length": len(body)}
        if etag is not None:
            said["ETag"] = etag
        if partial:
            said["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        said |= headers or {}
        kept = {k: v for k, v in said.items() if v is not None}
        request.send(206 if partial else 200, kept, body[:cut])

    return answer


def status(code: int, headers: dict[str, object] | None = None) -> Callable[[Request], None]:
    """A status and nothing else."""
    return lambda request: request.send(code, {"Content-Length": 0, **(headers or {})})


def hang(data: bytes, after: int) -> Callable[[Request], None]:
    """Sends a part of the body and then nothing, until the server stops or the client goes."""

    def answer(request: Request) -> None:
        body = data[request.first :]
        partial = "Range" in request.headers
        said = {
            "Content-Length": len(body),
            "ETag": ETAG,
        }
        if partial:
            said["Content-Range"] = f"bytes {request.first}-{len(data) - 1}/{len(data)}"
        request.send_response_only(206 if partial else 200)
        for key, value in said.items():
            request.send_header(key, str(value))
        request.end_headers()
        request.wfile.write(body[:after])
        request.wfile.flush()
        request.web.sent += after
        request.connection.settimeout(0.05)
        while not request.web.stop.is_set():
            try:
                if request.connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue

    return answer


def chunked(data: bytes, *, complete: bool = True) -> Callable[[Request], None]:
    """A body without a length, in chunks."""

    def answer(request: Request) -> None:
        request.send(200, {"Transfer-Encoding": "chunked"})
        for start in range(0, len(data), 10_000):
            piece = data[start : start + 10_000]
            request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if complete:
            request.wfile.write(b"0\r\n\r\n")

    return answer


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns when it holds."""
    while not condition():
        time.sleep(0.005)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
