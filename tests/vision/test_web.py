"""Pictures are fetched from public hosts, and nothing else is ever reached."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from oxibonsai.errors import RequestError
from oxibonsai.vision.decoding import ImageLimits
from oxibonsai.vision.image_input import read_url
from oxibonsai.vision.web import ImageFetcher
from public_addresses import PRIVATE, PUBLIC


class Site:
    """A local server that a fetcher takes for the whole public internet."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[tuple[str, str]] = []
        self.resolved: list[str] = []
        self.connected: list[str] = []
        self.addresses: dict[str, list[str]] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.headers["Host"], self.path))
                site.answers[self.path](self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fetcher(self, *, max_bytes: int = 1000, seconds: float = 5.0) -> ImageFetcher:
        return ImageFetcher(max_bytes, seconds, self._resolve, self._connect)

    def _resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        return self.addresses.get(host, [PUBLIC])

    def _connect(self, address: str, port: int, seconds: float) -> socket.socket:
        self.connected.append(address)
        return socket.create_connection(self._server.server_address[:2], timeout=seconds)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def sends(content: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def leads_to(url: str, status: int = 302) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", url)
        handler.end_headers()

    return answer


def test_a_picture_is_fetched_and_its_host_resolved_once(site: Site) -> None:
    site.answers["/a/cat.png?x=1"] = sends(b"the picture")
    assert site.fetcher().fetch("http://example.org/a/cat.png?x=1#top") == b"the picture"
    assert site.resolved == ["example.org"]
    assert site.connected == [PUBLIC]
    assert site.asked == [("example.org", "/a/cat.png?x=1")]


def test_redirects_are_followed_and_checked_anew(site: Site) -> None:
    site.answers["/"] = leads_to("/b")
    site.answers["/b"] = leads_to("http://other.example/c", 307)
    site.answers["/c"] = sends(b"here")
    assert site.fetcher().fetch("http://example.org") == b"here"
    assert site.resolved == ["example.org", "example.org", "other.example"]


@pytest.mark.parametrize("address", PRIVATE)
def test_no_address_but_a_public_one_is_reached(site: Site, address: str) -> None:
    site.addresses["inside.example"] = [address]
    site.addresses["both.example"] = [PUBLIC, address]
    site.answers["/"] = leads_to("http://inside.example/secret")
    for url in ("http://inside.example/", "http://both.example/"):
        with pytest.raises(RequestError, match="no public host"):
            site.fetcher().fetch(url)
    assert site.connected == []
    with pytest.raises(RequestError, match=r"inside\.example is no public host"):
        site.fetcher().fetch("http://example.org/")
    assert len(site.connected) == 1  # the one that leads there


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:7f00:1]",
        "0",
    ],
)
def test_this_machine_is_not_reached_under_any_spelling(host: str) -> None:
    def refuse(address: str, port: int, seconds: float) -> socket.socket:
        raise AssertionError(f"it connects to {address}")

    with pytest.raises(RequestError, match=r"no public host|name is unknown"):
        ImageFetcher(1000, connect=refuse).fetch(f"http://{host}:8080/")


def test_a_name_that_changes_its_address_is_asked_once_and_that_answer_used(site: Site) -> None:
    answers = [[PUBLIC], ["127.0.0.1"]]
    site.answers["/"] = sends(b"ok")

    def rebinding(host: str, port: int) -> list[str]:
        return answers.pop(0)

    fetcher = ImageFetcher(1000, 5.0, rebinding, site._connect)
    assert fetcher.fetch("http://rebind.example/") == b"ok"
    assert site.connected == [PUBLIC]
    with pytest.raises(RequestError, match="no public host"):
        fetcher.fetch("http://rebind.example/")


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.org/a.png", "gopher://example.org", "javascript:alert(1)",
     "//example.org/a", "http://", "http:///a", "http://user:pw@example.org/", "http://user@example.org/",
     "http://example.org:99999/", "http://example.org:0/", "http://example.org:x/", "http://[::1/",
     "http://exa mple.org/", "http://example.org/\r\nHost: evil", "http://example.org\\@evil/", "http://ex\u00e4.org/",
     "http://example.org/" + "a" * 3000, "", "unix:/run/docker.sock", "https:"],
)  # fmt: skip
def test_what_is_no_web_address_is_refused(site: Site, url: str) -> None:
    with pytest.raises(RequestError):
        read_url(url, ImageLimits(), site.fetcher().fetch)
    assert site.connected == []
    site.answers["/"] = leads_to(
        url.replace("\r", "").replace("\n", "").encode("ascii", "replace").decode()
    )
    with pytest.raises((RequestError, KeyError)):
        site.fetcher().fetch("http://example.org/")
    assert set(site.connected) <= {PUBLIC}


def test_too_many_redirects_end(site: Site) -> None:
    site.answers["/"] = leads_to("/")
    with pytest.raises(RequestError, match="more than 3 times"):
        site.fetcher().fetch("http://example.org/")
    assert len(site.asked) == 4


def test_size_is_limited_whatever_the_header_says(site: Site) -> None:
    site.answers["/fits"] = sends(bytes(1000))
    site.answers["/large"] = sends(bytes(1001))
    site.answers["/unsaid"] = sends(bytes(500_000), Content_Length="", Connection="close")
    site.answers["/cut"] = sends(bytes(10), Content_Length="500")
    assert len(site.fetcher().fetch("http://example.org/fits")) == 1000
    for path in ("large", "unsaid", "cut"):
        with pytest.raises(RequestError):
            site.fetcher().fetch(f"http://example.org/{path}")


def test_time_is_limited_where_a_host_sends_byte_after_byte(site: Site) -> None:
    ended = threading.Event()

    def drips(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not ended.wait(0.05):
                handler.wfile.write(b"x")
        except OSError:
            pass

    site.answers["/"] = drips
    try:
        with pytest.raises(RequestError, match=r"within 0\.5 s"):
            site.fetcher(max_bytes=10**9, seconds=0.5).fetch("http://example.org/")
    finally:
        ended.set()


@pytest.mark.parametrize("status", [204, 401, 404, 500])
def test_an_answer_that_is_no_picture_is_refused(site: Site, status: int) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()

    site.answers["/"] = answer
    with pytest.raises(RequestError, match=f"it answers {status}"):
        site.fetcher().fetch("http://example.org/")


def test_compressed_answers_and_downgrades_are_refused(site: Site) -> None:
    site.answers["/"] = sends(b"abc", Content_Encoding="gzip")
    with pytest.raises(RequestError, match="compresses"):
        site.fetcher().fetch("http://example.org/")


def test_https_needs_a_valid_certificate(site: Site) -> None:
    with pytest.raises(RequestError, match=r"cannot fetch a picture from example\.org"):
        site.fetcher().fetch("https://example.org/")


def test_proxies_are_left_aside(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    site.answers["/"] = sends(b"ok")
    assert site.fetcher().fetch("http://example.org/") == b"ok"


def test_without_a_fetcher_only_data_urls_are_read() -> None:
    limits = ImageLimits(max_bytes=10)
    assert read_url("data:image/png;base64,aGVs\nbG8=", limits, None) == b"hello"
    assert read_url("DATA:;BASE64,aGVsbG8=", limits, None) == b"hello"
    for url in (
        "https://example.org/a.png", "http://127.0.0.1/", "data:image/png,abc", "data:image/png;base64",
        "data:image/png;base64,???", "data:image/png;base64,aGVsbG8", "data:;base64," + "A" * 100,
    ):  # fmt: skip
        with pytest.raises(RequestError):
            read_url(url, limits, None)
