"""Addresses that come from elsewhere lead to public hosts, whatever the names and servers say."""

from __future__ import annotations

from pathlib import Path

import httpx2
import lying_server
import pytest
from lying_server import serve, status

from oxibonsai.sources import public_hosts
from oxibonsai.sources.download import Patience, download
from oxibonsai.sources.http import Unreachable
from oxibonsai.sources.public_hosts import Refused, is_public, resolve
from public_addresses import ALSO_PUBLIC, PRIVATE, PUBLIC

ONCE = Patience(tries=1, delay=0.01, timeout=2)


class Internet:
    """Resolves names by a table, and answers requests by their Host: what is asked and where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses = {"public.example": [PUBLIC]}
        self.answers: dict[str, httpx2.Response] = {}
        self.asked: list[tuple[str, str]] = []
        self.server_names: list[str] = []
        monkeypatch.setattr(public_hosts, "resolve", self._resolve)
        monkeypatch.setattr(
            httpx2.HTTPTransport, "handle_request", lambda _, request: self._answer(request)
        )

    def _resolve(self, host: str, port: int) -> list[str]:
        return self.addresses.get(host) or resolve(host, port)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append((request.url.host, str(request.headers["host"])))
        self.server_names.append(request.extensions["sni_hostname"])
        return self.answers[f"{request.headers['host']}{request.url.path}"]


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    return Internet(monkeypatch)


def file(content: bytes) -> httpx2.Response:
    headers = {"Content-Length": str(len(content))}
    return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(content))


def leads_to(url: str) -> httpx2.Response:
    return httpx2.Response(302, headers={"Location": url})


@pytest.mark.parametrize("address", [PUBLIC, *ALSO_PUBLIC])
def test_public_addresses_are_known(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public_are_known(address: str) -> None:
    assert not is_public(address)


def test_the_systems_resolver_is_used_by_default() -> None:
    assert "127.0.0.1" in resolve("127.0.0.1", 80)


def test_a_checked_address_is_connected_to_under_the_hosts_name(
    internet: Internet, tmp_path: Path
) -> None:
    internet.addresses["six.example"] = ["2606:4700::1111"]
    internet.answers["public.example/a"] = leads_to("https://six.example:444/b")
    internet.answers["six.example:444/b"] = file(b"the file")
    download("https://public.example/a", tmp_path / "file", public_only=True)
    assert (tmp_path / "file").read_bytes() == b"the file"
    assert internet.asked == [(PUBLIC, "public.example"), ("2606:4700::1111", "six.example:444")]
    assert internet.server_names == ["public.example", "six.example"]  # certificates are for names


@pytest.mark.parametrize("address", PRIVATE)
def test_no_other_address_is_asked(internet: Internet, tmp_path: Path, address: str) -> None:
    internet.addresses |= {"inside.example": [address], "both.example": [PUBLIC, address]}
    internet.answers["public.example/"] = leads_to("http://inside.example/secret")
    for host in ("inside.example", "both.example", "public.example"):
        with pytest.raises(Refused, match="no public host"):
            download(f"http://{host}/", tmp_path / "file", patience=ONCE, public_only=True)
    assert internet.asked == [(PUBLIC, "public.example")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]",
     "[::ffff:7f00:1]", "0"],
)  # fmt: skip
def test_this_machine_is_not_reached_under_any_spelling(
    internet: Internet, tmp_path: Path, host: str
) -> None:
    internet.answers["public.example/"] = leads_to(f"http://{host}:8080/")
    for url in (f"http://{host}:8080/", "http://public.example/"):
        with pytest.raises(
            (Refused, Unreachable), match=r"no public host|is unknown|Invalid IPv4 address"
        ):
            download(url, tmp_path / "file", patience=ONCE, public_only=True)
    assert {host for host, _ in internet.asked} == {PUBLIC}


def test_a_redirect_to_no_web_address_is_refused(internet: Internet, tmp_path: Path) -> None:
    internet.answers["public.example/"] = leads_to("ftp://public.example/")
    with pytest.raises(Refused):
        download("http://public.example/", tmp_path / "file", patience=ONCE, public_only=True)


def test_proxies_are_left_aside(
    internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    internet.answers["public.example/"] = file(b"ok")
    download("http://public.example/", tmp_path / "file", public_only=True)
    assert internet.asked == [(PUBLIC, "public.example")]


def test_what_the_user_names_may_lie_anywhere(tmp_path: Path) -> None:
    with lying_server.running() as web:
        web.script = [serve(b"ok")]
        download(web.url, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == b"ok"
        web.script = [status(404)]
        with pytest.raises(Refused, match="404"):
            download(web.url, tmp_path / "other")
    with pytest.raises(Unreachable):
        download(web.url, tmp_path / "other", patience=ONCE)
