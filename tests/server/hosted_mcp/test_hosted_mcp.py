"""The hosted tool `mcp` of /v1/responses: this server calls the tools, and the model reads the results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from flask.testing import FlaskClient
from given_servers import free_port, http_server, write_config
from hosted_calls import (
    ASKING,
    FORCED,
    VISIT,
    WEATHER,
    ask,
    check_events,
    checked,
    kinds,
    of_kind,
    post,
    script,
)
from named_events import read_events
from official import openai_client
from running_server import wait_until

from oxibonsai.errors import CapacityError
from oxibonsai.mcp import McpServers, read_config
from oxibonsai.output import Delta, ToolCallDelta
from oxibonsai.server.access import current_owner
from oxibonsai.server.generation import Generation
from oxibonsai.server.limits import ANONYMOUS
from oxibonsai.server.openai.responses.items import chat_messages
from oxibonsai.server.server import Server
from oxibonsai.server.submitter import Submitter


def test_a_tool_is_called_and_the_model_goes_on(
    client: FlaskClient, visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Generation] = []
    submit = Submitter.prompt

    def recorded(*args: Any, **options: Any) -> Generation:
        made.append(submit(*args, **options))
        return made[-1]

    monkeypatch.setattr(Submitter, "prompt", recorded)
    response = ask(client, **FORCED)
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    listed, call, _ = response["output"]
    (tool,) = listed["tools"]
    assert (listed["server_label"], tool["name"], listed["error"]) == ("t", "visit", None)
    assert tool["input_schema"]["properties"]["city"]["enum"] == ["Rome", "Oslo"]
    city = json.loads(call["arguments"])["city"]
    assert (call["name"], call["status"], call["error"]) == ("visit", "completed", None)
    assert call["output"] == f"noted: {city}"
    assert visits.read_text() == f"{city}\n"
    assert client.get(f"/v1/responses/{response['id']}").get_json() == response
    # All replies count.
    assert len(made) == 2
    usage = response["usage"]
    assert usage["input_tokens"] == sum(g.prompt_tokens for g in made)
    assert usage["output_tokens"] == sum(g.completion_tokens for g in made) <= 100
    # The second prompt is that of a client that sends the items itself.
    asked = {"role": "user", "content": "hi"}
    body = {"input": [asked, listed, call], "tools": [VISIT]}
    counted = client.post("/v1/responses/input_tokens", json=body).get_json()["input_tokens"]
    assert counted == made[1].prompt_tokens > made[0].prompt_tokens


def test_a_stream_tells_the_same(
    client: FlaskClient, visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ask(client, **FORCED)
    owners: list[str | None] = []
    submit = Submitter.prompt

    def recorded(*args: Any, **options: Any) -> Generation:
        owners.append(current_owner())
        return submit(*args, **options)

    monkeypatch.setattr(Submitter, "prompt", recorded)
    events = ask(client, stream=True, **FORCED)
    # Limits and the prefix cache are those of the owner, also for what follows the request.
    assert owners == [ANONYMOUS, ANONYMOUS]
    last = events[-1][1]["response"]

    def without_ids(response: Any) -> Any:
        return [{**item, "id": ""} for item in response["output"]]

    def of(item: Any) -> list[str]:
        """The names of an item's events."""
        return [
            name
            for name, data in events
            if item["id"] in (data.get("item_id"), data.get("item", {}).get("id"))
        ]

    assert without_ids(last) == without_ids(plain)
    listed, call, _ = last["output"]
    assert of(listed) == [
        "response.output_item.added",
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.output_item.done",
    ]
    deltas = [d["delta"] for n, d in events if n == "response.mcp_call_arguments.delta"]
    assert "".join(deltas) == call["arguments"]
    assert of(call) == [
        "response.output_item.added",
        "response.mcp_call.in_progress",
        *["response.mcp_call_arguments.delta"] * len(deltas),
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
    ]
    done = {d["item"]["id"]: d["item"] for n, d in events if n == "response.output_item.done"}
    assert [done[item["id"]] for item in last["output"]] == last["output"]


