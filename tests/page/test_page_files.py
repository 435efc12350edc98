"""The page's files and their headers; no browser needed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

import oxibonsai.server.page as page_module
from oxibonsai.server.page import CONTENT_SECURITY_POLICY, page

STATIC = Path(page_module.__file__).with_name("static")
NAMES = sorted(path.name for path in STATIC.iterdir() if path.is_file())
VENDOR = STATIC / "vendor"
SCRIPTS = sorted(
    path.relative_to(VENDOR).as_posix()
    for path in VENDOR.rglob("*")
    if path.suffix in (".js", ".css", ".woff2")
)


@pytest.fixture
def client() -> FlaskClient:
    app = Flask("page-only", static_folder=None)
    app.register_blueprint(page)
    return app.test_client()


@pytest.mark.parametrize(
    "address",
    ["/", *(f"/ui/{name}" for name in NAMES), *(f"/ui/vendor/{name}" for name in SCRIPTS)],
)
def test_every_file_is_served_with_strict_headers(client: FlaskClient, address: str) -> None:
    with client.get(address) as answer:
        assert answer.status_code == 200
        assert len(answer.data) > 100
    assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-cache"
    with client.get(address, headers={"If-None-Match": answer.headers["ETag"]}) as again:
        assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(
    ("address", "media_type"),
    [("/", "text/html"), ("/ui/app.js", "text/javascript"), ("/ui/style.css", "text/css"),
     ("/ui/icon.svg", "image/svg+xml"), ("/ui/vendor/katex.min.css", "text/css"),
     ("/ui/vendor/fonts/KaTeX_Main-Regular.woff2", "font/woff2")],
)  # fmt: skip
def test_types_do_not_depend_on_the_system(
    client: FlaskClient, address: str, media_type: str
) -> None:
    with client.get(address) as answer:
        assert answer.mimetype == media_type


@pytest.mark.parametrize(
    "name", ["none.js", "..%2fpage.py", "../page.py", "%2e%2e/page.py", "page.py", ".js", "a%00.js"]
)
def test_nothing_else_is_served(client: FlaskClient, name: str) -> None:
    with client.get(f"/ui/{name}") as answer:
        assert answer.status_code == 404


@pytest.mark.parametrize(
    "name",
    [
        "versions.json",
        "LICENSE-marked",
        "../app.js",
        "..%2fapp.js",
        "fonts/..%2f..%2fapp.js",
        "fonts",
    ],
)
def test_of_the_scripts_of_others_only_the_scripts_are_served(
    client: FlaskClient, name: str
) -> None:
    with client.get(f"/ui/vendor/{name}") as answer:
        assert answer.status_code == 404


def test_the_scripts_of_others_are_the_recorded_ones() -> None:
    """Byte for byte as their packages on npm have them; third_party/renew_page_scripts.py renews them."""
    record = json.loads((VENDOR / "versions.json").read_text())
    recorded = {name: value for entry in record for name, value in entry["sha256"].items()}
    files = {
        path.relative_to(VENDOR).as_posix(): path.read_bytes()
        for path in VENDOR.rglob("*")
        if path.is_file()
    }
    del files["versions.json"]
    assert {name: hashlib.sha256(data).hexdigest() for name, data in files.items()} == recorded
    for entry in record:
        assert f"LICENSE-{entry['name']}" in files
        (script,) = (name for name in entry["sha256"] if name.endswith(".js"))
        assert entry["version"] in files[script].decode()


def test_the_policy_lets_nothing_inline_run_and_nothing_leave() -> None:
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "*" not in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY


def test_files_name_no_other_host_and_no_absolute_path() -> None:
    for name in NAMES:
        text = (STATIC / name).read_text()
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}, name
        assert not re.search(r"""(?:src|href|from|fetch\()\s*=?\s*["']/""", text), name
        assert "innerHTML" not in text, name
    html = (STATIC / "index.html").read_text()
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]+src=)", html)
