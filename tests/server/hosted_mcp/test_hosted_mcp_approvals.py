"""The hosted tool `mcp`: calls that the client is asked about first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from flask.testing import FlaskClient
from hosted_calls import ASKING, FORCED, VISIT, ask, kinds, of_kind, post

from oxibonsai.server.openai.responses.items import chat_messages, new_items
from oxibonsai.server.openai.schemas.responses import ConversationCreate

REQUEST = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "t",
    "name": "visit",
    "arguments": "{}",
}


def test_an_approved_call_is_made_once(client: FlaskClient, visits: Path) -> None:
    first = ask(client, tools=[ASKING], stream=True, **FORCED)[-1][1]["response"]
    assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
    assert first["status"] == "completed"
    request = first["output"][-1]
    assert visits.read_text() == ""
    approval = {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": True,
    }
    chain = {"previous_response_id": first["id"], "tools": [ASKING], "tool_choice": "none"}
    events = ask(client, input=[approval], stream=True, **chain)
    second = events[-1][1]["response"]
    assert kinds(second) == ["mcp_call", "message"]  # the tools are listed already
    call = second["output"][0]
    assert call["arguments"] == request["arguments"]
    assert call["approval_request_id"] == request["id"]
    assert visits.read_text() == json.loads(request["arguments"])["city"] + "\n"
    # A client that keeps no responses here sends all items.
    asked = {"role": "user", "content": "hi"}
    given = [asked, *first["output"], approval, *second["output"], asked]
    for fields in (
        {"input": given},
        {"input": "and?", "previous_response_id": second["id"]},
        {"input": [approval], "previous_response_id": second["id"]},
    ):
        assert kinds(ask(client, tools=[ASKING], tool_choice="none", **fields)) == ["message"]
    assert visits.read_text().count("\n") == 1
    given = [asked, *first["output"], approval]
    replayed = ask(client, input=given, tools=[ASKING], tool_choice="none", store=False)
    assert kinds(replayed) == ["mcp_call", "message"]
    assert visits.read_text().count("\n") == 2


def test_no_more_calls_are_approved_than_may_be_made(client: FlaskClient, visits: Path) -> None:
    items: list[Any] = []
    for n in range(2):
        call = {"name": "visit", "arguments": '{"city": "Rome"}', "server_label": "t"}
        items += [
            {"type": "mcp_approval_request", "id": f"mcpr_{n}", **call},
            {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{n}", "approve": True},
        ]
    answer = post(client, input=items, tools=[ASKING], max_tool_calls=1, tool_choice="none")
    assert answer.status_code == 400
    assert answer.get_json()["error"]["message"] == "max_tool_calls is 1, and 2 calls are approved."
    assert visits.read_text() == ""


def test_a_declined_call_is_not_made_and_the_model_is_told(
    client: FlaskClient, visits: Path
) -> None:
    conversation = client.post("/v1/conversations", json={}).get_json()["id"]
    fields = {"conversation": conversation, "tools": [ASKING]}
    request = of_kind(ask(client, **fields, **FORCED), "mcp_approval_request")
    declined = {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": False,
        "reason": "not today",
    }
    after = ask(client, input=[declined], tool_choice="none", **fields)
    assert kinds(after) == ["message"]
    assert visits.read_text() == ""
    items = client.get(f"/v1/conversations/{conversation}/items?order=asc").get_json()["data"]
    assert [item["type"] for item in items][-3:] == [
        "mcp_approval_request",
        "mcp_approval_response",
        "message",
    ]
    call, told = chat_messages(None, items)[1:3]
    assert call["tool_calls"][0]["function"]["name"] == "t_visit"
    assert told["tool_call_id"] == call["tool_calls"][0]["id"]
    assert "declined this call: not today" in told["content"]


def test_items_that_are_copied_keep_their_approvals() -> None:
    response = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": False,
    }
    body = ConversationCreate.model_validate({"items": [REQUEST, response]})
    asked, answered = new_items(body.items or ())
    assert asked["id"] == answered["approval_request_id"] != "mcpr_1"


def test_an_approval_without_request_or_tool_is_refused(client: FlaskClient) -> None:
    approval = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": True,
    }
    for given, tools, words in (
        ([approval], [ASKING], "there is no mcp_approval_request 'mcpr_1'"),
        ([REQUEST, approval], [], "send it in tools again"),
        ([{**REQUEST, "name": "note"}, approval], [ASKING], "send it in tools again"),
    ):
        answer = post(client, input=given, tools=tools)
        assert answer.status_code == 400
        assert words in answer.get_json()["error"]["message"]


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        (None, True),
        ({}, True),
        ({"never": {"tool_names": ["visit"]}}, False),
        ({"never": {"tool_names": ["add"]}}, True),
        ({"never": {"read_only": True}}, True),
        ({"never": {"read_only": False}}, False),
        ({"never": {"read_only": False, "tool_names": ["add"]}}, True),
        ({"always": {"tool_names": ["visit"]}, "never": {"read_only": False}}, True),
        ({"always": {"tool_names": ["add"]}, "never": {"read_only": False}}, False),
    ],
)
def test_which_calls_need_an_approval(
    client: FlaskClient, visits: Path, rule: Any, asks: bool
) -> None:
    response = ask(client, tools=[{**VISIT, "require_approval": rule}], **FORCED)
    assert kinds(response)[1] == ("mcp_approval_request" if asks else "mcp_call")
    assert (visits.read_text() == "") is asks


def test_an_approval_request_that_is_cut_off_is_not_shown(client: FlaskClient) -> None:
    response = ask(client, tools=[ASKING], max_output_tokens=56, **FORCED)
    assert response["status"] == "incomplete"
    assert kinds(response) == ["mcp_list_tools"]