def test_openais_client_reads_the_items(app: Server, visits: Path) -> None:
    openai = openai_client(app)
    body = {"model": "tiny", "input": "hi", "tools": [VISIT], "tool_choice": "required"}
    with openai.responses.stream(**body, extra_body={"seed": 1}) as stream:
        names = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.mcp_call.completed" in names
    call = next(item for item in final.output if item.type == "mcp_call")
    assert call.output.startswith("noted: ")
    assert type(call).__name__ == "McpCall"


def test_a_tool_that_fails_says_so(client: FlaskClient) -> None:
    broken = {**VISIT, "allowed_tools": ["broken"]}
    events = ask(client, tools=[broken], stream=True, **FORCED)
    response = events[-1][1]["response"]
    call = of_kind(response, "mcp_call")
    assert (call["status"], call["output"]) == ("failed", None)
    assert call["error"]["type"] == "mcp_tool_execution_error"
    assert "broken" in call["error"]["content"][0]["text"]
    assert "response.mcp_call.failed" in [name for name, _ in events]
    assert kinds(response)[-1] == "message"  # the model goes on
    told = chat_messages(None, [call])[-1]
    assert told["role"] == "tool"
    assert json.loads(told["content"]) == {"error": call["error"]["content"][0]["text"]}


def test_a_server_that_can_not_be_asked_has_no_tools(client: FlaskClient) -> None:
    away = {"type": "mcp", "server_label": "away"}
    events = ask(client, tools=[away], stream=True)
    listed = of_kind(events[-1][1]["response"], "mcp_list_tools")
    assert listed["tools"] == []
    assert "/no/such/file" in listed["error"]
    assert "response.mcp_list_tools.failed" in [name for name, _ in events]


def test_a_call_stays_on_record_where_the_next_reply_fails(
    client: FlaskClient, visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Submitter.prompt

    def only_once(*args: Any, **options: Any) -> Generation:
        monkeypatch.setattr(Submitter, "prompt", full)
        return submit(*args, **options)

    def full(*args: Any, **options: Any) -> Generation:
        raise CapacityError("too many requests wait")

    conversation = client.post("/v1/conversations", json={}).get_json()["id"]
    monkeypatch.setattr(Submitter, "prompt", only_once)
    response = ask(client, conversation=conversation, **FORCED)
    assert response["status"] == "failed"
    assert "too many requests wait" in response["error"]["message"]
    assert kinds(response) == ["mcp_list_tools", "mcp_call"]
    assert visits.read_text().count("\n") == 1
    kept = client.get(f"/v1/conversations/{conversation}/items?order=asc").get_json()["data"]
    assert [item["type"] for item in kept] == ["message", "mcp_call"]


def test_a_call_that_is_cut_off_is_not_made(client: FlaskClient, visits: Path) -> None:
    events = ask(client, max_output_tokens=56, stream=True, **FORCED)
    response = events[-1][1]["response"]
    call = of_kind(response, "mcp_call")
    assert (response["status"], call["status"]) == ("incomplete", "incomplete")
    assert 0 < len(call["arguments"]) < len('{"city":"Rome"}')
    assert visits.read_text() == ""
    assert post(client, previous_response_id=response["id"], tools=[]).status_code == 200


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (["add", "visit"], {"add", "visit"}),
        ({"tool_names": ["add", "visit"]}, {"add", "visit"}),
        ({"read_only": True}, {"add"}),
        ({"read_only": True, "tool_names": ["visit"]}, set()),
        ([], set()),
    ],
)
def test_only_allowed_tools_are_on_offer(
    client: FlaskClient, allowed: Any, names: set[str]
) -> None:
    tools = [{**VISIT, "allowed_tools": allowed}]
    response = ask(client, tools=tools, max_output_tokens=1)
    assert {t["name"] for t in of_kind(response, "mcp_list_tools")["tools"]} == names


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"server_label": "stranger"}, "names no server 'stranger'"),
        ({"server_url": "http://127.0.0.1:9/mcp"}, "no other one is called"),
        ({"server_label": ""}, "server_label"),
        ({"headers": {"Authorization": "x"}}, "headers is not supported"),
        ({"authorization": "x"}, "authorization is not supported"),
        ({"connector_id": "connector_gmail"}, "connector_id is not supported"),
        ({"tunnel_id": "x"}, "tunnel_id is not supported"),
        ({"defer_loading": True}, "defer_loading is not supported"),
        ({"allowed_callers": ["programmatic"]}, "allowed_callers is not supported"),
        ({"allowed_tools": ["nothing"]}, "the server has no tool 'nothing'"),
        ({"allowed_tools": {}}, "tools.0.allowed_tools"),
        ({"require_approval": "sometimes"}, "require_approval"),
        ({"require_approval": {"never": {}}}, "needs tool_names or read_only"),
    ],
)
def test_what_can_not_be_had_is_refused(
    client: FlaskClient, change: dict[str, Any], words: str
) -> None:
    answer = post(client, tools=[{**VISIT, **change}])
    assert answer.status_code == 400
    error = answer.get_json()["error"]
    assert words in error["message"]
    assert error["param"].startswith("tools")


