"""Pages of other sites change nothing, whether they ask first or not."""

from __future__ import annotations

import io
from typing import Any

import pytest
from fake_backend import MakeApp
from url_sweep import all_calls, assert_error_object

EVIL = {"Origin": "http://evil.example"}
KEY = {"X-Api-Key": "good"}


def upload() -> dict[str, Any]:
    """What a form of any page can send without asking first."""
    return {"data": {"file": (io.BytesIO(b"x"), "a.txt"), "purpose": "user_data"}}


@pytest.mark.parametrize("key", [{}, KEY])
@pytest.mark.parametrize(
    "headers",
    [
        EVIL,
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "localhost"},
        {"Origin": "http://localhost http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "none", **EVIL},
    ],
)
def test_a_write_of_another_site_is_refused(
    make_app: MakeApp, headers: dict[str, str], key: dict[str, str]
) -> None:
    client = make_app(**({"api_key": "good"} if key else {})).test_client()
    sent = {**headers, **key}
    answer = client.post("/v1/files", **upload(), headers=sent)
    assert answer.status_code == 403
    assert_error_object(answer)
    assert answer.get_json()["error"]["code"] == "origin_not_allowed"
    assert "--cors-origins" in answer.get_json()["error"]["message"]
    assert client.get("/v1/files", headers=key).get_json()["data"] == []


def test_no_route_takes_a_write_of_another_site(make_app: MakeApp) -> None:
    client = make_app().test_client()
    count = 0
    for method, path, rule in all_calls(client.application):
        answer = client.open(path, method=method, headers=EVIL)
        answer.close()  # a stream of events has no end
        writes = method not in ("GET", "HEAD", "OPTIONS")
        assert (answer.status_code == 403) == writes, (method, rule)
        count += writes
    assert count >= 20


@pytest.mark.parametrize(
    "headers",
    [
        {},  # a program
        {"Origin": "http://localhost"},
        {"Origin": "https://localhost"},  # a proxy took TLS off
        {"Origin": "http://box.lan:8080", "Host": "box.lan:8080"},
        {"Origin": "http://[::1]:8080", "Host": "[::1]:8080"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"},
        # A proxy that writes a Host of its own: the browser knows better.
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://models.example.org"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_the_servers_own_page_and_programs_may_write(
    make_app: MakeApp, headers: dict[str, str]
) -> None:
    client = make_app(allowed_hosts="box.lan").test_client()
    assert client.post("/v1/files", **upload(), headers=headers).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_an_allowed_origin_may_write(make_app: MakeApp, site: str) -> None:
    client = make_app(cors_origins="https://page.example/,localhost").test_client()
    for origin in ("https://page.example", "http://localhost:3000"):
        headers = {"Origin": origin, "Sec-Fetch-Site": site}
        assert client.post("/v1/files", **upload(), headers=headers).status_code == 200
    headers = {**EVIL, "Sec-Fetch-Site": site}
    assert client.post("/v1/files", **upload(), headers=headers).status_code == 403
    every = make_app(cors_origins="*").test_client()
    assert every.post("/v1/files", **upload(), headers=headers).status_code == 200


def test_a_link_on_another_site_opens_the_page(make_app: MakeApp) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    client = make_app().test_client()
    assert client.get("/", headers=link, buffered=True).status_code == 200
