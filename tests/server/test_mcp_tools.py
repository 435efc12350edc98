"""/tools: tools of MCP servers are listed and called, by those who may."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

sys.path.append(str(Path(__file__).parents[1] / "mcp_servers"))

from fake_backend import MakeApp
from flask.testing import FlaskClient
from given_servers import is_running, program, write_config
from model_app import close_model_app, make_model_app
from running_server import running_server, wait_until

import tiny_model
from oxibonsai import RequestError
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings

KEYS = {"api_key": ("user",), "admin_key": ("owner",)}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path, t=program(env={"NOTES": str(tmp_path / "notes")}))


@pytest.fixture
def app(make_app: MakeApp, config: Path) -> Iterator[Server]:
    app = make_app(mcp_servers_config=config)
    yield app
    assert app.mcp is not None
    app.mcp.close()


@pytest.fixture
def guarded(make_app: MakeApp, config: Path) -> Iterator[FlaskClient]:
    """A server with an API key and an admin key."""
    app = make_app(mcp_servers_config=config, **KEYS)
    yield app.test_client()
    assert app.mcp is not None
    app.mcp.close()


def call(client: FlaskClient, tool: str, params: Any = None, **options: Any) -> Any:
    return client.post("/tools", json={"tool": tool, "params": params or {}}, **options)


def test_tools_are_listed_as_llama_server_does(client: FlaskClient) -> None:
    tools = {t["tool"]: t for t in client.get("/tools").get_json()}
    add = tools["t_add"]
    assert (add["type"], add["server"], add["display_name"]) == ("mcp", "t", "add")
    assert add["permissions"] == {"write": False}
    assert tools["t_note"]["permissions"] == {"write": True}
    assert add["definition"]["type"] == "function"
    assert add["definition"]["function"]["name"] == "t_add"


def test_a_call_gives_plain_text_or_an_error(client: FlaskClient) -> None:
    assert call(client, "t_add", {"a": 1, "b": 2}).get_json() == {"plain_text_response": "3"}
    failed = call(client, "t_broken")
    assert failed.status_code == 200
    assert "broken" in failed.get_json()["error"]


def test_a_call_of_no_tool_is_404(client: FlaskClient) -> None:
    for name in ("t_nothing", "add", "../t_add"):
        response = call(client, name)
        assert response.status_code == 404
        assert response.get_json()["error"]["code"] == "tool_not_found"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"params": {}}, "tool"),
        ({"tool": 1}, "tool"),
        ({"tool": "t_add", "params": []}, "params"),
        ({"tool": "t_add", "server": {"url": "http://127.0.0.1"}}, "there is no such field"),
        ({"tool": "t_add", "stream": True}, "stream is not supported"),
    ],
)
def test_a_wrong_body_is_named(client: FlaskClient, body: Any, message: str) -> None:
    response = client.post("/tools", json=body)
    assert response.status_code == 400
    assert message in response.get_json()["error"]["message"]


def test_large_bodies_are_refused(make_app: MakeApp, config: Path) -> None:
    app = make_app(mcp_servers_config=config, max_body_mb=0.01)
    response = call(app.test_client(), "t_note", {"text": "x" * 20_000})
    assert response.status_code == 413
    assert app.mcp is not None
    app.mcp.close()


def test_the_state_of_a_server_that_died_is_told(client: FlaskClient) -> None:
    assert client.get("/tools").status_code == 200
    (state,) = client.get("/v1/mcp/servers").get_json()["data"]
    assert (state["name"], state["status"], state["transport"]) == ("t", "ready", "stdio")
    assert "ended during the call" in call(client, "t_die").get_json()["error"]

    def state_now() -> Any:
        return client.get("/v1/mcp/servers").get_json()["data"][0]

    assert state_now()["status"] == "failed"
    # The end of its output may come before the last line of its errors.
    wait_until(lambda: "I have had enough" in state_now()["error"])
    wait_until(lambda: "plain_text_response" in call(client, "t_add", {"a": 1, "b": 2}).get_json())


def test_without_a_configuration_there_are_no_tools(make_app: MakeApp) -> None:
    client = make_app().test_client()
    assert client.get("/tools").get_json() == []
    assert client.get("/v1/mcp/servers").get_json()["data"] == []
    assert "--mcp-servers-config" in call(client, "t_add").get_json()["error"]["message"]
    assert call(client, "t_add").status_code == 404


@pytest.mark.parametrize("path", ["/tools", "/v1/mcp/servers"])
def test_only_admin_keys_see_tools(guarded: FlaskClient, path: str) -> None:
    assert guarded.get(path).status_code == 401
    other = guarded.get(path, headers={"X-Api-Key": "user"})
    assert other.status_code == 403
    assert other.get_json()["error"]["code"] == "admin_key_required"
    assert guarded.get(path, headers={"X-Api-Key": "owner"}).status_code == 200


def test_only_admin_keys_call_tools(guarded: FlaskClient, tmp_path: Path) -> None:
    for headers, status in (({}, 401), ({"X-Api-Key": "user"}, 403), ({"X-Api-Key": "no"}, 401)):
        assert call(guarded, "t_note", {"text": "a"}, headers=headers).status_code == status
    assert not (tmp_path / "notes").exists()
    done = call(guarded, "t_note", {"text": "a"}, headers={"Authorization": "Bearer owner"})
    assert done.get_json() == {"plain_text_response": "noted"}
    assert (tmp_path / "notes").read_text() == "a\n"


def test_a_page_of_another_site_can_not_call(client: FlaskClient, tmp_path: Path) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert call(client, "t_note", {"text": "a"}, headers=headers).status_code == 403
    body = json.dumps({"tool": "t_note", "params": {"text": "a"}})
    page = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert client.post("/tools", data=body, headers=page).status_code == 403
    rebound = {"Host": "evil.example"}
    assert call(client, "t_note", {"text": "a"}, headers=rebound).status_code == 403
    assert not (tmp_path / "notes").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": ("k",)},
        {"allow_public": True},
        {"cors_origins": ("*",)},
        {"allowed_hosts": ("*",)},
        {"allowed_hosts": ("models.example.org",)},  # a proxy
    ],
)
def test_who_may_call_has_to_be_settled(config: Path, settings: dict[str, Any]) -> None:
    given = {"mcp_servers_config": config, **settings}
    with pytest.raises(RequestError, match="needs --admin-key"):
        load_settings(given)
    assert load_settings({**given, "admin_key": ("a",)}).mcp_servers_config == config
    assert load_settings(settings).mcp_servers_config is None


def test_a_batch_can_not_call_tools(guarded: FlaskClient) -> None:
    """Its requests are the server's own, which no key is asked of."""
    body = {"input_file_id": "file-x", "endpoint": "/tools", "completion_window": "24h"}
    response = guarded.post("/v1/batches", json=body, headers={"X-Api-Key": "user"})
    assert response.status_code == 400
    assert response.get_json()["error"]["param"] == "endpoint"


