"""Runs and their steps on a tiny model."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from assistant_calls import FORCED, get, outputs_for, post, settled, waiting_run
from busy_engines import engines_busy
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from tool_template import TEMPLATE

from oxibonsai.server.openai.assistants.run_work import RunWork
from oxibonsai.server.openai.background_tasks import (
    BackgroundTask,
    BackgroundTasks,
    Key,
    fail_interrupted,
)
from oxibonsai.server.server import Server


def test_a_run_writes_a_message(client: FlaskClient, assistant: str, thread: str) -> None:
    given = {"tool_choice": "none", "max_completion_tokens": 6}
    run = post(client, f"threads/{thread}/runs", assistant_id=assistant, **given)
    assert (run["object"], run["status"], run["usage"]) == ("thread.run", "queued", None)
    run = settled(client, run)
    assert run["status"] in ("completed", "incomplete")
    assert run["usage"]["completion_tokens"] <= 6
    path = f"threads/{thread}/messages?run_id={run['id']}"
    (message,) = get(client, path)["data"]
    assert (message["role"], message["assistant_id"]) == ("assistant", assistant)
    (step,) = get(client, f"threads/{thread}/runs/{run['id']}/steps")["data"]
    assert step["step_details"]["message_creation"] == {"message_id": message["id"]}
    assert get(client, f"threads/{thread}/runs/{run['id']}/steps/{step['id']}") == step
    assert get(client, f"threads/{thread}/runs")["data"] == [run]
    changed = post(client, f"threads/{thread}/runs/{run['id']}", metadata={"a": "b"})
    assert changed == {**run, "metadata": {"a": "b"}}


def test_a_run_waits_for_outputs_and_goes_on(
    client: FlaskClient, assistant: str, thread: str
) -> None:
    run = waiting_run(client, assistant, thread)
    (call,) = run["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
    path = f"threads/{thread}/runs/{run['id']}"
    (step,) = get(client, f"{path}/steps")["data"]
    assert (step["type"], step["status"]) == ("tool_calls", "in_progress")
    # While it waits, the thread is its own.
    post(client, f"threads/{thread}/messages", 400, role="user", content="x")
    post(client, f"threads/{thread}/runs", 400, assistant_id=assistant)
    for wrong in ([], [{"tool_call_id": "other", "output": "x"}]):
        post(client, f"{path}/submit_tool_outputs", 400, tool_outputs=wrong)
    given = outputs_for(run)
    run = post(client, f"{path}/submit_tool_outputs", tool_outputs=given)
    assert (run["status"], run["required_action"]) == ("queued", None)
    run = settled(client, run)
    assert run["status"] in ("completed", "incomplete"), run
    steps = get(client, f"{path}/steps?order=asc")["data"]
    assert steps[0]["status"] == "completed"
    assert steps[0]["step_details"]["tool_calls"][0]["function"]["output"] == "sunny"
    post(client, f"{path}/submit_tool_outputs", 400, tool_outputs=given)
    # The outputs were read.
    assert run["usage"]["prompt_tokens"] > 2 * 20


def test_of_two_outputs_for_one_call_none_is_taken(
    client: FlaskClient, assistant: str, thread: str
) -> None:
    run = waiting_run(client, assistant, thread)
    path = f"threads/{thread}/runs/{run['id']}"
    twice = [*outputs_for(run, "sunny"), *outputs_for(run, "rainy")]
    error = post(client, f"{path}/submit_tool_outputs", 400, tool_outputs=twice)["error"]
    assert error["param"] == "tool_outputs"
    assert get(client, path)["status"] == "requires_action"


def test_outputs_that_come_twice_at_once_continue_a_run_once(
    app: Server, assistant: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = app.test_client()
    run = waiting_run(client, assistant, thread)
    path = f"threads/{thread}/runs/{run['id']}"
    reserve, both = BackgroundTasks.reserve, threading.Barrier(2)

    def slowly(self: BackgroundTasks, key: Key) -> BackgroundTask:
        # Where nothing keeps the other request from it, it comes here, too; one goes on first.
        with contextlib.suppress(threading.BrokenBarrierError):
            time.sleep(0.3 * both.wait(0.5))
        return reserve(self, key)

    def submit(_: int) -> int:
        body = {"tool_outputs": outputs_for(run)}
        return app.test_client().post(f"/v1/{path}/submit_tool_outputs", json=body).status_code

    monkeypatch.setattr(BackgroundTasks, "reserve", slowly)
    with engines_busy(app):
        with ThreadPoolExecutor(2) as threads:
            assert sorted(threads.map(submit, range(2))) == [200, 400]
        # The task that was created can be found.
        assert post(client, f"{path}/cancel")["status"] == "cancelled"


def test_the_streams_of_a_run_tell_every_change(client: FlaskClient, assistant: str) -> None:
    body = {"assistant_id": assistant, "thread": {"messages": [{"role": "user", "content": "hi"}]}}
    events = post(client, "threads/runs", **body, **FORCED, stream=True)
    names = [name for name, _ in events if name != "thread.run.step.delta"]
    assert names == [
        "thread.created", "thread.run.created", "thread.run.queued", "thread.run.in_progress",
        "thread.run.step.created", "thread.run.step.in_progress", "thread.run.requires_action",
        "done",
    ]  # fmt: skip
    assert events[-1][1] == "[DONE]"
    run = events[-2][1]
    pieces = [d["delta"]["step_details"]["tool_calls"][0] for n, d in events if n.endswith("delta")]
    arguments = "".join(p["function"]["arguments"] for p in pieces)
    (call,) = run["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert arguments == call["function"]["arguments"]
    assert (pieces[0]["id"], pieces[0]["function"]["name"]) == (call["id"], "weather")
    path = f"threads/{run['thread_id']}/runs/{run['id']}"
    given = outputs_for(run)
    events = post(client, f"{path}/submit_tool_outputs", tool_outputs=given, stream=True)
    names = [name for name, _ in events if name != "thread.message.delta"]
    assert names[:3] == [
        "thread.run.step.completed", "thread.run.queued", "thread.run.in_progress",
    ]  # fmt: skip
    assert names[-1] == "done"
    assert names[-2] in ("thread.run.completed", "thread.run.incomplete")
    messages = [
        d for n, d in events if n in ("thread.message.completed", "thread.message.incomplete")
    ]
    told = "".join(
        d["delta"]["content"][0]["text"]["value"] for n, d in events if n == "thread.message.delta"
    )
    assert told == "".join(m["content"][0]["text"]["value"] for m in messages)
    assert get(client, path) == events[-2][1]


def test_a_run_can_be_cancelled(
    app: Server, client: FlaskClient, assistant: str, thread: str
) -> None:
    path = f"threads/{thread}/runs"
    with engines_busy(app):
        run = post(client, path, assistant_id=assistant, tool_choice="none")
        assert post(client, f"{path}/{run['id']}/cancel")["status"] == "cancelled"
    post(client, f"{path}/{run['id']}/cancel", 400)
    # The thread is free again.
    run = waiting_run(client, assistant, thread)
    assert post(client, f"{path}/{run['id']}/cancel")["status"] == "cancelled"
    (step,) = get(client, f"{path}/{run['id']}/steps")["data"]
    assert step["status"] == "cancelled"
    post(client, f"{path}/{run['id']}/submit_tool_outputs", 400, tool_outputs=outputs_for(run))


def test_a_run_that_waits_for_its_turn_is_cancelled_at_once(
    tiny_path: Path, tmp_path: Path
) -> None:
    given = {"chat_template": TEMPLATE, "parallel": 1, "queue_size": 2}
    app = make_model_app(tiny_path, tmp_path, **given)
    client = app.test_client()
    assistant = post(client, "assistants", model="tiny")["id"]
    body = {"assistant_id": assistant, "max_completion_tokens": 2}
    with engines_busy(app):
        *others, last = [post(client, "threads/runs", **body) for _ in range(4)]
        path = f"threads/{last['thread_id']}/runs/{last['id']}"
        run = post(client, f"{path}/cancel")
        assert (run["status"], run["started_at"]) == ("cancelled", None)
        assert run["cancelled_at"] >= run["created_at"]
        assert get(client, path) == run
        # Its thread is free, and so is its place.
        others.append(post(client, f"threads/{last['thread_id']}/runs", **body))
    assert {settled(client, r)["status"] for r in others} <= {"completed", "incomplete"}
    assert get(client, path) == run
    close_model_app(app)


def total(usages: list[Any]) -> Any:
    return {name: sum(u[name] for u in usages) for name in usages[0]}


def test_steps_that_are_over_tell_what_they_took(
    client: FlaskClient, assistant: str, thread: str
) -> None:
    run = waiting_run(client, assistant, thread)
    path = f"threads/{thread}/runs/{run['id']}"
    (step,) = get(client, f"{path}/steps")["data"]
    assert (run["usage"], step["status"], step["usage"]) == (None, "in_progress", None)
    assert "used" not in step
    events = post(client, f"{path}/submit_tool_outputs", tool_outputs=outputs_for(run), stream=True)
    done = [step for name, step in events if name == "thread.run.step.completed"]
    steps = get(client, f"{path}/steps?order=asc")["data"]
    assert [s["status"] for s in steps] == ["completed", "completed"]
    assert steps == done
    assert get(client, f"{path}/steps/{steps[0]['id']}") == steps[0]
    for usage in (s["usage"] for s in steps):
        assert usage["prompt_tokens"] > 0
        assert usage["completion_tokens"] > 0
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert total([s["usage"] for s in steps]) == get(client, path)["usage"]


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
def test_a_step_that_waited_in_vain_tells_what_it_took(
    client: FlaskClient, assistant: str, thread: str, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    run = waiting_run(client, assistant, thread)
    path = f"threads/{thread}/runs/{run['id']}"
    if ending == "cancelled":
        post(client, f"{path}/cancel")
    else:
        late = run["expires_at"] + 1
        monkeypatch.setattr("oxibonsai.server.openai.assistants.run_service.now", lambda: late)
    run = get(client, path)
    (step,) = get(client, f"{path}/steps")["data"]
    assert run["status"] == step["status"] == ending
    assert step["usage"] == run["usage"]
    assert step["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("limit", ["max_prompt_tokens", "max_completion_tokens"])
def test_a_limit_of_a_run_counts_the_tokens_of_all_its_rounds(
    client: FlaskClient, assistant: str, thread: str, limit: str
) -> None:
    first = waiting_run(client, assistant, thread)
    path = f"threads/{thread}/runs/{first['id']}"
    used = post(client, f"{path}/cancel")["usage"]
    counted = limit.removeprefix("max_")
    most = {limit: used[counted]}
    asked = {"assistant_id": assistant, **FORCED, **most}
    run = settled(client, post(client, f"threads/{thread}/runs", **asked))
    assert run["status"] == "requires_action", run
    path = f"threads/{thread}/runs/{run['id']}"
    post(client, f"{path}/submit_tool_outputs", tool_outputs=outputs_for(run))
    run = settled(client, run)
    assert (run["status"], run["incomplete_details"]) == ("incomplete", {"reason": limit})
    # A call that comes near the limit may be closed before it, which leaves a round the rest.
    assert run["usage"][counted] == used[counted]


@pytest.mark.parametrize("at", ["in_progress", "requires_action"])
def test_a_cancelled_run_does_nothing_more(
    client: FlaskClient, assistant: str, thread: str, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The request to cancel comes just before the run goes on to its next status."""
    change = RunWork._change_run

    def late(self: RunWork, status: str, **fields: Any) -> None:
        if status == at:
            self._store.runs.change(
                self._owner, self._run["id"], lambda r: {**r, "status": "cancelling"}
            )
        change(self, status, **fields)

    monkeypatch.setattr(RunWork, "_change_run", late)
    path = f"threads/{thread}/runs"
    run = settled(client, post(client, path, assistant_id=assistant, **FORCED))
    assert (run["status"], run["required_action"]) == ("cancelled", None)
    steps = get(client, f"{path}/{run['id']}/steps")["data"]
    assert [s["status"] for s in steps] == ["cancelled"] * len(steps)