def test_names_are_there_once(client: FlaskClient) -> None:
    function = {"type": "function", "name": "t_visit"}
    for tools, words in (
        ([VISIT, function], "'t_visit' is the model's name for one of its tools"),
        ([VISIT, VISIT], "'t' is there twice"),
    ):
        answer = post(client, tools=tools)
        assert answer.status_code == 400
        assert words in answer.get_json()["error"]["message"]


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "mcp", "server_label": "t"},
        {"type": "mcp", "server_label": "t", "name": "visit"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "mcp", "server_label": "t"}],
        },
    ],
)
def test_a_choice_of_tools_of_a_server(
    client: FlaskClient, visits: Path, choice: dict[str, Any]
) -> None:
    fields = {"tools": [WEATHER, VISIT], "parallel_tool_calls": False}
    assert kinds(ask(client, tool_choice=choice, **fields))[1] == "mcp_call"
    unknown = json.loads(json.dumps(choice).replace('"server_label": "t"', '"server_label": "u"'))
    answer = post(client, tool_choice=unknown, **fields)
    assert answer.status_code == 400
    assert "there is no tool 'u" in answer.get_json()["error"]["message"]


def test_replies_are_bounded(
    client: FlaskClient, visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch)
    monkeypatch.setattr("oxibonsai.server.openai.responses.run.MOST_REPLIES", 3)
    response = ask(client, max_output_tokens=None, stop=["filler"], **FORCED)
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert response["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
def test_max_tool_calls_counts_calls_of_all_replies(
    client: FlaskClient, visits: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    script(monkeypatch)
    made = ask(client, max_output_tokens=250, max_tool_calls=2, stream=stream, **FORCED)
    response = made[-1][1]["response"] if stream else made
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert visits.read_text().count("\n") == 2


def test_several_calls_in_a_reply_are_all_made(client: FlaskClient, visits: Path) -> None:
    made = ask(client, tool_choice="required", max_output_tokens=400, stream=True, seed=SEVERAL)
    response = made[-1][1]["response"]
    calls = [item for item in response["output"] if item["type"] == "mcp_call"]
    assert len(calls) >= 2
    assert visits.read_text().split() == [json.loads(c["arguments"])["city"] for c in calls]
    assert {c["status"] for c in calls} == {"completed"}
    # Both were said before either was made.
    names = [name for name, _ in made if name.startswith("response.mcp_call")]
    first = names.index("response.mcp_call.completed")
    assert names[:first].count("response.mcp_call_arguments.done") >= 2


def test_a_function_of_the_client_ends_the_response(client: FlaskClient) -> None:
    response = ask(client, tools=[VISIT, WEATHER], tool_choice=WEATHER_CHOICE)
    assert kinds(response) == ["mcp_list_tools", "function_call"]
    assert response["status"] == "completed"
    assert response["output"][1]["name"] == "weather"


def test_beside_a_call_of_the_clients_own_calls_are_made(
    client: FlaskClient, visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Generation.stream

    def with_another_call(generation: Generation) -> Iterator[tuple[int, Delta | None]]:
        for i, delta in said(generation):
            if delta is None and i == 0:
                piece = ToolCallDelta(index=1, id="call_1", name="weather", arguments="{}")
                yield 0, Delta(tool_call=piece)
            yield i, delta

    monkeypatch.setattr(Generation, "stream", with_another_call)
    response = ask(client, tools=[VISIT, WEATHER], **{**FORCED, "tool_choice": ON_VISIT})
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "function_call"]
    assert response["status"] == "completed"
    assert response["output"][1]["status"] == "completed"
    assert visits.read_text().count("\n") == 1


def test_a_background_response_calls_tools(client: FlaskClient, visits: Path) -> None:
    begun = ask(client, background=True, **FORCED)
    url = f"/v1/responses/{begun['id']}"
    wait_until(lambda: client.get(url).get_json()["status"] not in ("queued", "in_progress"))
    response = checked(client.get(url).get_json())
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    events = read_events(client.get(f"{url}?stream=true").text)
    check_events(events)
    assert "response.mcp_call.completed" in [name for name, _ in events]


def test_a_cancelled_response_cancels_its_call(client: FlaskClient, tmp_path: Path) -> None:
    called = tmp_path / "called"
    request = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "t",
        "name": "slow",
        "arguments": json.dumps({"file": str(called)}),
    }
    approval = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": True,
    }
    given = [{"role": "user", "content": "hi"}, request, approval]
    slow = {**ASKING, "allowed_tools": ["slow"]}
    begun = ask(client, input=given, tools=[slow], background=True)
    wait_until(called.exists)
    url = f"/v1/responses/{begun['id']}"
    response = checked(client.post(f"{url}/cancel").get_json())
    assert response["status"] == "cancelled"
    assert of_kind(response, "mcp_call")["status"] == "incomplete"
    # A client that leaves its stream ends the call, too.
    called.unlink()
    body = {"input": given, "tools": [slow], "stream": True}
    stream = client.post("/v1/responses", json=body)
    frames: Any = iter(stream.response)
    first = json.loads(next(frames).decode().partition("data: ")[2])["response"]
    wait_until(lambda: bool(next(frames)) and called.exists())
    stream.close()
    kept = client.get(f"/v1/responses/{first['id']}").get_json()
    assert (kept["status"], of_kind(kept, "mcp_call")["status"]) == ("cancelled", "incomplete")


