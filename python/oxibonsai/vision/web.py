"""Fetches images from the web, and from nowhere else.

What a public host is: :mod:`oxibonsai.sources.public_hosts`. Proxies of the environment are left aside,
since they would resolve the name again.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from oxibonsai.errors import RequestError
from oxibonsai.sources.public_hosts import Resolve, public_address, resolve

Connect = Callable[[str, int, float], socket.socket]  # address, port, seconds

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 3
_MOST_URL = 2048  # characters
_CHUNK = 1 << 16


def connect(address: str, port: int, seconds: float) -> socket.socket:
    """Return a connection to an address; nothing is resolved."""
    return socket.create_connection((address, port), timeout=seconds)


@dataclass(frozen=True)
class ImageFetcher:
    """Fetches files over HTTP from public addresses.

    Attributes:
        max_bytes: Of a file.
        seconds: Of a fetch, redirects included; looking a name up is bound by the system's resolver.
        resolve: Finds a host's addresses.
        connect: Connects to one of them.
    """

    max_bytes: int
    seconds: float = 10.0
    resolve: Resolve = resolve
    connect: Connect = connect

    def fetch(self, url: str) -> bytes:
        """Return the content of an address.

        Raises:
            RequestError: It is no http or https address, leads elsewhere than to public hosts, or the
                content is too large; or the host can't be reached, is too slow, or refuses.
        """
        deadline = time.monotonic() + self.seconds
        for _ in range(_MOST_REDIRECTS + 1):
            parts = _parsed(url)
            found = self._get(parts, deadline)
            if isinstance(found, bytes):
                return found
            url = _joined(url, found)
            if parts.scheme == "https" and not url.lower().startswith("https:"):
                raise RequestError("the picture's address leads from https to another scheme")
        raise RequestError(f"the picture's address leads on more than {_MOST_REDIRECTS} times")

    def _get(self, parts: SplitResult, deadline: float) -> bytes | str:
        """Return the content, or where it is instead."""
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = self._public_address(host, port)
        if time.monotonic() >= deadline:
            raise self._too_slow(host)
        watch: threading.Timer | None = None
        try:
            with self.connect(address, port, self._left(deadline, host)) as plain:
                # The socket's own timeout is one of each read: a host could send byte after byte.
                guard = plain.dup()
                watch = threading.Timer(self._left(deadline, host), _shut, [guard])
                watch.daemon = True
                watch.start()
                try:
                    sock = plain
                    if parts.scheme == "https":
                        context = ssl.create_default_context()
                        sock = context.wrap_socket(plain, server_hostname=host)
                    with sock:
                        found = self._exchange(sock, parts, port)
                    self._left(deadline, host)  # an answer without a length ends where it is cut
                    return found
                finally:
                    watch.cancel()
                    guard.close()
        except RequestError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as e:
            if time.monotonic() >= deadline:
                raise self._too_slow(host) from e
            raise RequestError(f"cannot fetch a picture from {host}: {_reason(e)}") from e

    def _exchange(self, sock: socket.socket, parts: SplitResult, port: int) -> bytes | str:
        host = parts.hostname or ""
        connection = http.client.HTTPConnection(host, port)
        connection.sock = sock
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Host": parts.netloc,
            "Accept": "image/png, image/jpeg, image/webp, image/gif",
            "Accept-Encoding": "identity",
            "User-Agent": "oxibonsai",
            "Connection": "close",
        }
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        location = answer.getheader("Location")
        if answer.status in _REDIRECTS and location:
            return location
        if answer.status != 200:
            raise RequestError(f"cannot fetch a picture from {host}: it answers {answer.status}")
        if answer.getheader("Content-Encoding", "identity") != "identity":
            raise RequestError(f"cannot fetch a picture from {host}: it compresses what it sends")
        return self._read(answer)

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        content = bytearray()
        while piece := answer.read(_CHUNK):
            content += piece
            if len(content) > self.max_bytes:
                raise RequestError(f"the picture has more than {self.max_bytes} bytes")
        if answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
        return bytes(content)

    def _public_address(self, host: str, port: int) -> str:
        try:
            address = public_address(host, port, self.resolve)
        except (OSError, UnicodeError) as e:
            raise RequestError(f"cannot fetch a picture from {host}: the name is unknown") from e
        if address is None:
            raise RequestError(
                f"{host} is no public host: pictures are fetched from the public internet only; send "
                "the picture itself as a data: URL"
            )
        return address

    def _left(self, deadline: float, host: str) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._too_slow(host)
        return left

    def _too_slow(self, host: str) -> RequestError:
        return RequestError(f"cannot fetch a picture from {host} within {self.seconds:g} s")


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as e:
        raise RequestError("the picture's address leads to what is no URL") from e


def _parsed(url: str) -> SplitResult:
    if len(url) > _MOST_URL:
        raise RequestError(f"the picture's address has more than {_MOST_URL} characters")
    if any(c <= " " or c == "\x7f" or c == "\\" for c in url) or not url.isascii():
        raise RequestError("the picture's address has characters that no address has: encode them")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise RequestError("the picture's address is no URL") from e
    if parts.scheme not in ("http", "https"):
        raise RequestError(
            f"a picture's address begins with http://, https:// or data:, not {parts.scheme[:20]}:"
        )
    if not parts.hostname or parts.username is not None or parts.password is not None or port == 0:
        raise RequestError("the picture's address must have a host, and neither user nor password")
    return parts


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason or 'the certificate is not valid'}"
    if isinstance(error, OSError):
        return error.strerror or "the connection fails"
    return "its answer is no HTTP"