def test_a_run_that_waits_too_long_expires(
    client: FlaskClient, assistant: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting_run(client, assistant, thread)
    monkeypatch.setattr(
        "oxibonsai.server.openai.assistants.run_service.now", lambda: run["expires_at"] + 1
    )
    path = f"threads/{thread}/runs/{run['id']}"
    post(client, f"{path}/submit_tool_outputs", 400, tool_outputs=outputs_for(run))
    assert get(client, path)["status"] == "expired"
    assert get(client, f"{path}/steps")["data"][0]["status"] == "expired"
    assert post(client, f"threads/{thread}/messages", role="user", content="x")["id"]


def test_what_a_run_may_differ_in(client: FlaskClient, assistant: str, thread: str) -> None:
    run = post(
        client, f"threads/{thread}/runs", assistant_id=assistant, instructions="A.",
        additional_instructions="B.", tools=[], metadata={"a": "b"}, top_p=0.5,
        additional_messages=[{"role": "user", "content": "more"}], max_completion_tokens=2,
        truncation_strategy={"type": "last_messages", "last_messages": 1},
    )  # fmt: skip
    assert run["instructions"] == "A.\n\nB."
    assert (run["tools"], run["metadata"], run["top_p"]) == ([], {"a": "b"}, 0.5)
    run = settled(client, run)
    assert run["incomplete_details"] == {"reason": "max_completion_tokens"}
    said = get(client, f"threads/{thread}/messages?order=asc")["data"]
    assert [m["content"][0]["text"]["value"] for m in said[:2]] == ["hi", "more"]


def test_deleting_a_thread_ends_its_run(app: Server, client: FlaskClient, assistant: str) -> None:
    body = {"assistant_id": assistant, "thread": {"messages": [{"role": "user", "content": "x"}]}}
    with engines_busy(app):
        run = post(client, "threads/runs", **body, tool_choice="none")
        assert client.delete(f"/v1/threads/{run['thread_id']}").status_code == 200
        get(client, f"threads/{run['thread_id']}/runs/{run['id']}", 404)
        deadline = time.monotonic() + 60
        while app.lifecycle.background and time.monotonic() < deadline:
            time.sleep(0.01)
        assert app.lifecycle.background == 0


def test_what_was_in_progress_when_a_server_died_has_failed(
    app: Server, client: FlaskClient, assistant: str, thread: str
) -> None:
    store, whose = app.store, "anonymous"
    waiting = waiting_run(client, assistant, thread)
    cut_thread = post(client, "threads")["id"]
    kept = store.runs.get(whose, waiting["id"])
    cut = {**kept, "id": "run_cut", "thread_id": cut_thread, "status": "in_progress"}
    store.runs.create(whose, cut, parent=cut_thread)
    store.threads.change(whose, cut_thread, lambda t: {**t, "active_run": "run_cut"})
    (step,) = get(client, f"threads/{thread}/runs/{waiting['id']}/steps")["data"]
    store.run_steps.create(whose, {**step, "id": "step_cut"}, parent="run_cut")
    message = post(client, "threads", messages=[{"role": "user", "content": "x"}])
    message = get(client, f"threads/{message['id']}/messages")["data"][0]
    broken = {"id": "msg_cut", "run_id": "run_cut", "status": "in_progress", "content": []}
    store.messages.create(whose, {**message, **broken}, parent=cut_thread)
    assert fail_interrupted(store) == 1
    path = f"threads/{cut_thread}"
    assert get(client, f"{path}/runs/run_cut")["status"] == "failed"
    assert get(client, f"{path}/runs/run_cut/steps/step_cut")["status"] == "failed"
    assert get(client, f"{path}/messages/msg_cut")["status"] == "incomplete"
    # The thread is free, and who waits for outputs goes on waiting.
    post(client, f"{path}/messages", role="user", content="x")
    run = get(client, f"threads/{thread}/runs/{waiting['id']}")
    assert run["status"] == "requires_action"