@pytest.mark.slow
def test_the_address_that_the_owner_named_may_be_called(
    app: Server, client: FlaskClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with (
        http_server(port),
        McpServers(read_config(write_config(tmp_path, there={"url": url}))) as servers,
    ):
        monkeypatch.setattr(app, "mcp", servers)
        tool = {**VISIT, "server_label": "own_name", "allowed_tools": ["broken"], "server_url": url}
        response = ask(client, tools=[tool], **FORCED)
        call = of_kind(response, "mcp_call")
        assert call["server_label"] == "own_name"
        assert "broken" in call["error"]["content"][0]["text"]
        refused = post(client, tools=[{**tool, "server_url": f"{url}/"}])
        assert refused.status_code == 400


def test_only_admin_keys_may_offer_tools(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flask import g

    def no_admin() -> None:
        g.is_admin = False

    monkeypatch.setitem(app.before_request_funcs, None, [*app.before_request_funcs[None], no_admin])
    for path in ("/v1/responses", "/v1/responses/input_tokens"):
        answer = client.post(path, json={"input": "hi", "tools": [VISIT]})
        assert answer.status_code == 403
        assert answer.get_json()["error"]["code"] == "admin_key_required"


def test_without_a_configuration_there_are_no_servers(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "mcp", None)
    answer = post(client)
    assert answer.status_code == 400
    assert "--mcp-servers-config" in answer.get_json()["error"]["message"]


def test_calls_of_other_services_are_read() -> None:
    call = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "a b",
        "name": "x.y",
        "arguments": "{}",
    }
    errors = (
        ("it broke", "it broke"),
        ({"type": "mcp_protocol_error", "code": -32000, "message": "gone"}, "gone"),
        ({"type": "http_error", "code": 500, "message": "down"}, "down"),
    )
    for error, text in errors:
        asked, told = chat_messages(None, [{**call, "error": error}])
        assert asked["tool_calls"][0]["function"]["name"] == "a_b_x_y"
        assert json.loads(told["content"]) == {"error": text}
    strange = chat_messages(None, [{**call, "error": {"type": "new", "content": {"a": 1}}}])
    assert '"a": 1' in json.loads(strange[1]["content"])["error"]
    assert chat_messages(None, [{**call, "output": "3"}])[1]["content"] == "3"
    assert chat_messages(None, [call]) == []


ON_VISIT = {"type": "mcp", "server_label": "t"}
WEATHER_CHOICE = {"type": "function", "name": "weather"}
SEVERAL = 0  # a seed with which the model makes several calls at once
