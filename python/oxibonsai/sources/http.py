"""One answer of a web server: what it claims to send, checked before a byte of it is believed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from oxibonsai.errors import SourceError
from oxibonsai.sources.partial_file import Version
from oxibonsai.sources.public_hosts import Refused

if TYPE_CHECKING:
    import httpx2

_MAX_REDIRECTS = 10
_LONGEST_WAIT = 60.0  # seconds that a server may ask us to wait
_MAX_BYTES = 1 << 50  # no file is larger; a claim beyond it would overflow what counts with it
_BUSY = frozenset({408, 425, 429})  # HTTP statuses that pass, beside 5xx
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_SCHEMES = ("http://", "https://")


class Unreachable(SourceError):
    """A server that can't be asked now."""


class Passing(Exception):
    """A failure after which the same request may succeed.

    Attributes:
        wait: Seconds that the server asks to wait; None where it does not say.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class Contradiction(Exception):
    """An answer that does not go with what was asked or has come before: start over."""


@dataclass(frozen=True)
class Answer:
    """A body that is about to come.

    Attributes:
        first: Position in the file of its first byte.
        count: Bytes that will come; None where the server does not say.
        version: Of the whole file.
        response: The open response, for its bytes.
    """

    first: int
    count: int | None
    version: Version
    response: httpx2.Response

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes as they come.

        Raises:
            Passing: The connection broke or stalled.
        """
        with _passing_faults():
            yield from self.response.iter_raw()


def is_url(text: str) -> bool:
    """Return whether this names something on the web."""
    return text.lower().startswith(_SCHEMES)


def file_name(url: str) -> str | None:
    """Return the file name in a URL's path; None where that is no name for a file here."""
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    return None if name in ("", ".", "..") or "\0" in name else name


@contextmanager
def web_client(
    timeout: float, headers: Mapping[str, str] | None = None, *, public_only: bool = False
) -> Iterator[httpx2.Client]:
    """Make a client whose every wait ends after ``timeout`` seconds.

    Args:
        timeout: Seconds.
        headers: Sent with every request.
        public_only: Reach public hosts only, also where a server redirects to others: for addresses
            that come from elsewhere.
    """
    import httpx2

    transport = None
    if public_only:
        from oxibonsai.sources.public_hosts import PublicTransport

        transport = PublicTransport()
    # Bytes must come as they are: a packed body has no ranges and no length of its own.
    own = {"Accept-Encoding": "identity", "User-Agent": "oxibonsai"}
    with httpx2.Client(
        headers={**(headers or {}), **own},
        timeout=timeout,
        follow_redirects=True,
        max_redirects=_MAX_REDIRECTS,
        transport=transport,
    ) as client:
        yield client


@contextmanager
def asked(
    client: httpx2.Client, url: str, first: int, version: Version, last: int | None = None
) -> Iterator[Answer]:
    """Ask for the bytes from ``first`` on, of the version that the bytes before were of.

    The answer may begin at 0 instead, where the server has another version or knows no ranges.

    Args:
        client: From :func:`web_client`.
        url: Of the file.
        first: Byte to begin with.
        version: Of the bytes before it.
        last: Byte to end with; None: the file's last.

    Raises:
        Passing: Trying again may help.
        Contradiction: The answer is not to what was asked.
        Refused: The server refuses.
        SourceError: What it sends can't be checked.
    """
    import httpx2

    headers = {}
    if first or last is not None:
        headers["Range"] = f"bytes={first}-{'' if last is None else last}"
        if first and version.precondition is not None:
            headers["If-Range"] = version.precondition
    try:
        with _passing_faults(), client.stream("GET", url, headers=headers) as response:
            _check_redirects(response)
            yield _read_answer(response, first, ranged="Range" in headers)
    except httpx2.TooManyRedirects as e:
        raise Refused(f"{url} is redirected more than {_MAX_REDIRECTS} times") from e
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as e:
        raise Refused(f"{url} leads to no web address: {e}") from e


@contextmanager
def _passing_faults() -> Iterator[None]:
    import httpx2

    try:
        yield
    except httpx2.UnsupportedProtocol:
        raise
    except httpx2.TimeoutException as e:
        raise Passing("the server does not answer in time") from e
    except httpx2.TransportError as e:
        raise Passing(str(e).strip() or "the connection broke") from e


def _check_redirects(response: httpx2.Response) -> None:
    schemes = [r.url.scheme for r in (*response.history, response)]
    if "https" in schemes and schemes[-1] != "https":
        raise Refused(f"{response.history[0].url} is redirected from https to plain http")


def _read_answer(response: httpx2.Response, first: int, *, ranged: bool) -> Answer:
    status = response.status_code
    headers = response.headers
    if status == 416 and first:
        raise Contradiction("the server has no bytes where the rest should begin")
    if status in _BUSY or status >= 500:
        raise Passing(f"the server answers with status {status}", _wait(headers.get("retry-after")))
    if status not in (200, 206):
        raise Refused(f"{response.url} is refused with status {status} {response.reason_phrase}")
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise SourceError(
            f"{response.url} comes packed ({headers['content-encoding']}) though it was asked for as "
            "it is: its size can't be checked"
        )
    length = headers.get("content-length")
    count = int(length) if length is not None and re.fullmatch(r"\d{1,18}", length) else None
    etag, modified = headers.get("etag"), headers.get("last-modified")
    if status == 200:
        _check_size(response, count)
        return Answer(0, count, Version(count, etag, modified), response)
    if not ranged:
        raise Contradiction("the server sends a part though all was asked for")
    begin, end, size = _content_range(headers.get("content-range", ""))
    if begin != first or (count is not None and count != end - begin + 1):
        raise Contradiction("the server sends another part than was asked for")
    _check_size(response, size)
    return Answer(begin, end - begin + 1, Version(size, etag, modified), response)


def _content_range(text: str) -> tuple[int, int, int | None]:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise Contradiction("the server does not say which part it sends")
    begin, end = int(match[1]), int(match[2])
    size = None if match[3] == "*" else int(match[3])
    if end < begin or (size is not None and end >= size):
        raise Contradiction(f"the server sends a part that can't be: {text}")
    return begin, end, size


def _check_size(response: httpx2.Response, size: int | None) -> None:
    if size is not None and not 0 < size <= _MAX_BYTES:
        raise SourceError(f"{response.url} is a file of {size} bytes, the server says")


def _wait(text: str | None) -> float | None:
    """Return the seconds of a Retry-After; the form with a date is left to our own patience."""
    if text is None or not re.fullmatch(r"\d{1,9}", text.strip()):
        return None
    return min(float(text), _LONGEST_WAIT)
