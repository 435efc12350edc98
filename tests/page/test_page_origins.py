"""A real server and pages of other names: its own page works, theirs get and change nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from real_server import real_server
from running_server import RunningServer

from page.fake_api import FakeApi, serving
from page.visitor import Visitor

pytestmark = pytest.mark.slow


class Elsewhere(FakeApi):
    """A site of somebody else's, under any name that ends in .test."""

    def app(self) -> Flask:
        app = Flask("elsewhere", static_folder=None)
        app.add_url_rule("/", "index", lambda: "<!doctype html><title>elsewhere</title>")
        return app

    def at(self, name: str) -> str:
        return self.url.replace("127.0.0.1", name).rstrip("/")


@dataclass
class Sites:
    server: RunningServer
    elsewhere: Elsewhere


def has_ipv6() -> bool:
    try:
        with closing(socket.socket(socket.AF_INET6)) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    folder = tmp_path_factory.mktemp("origins")
    with serving(Elsewhere()) as elsewhere:
        assert isinstance(elsewhere, Elsewhere)
        hosts = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]
        flags = [part for host in hosts for part in ("--host", host)]
        flags += ["--allowed-host", "named.test", "--cors-origins", elsewhere.at("friend.test")]
        with real_server(Path("seedling-ternary"), folder, *flags, "--n-predict", "8") as server:
            yield Sites(server, elsewhere)


def call(chromium: Any, url: str, options: str) -> Any:
    """What a page's ``fetch`` comes to: the status, or the name of the error."""
    script = (
        "const done = arguments[arguments.length - 1];"
        f"fetch({url!r}, {options}).then(a => done(a.status), e => done(e.name));"
    )
    return chromium.execute_async_script(script)


UPLOAD = """(() => {
  const body = new FormData();
  body.append("purpose", "user_data");
  body.append("file", new Blob(["x"]), "a.txt");
  return { method: "POST", body, mode: "%s" };
})()"""
CHAT = """{ method: "POST", headers: { "Content-Type": "application/json" },
  body: '{"prompt": "a", "max_tokens": 1}' }"""


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "named.test"])
def test_the_page_works_under_each_name_of_the_server(
    chromium: Any, sites: Sites, tmp_path: Path, name: str
) -> None:
    if name == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    visitor = Visitor(chromium, FakeApi(url=f"http://{name}:{sites.server.port}/"), tmp_path)
    visitor.open(1200, 800, False)
    assert visitor.notice == ""
    visitor.ask("Once upon a time")
    (answer,) = visitor.answers
    assert answer.strip()
    visitor.leave()


def test_a_name_that_was_pointed_at_the_server_gets_nothing(chromium: Any, sites: Sites) -> None:
    own = f"http://evil.test:{sites.server.port}"
    chromium.get(f"{own}/v1/files")
    assert "--allowed-host evil.test" in chromium.page_source
    # A page there is of one origin with the server, as far as the browser knows.
    for path, options in (
        ("/v1/files", "{}"),
        ("/v1/models", "{}"),
        ("/v1/files", UPLOAD % "same-origin"),
        ("/v1/completions", CHAT),
    ):
        assert call(chromium, f"{own}{path}", options) == 403, path
    assert sites.server.ask("/v1/files")[2]["data"] == []


def test_a_page_of_another_site_changes_nothing_and_an_allowed_one_may(
    chromium: Any, sites: Sites
) -> None:
    server = f"http://localhost:{sites.server.port}"
    # Another port of this machine is another site too.
    for name in ("evil.test", "localhost"):
        chromium.get(sites.elsewhere.at(name))
        assert call(chromium, f"{server}/v1/files", UPLOAD % "no-cors") == 0  # hidden from it
        assert call(chromium, f"{server}/v1/files", UPLOAD % "cors") == "TypeError"
        assert call(chromium, f"{server}/v1/models", "{}") == "TypeError"
        assert sites.server.ask("/v1/files")[2]["data"] == []
    chromium.get(sites.elsewhere.at("friend.test"))
    assert call(chromium, f"{server}/v1/files", UPLOAD % "cors") == 200
    assert call(chromium, f"{server}/v1/models", "{headers: {'X-Api-Key': 'x'}}") == 200
    assert len(sites.server.ask("/v1/files")[2]["data"]) == 1