def test_a_faulty_file_ends_the_start(make_app: MakeApp, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="command is empty"):
        make_app(mcp_servers_config=write_config(tmp_path, t={"command": ""}))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_programs_end_with_the_server(tmp_path: Path, number: int) -> None:
    mark = tmp_path / "pid"
    config = write_config(tmp_path, t=program("--mark", str(mark), "--stubborn"))
    with running_server(tmp_path, "--mcp-servers-config", str(config)) as server:
        assert server.ask("/tools")[0] == 200
        pid = int(mark.read_text())
        assert is_running(pid)
        server.signal(number)
        server.wait()
        wait_until(lambda: not is_running(pid))


def test_a_client_that_leaves_cancels_its_call(tmp_path: Path) -> None:
    config = write_config(tmp_path, t=program())
    called = tmp_path / "called"
    body = json.dumps({"tool": "t_slow", "params": {"file": str(called)}}).encode()
    head = (
        f"POST /tools HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        "Content-Type: application/json\r\n\r\n"
    )
    with running_server(tmp_path, "--mcp-servers-config", str(config)) as server:
        sock = server.connect(head.encode() + body)
        wait_until(called.exists)
        sock.close()
        # It drains at once: no call is left to wait for.
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Drain timeout" not in server.log.read_text()


def test_a_model_calls_a_tool_and_reads_its_result(tmp_path: Path) -> None:
    """As a client does it: list, offer, call what the model has called, send the result."""
    config = write_config(tmp_path, t=program(env={"NOTES": str(tmp_path / "notes")}))
    model = tmp_path / "model.gguf"
    tiny_model.write(model, changes={"qwen3.context_length": (8192, "u32")})
    app = make_model_app(model, tmp_path / "state", mcp_servers_config=config)
    client = app.test_client()
    try:
        tools = [t["definition"] for t in client.get("/tools").get_json()]
        question = {"role": "user", "content": "note"}
        offered = [t for t in tools if t["function"]["name"] in ("t_note", "t_add")]
        forced = {"type": "function", "function": {"name": "t_note"}}
        ask = {"messages": [question], "tools": offered, "tool_choice": forced, "max_tokens": 60}
        response = client.post("/v1/chat/completions", json=ask)
        assert response.status_code == 200, response.get_json()
        answer = response.get_json()["choices"][0]
        (made,) = answer["message"]["tool_calls"]
        params = json.loads(made["function"]["arguments"])
        result = call(client, made["function"]["name"], params).get_json()
        assert result == {"plain_text_response": "noted"}
        assert (tmp_path / "notes").read_text() == params["text"] + "\n"
        told = {"role": "tool", "tool_call_id": made["id"], "content": "noted"}
        messages = [question, answer["message"], told]
        # The chat page sends these; the question goes on where nothing is offered any more, too.
        for more in ({"tools": tools}, {}):
            body = {"messages": messages, "max_tokens": 8, "tool_choice": "none", **more}
            if not more:
                del body["tool_choice"]
            assert client.post("/v1/chat/completions", json=body).status_code == 200
    finally:
        assert app.mcp is not None
        app.mcp.close()
        close_model_app(app)
