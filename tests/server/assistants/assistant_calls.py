"""Calls of the routes of assistants, threads and runs."""

from __future__ import annotations

import time
from typing import Any

from flask.testing import FlaskClient
from named_events import read_events
from tool_template import CITY
from url_sweep import assert_error_object

TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
FORCED = {"tool_choice": "required", "parallel_tool_calls": False}


def post(client: FlaskClient, path: str, expected: int = 200, **body: Any) -> Any:
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == expected, answer.text
    if expected != 200:
        assert_error_object(answer)
    return read_events(answer.text) if body.get("stream") else answer.get_json()


def get(client: FlaskClient, path: str, expected: int = 200) -> Any:
    answer = client.get(f"/v1/{path}")
    assert answer.status_code == expected, answer.text
    return answer.get_json()


def settled(client: FlaskClient, run: Any) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        run = get(client, f"threads/{run['thread_id']}/runs/{run['id']}")
        if run["status"] not in ("queued", "in_progress", "cancelling"):
            return run
        time.sleep(0.02)
    raise AssertionError("the run did not end")


def waiting_run(client: FlaskClient, assistant: str, thread: str) -> Any:
    path = f"threads/{thread}/runs"
    run = settled(client, post(client, path, assistant_id=assistant, **FORCED))
    assert run["status"] == "requires_action", run
    return run


def outputs_for(run: Any, output: str = "sunny") -> list[dict[str, str]]:
    calls = run["required_action"]["submit_tool_outputs"]["tool_calls"]
    return [{"tool_call_id": c["id"], "output": output} for c in calls]
