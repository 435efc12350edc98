"""Under which names the server answers: a page that had its own name resolved to us gets nothing."""

from __future__ import annotations

import io

import pytest
from fake_backend import MakeApp
from url_sweep import assert_error_object

from oxibonsai.errors import RequestError
from oxibonsai.server.setting_sources import load_settings

OURS = (
    "localhost",
    "LOCALHOST",
    "localhost.",
    "app.localhost",
    "127.0.0.1",
    "[::1]",
    "192.168.1.5",
)
FOREIGN = (
    "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "evil@localhost",
    "localhost:80:80", "[evil.example]", "2130706433", "127.0.0.1 evil.example",
)  # fmt: skip


@pytest.mark.parametrize("port", ["", ":8080"])
@pytest.mark.parametrize("host", OURS)
def test_without_keys_localhost_and_addresses_are_ours(
    make_app: MakeApp, host: str, port: str
) -> None:
    client = make_app().test_client()
    assert client.get("/v1/files", headers={"Host": host + port}).status_code == 200
    assert client.get("/", headers={"Host": host + port}, buffered=True).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_without_keys_no_other_name_is(make_app: MakeApp, host: str) -> None:
    client = make_app().test_client()
    for path in ("/v1/files", "/v1/models", "/", "/slots", "/no/such/route"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == 403, path
        assert_error_object(answer)
        assert answer.get_json()["error"]["code"] == "host_not_allowed"
    form = {"file": (io.BytesIO(b"x"), "a.txt"), "purpose": "user_data"}
    assert client.post("/v1/files", data=form, headers={"Host": host}).status_code == 403


def test_the_refusal_says_how_to_allow_the_name(make_app: MakeApp) -> None:
    answer = make_app().test_client().get("/v1/models", headers={"Host": "box.lan:8080"})
    assert "--allowed-host box.lan" in answer.get_json()["error"]["message"]


def test_names_of_the_settings_are_ours(make_app: MakeApp) -> None:
    told = make_app(allowed_hosts="box.lan,Models.Example.org", host="here.lan", allow_public=True)
    client = told.test_client()
    for host in ("box.lan", "BOX.lan:8080", "models.example.org", "here.lan", "localhost"):
        assert client.get("/v1/models", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "a.box.lan", "lan"):
        assert client.get("/v1/models", headers={"Host": host}).status_code == 403, host
    every = make_app(allowed_hosts="*").test_client()
    assert every.get("/v1/models", headers={"Host": "evil.example"}).status_code == 200


def test_with_keys_every_name_will_do(make_app: MakeApp) -> None:
    client = make_app(api_key="good").test_client()
    host = {"Host": "models.example.org"}
    assert client.get("/v1/models", headers={**host, "X-Api-Key": "good"}).status_code == 200
    assert client.get("/v1/models", headers=host).status_code == 401
    assert client.get("/", headers=host, buffered=True).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/livez", "/readyz"])
def test_probes_come_under_any_name(make_app: MakeApp, path: str) -> None:
    client = make_app(metrics=True).test_client()
    assert client.get(path, headers={"Host": "pod-7.cluster"}).status_code == 200
    # It tells when the model is used, and how much.
    assert client.get("/metrics", headers={"Host": "pod-7.cluster"}).status_code == 403


@pytest.mark.parametrize("name", ["http://box.lan", "box.lan:8080", "box.lan/", "a b", "[::1]"])
def test_what_is_no_name_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(RequestError, match="without scheme, port and path"):
        load_settings({"allowed_hosts": (name,)}, {})
