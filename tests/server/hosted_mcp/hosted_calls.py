"""Requests with the hosted tool `mcp`, whose answers are checked by the types of OpenAI's package."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from named_events import read_events
from tool_template import CITY

from oxibonsai.server.openai.responses import replies
from oxibonsai.server.openai.responses.request import later_request

VISIT = {
    "type": "mcp",
    "server_label": "t",
    "allowed_tools": ["visit"],
    "require_approval": "never",
}
ASKING = {**VISIT, "require_approval": "always"}
WEATHER = {"type": "function", "name": "weather", "parameters": CITY}
FORCED = {"tool_choice": "required", "parallel_tool_calls": False}


def post(client: FlaskClient, **fields: Any) -> Any:
    body = {"input": "hi", "max_output_tokens": 100, "seed": 3, "tools": [VISIT], **fields}
    return client.post("/v1/responses", json=body)


def ask(client: FlaskClient, **fields: Any) -> Any:
    """A response, checked by the types of OpenAI's package."""
    answer = post(client, **fields)
    assert answer.status_code == 200, answer.text
    if not fields.get("stream"):
        return checked(answer.get_json())
    events = read_events(answer.text)
    check_events(events)
    return events


def checked(response: Any) -> Any:
    types = pytest.importorskip("openai.types.responses", reason="needs OpenAI's client")
    types.Response.model_validate(response)
    return response


def check_events(events: Any) -> None:
    types = pytest.importorskip("openai.types.responses", reason="needs OpenAI's client")
    pydantic = pytest.importorskip("pydantic")
    event_type = pydantic.TypeAdapter(types.ResponseStreamEvent)
    read = [event_type.validate_python(data) for _, data in events]
    assert [e.type for e in read] == [name for name, _ in events]
    assert [e.sequence_number for e in read] == list(range(len(events)))


def kinds(response: Any) -> list[str]:
    return [item["type"] for item in response["output"]]


def of_kind(response: Any, kind: str) -> Any:
    (item,) = (item for item in response["output"] if item["type"] == kind)
    return item


def script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model be forced to call in each reply in which it may call."""

    def forced(request: Any, *, tokens_used: int, may_call: bool) -> Any:
        made = later_request(request, tokens_used=tokens_used, may_call=may_call)
        return made.model_copy(update={"tool_choice": "required"}) if may_call else made

    monkeypatch.setattr(replies, "later_request", forced)
