"""Assistants, threads, messages, runs and steps on a tiny model."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from busy import engines_busy
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from named_events import read_events
from tool_template import CITY, TEMPLATE
from url_sweep import assert_error_object

from oxibonsai.chat import ChatTurn
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.generation import Generation
from oxibonsai.server.generations import Generations
from oxibonsai.server.openai.assistants.run_work import RunWork
from oxibonsai.server.openai.background_tasks import BackgroundTask, BackgroundTasks, Key
from oxibonsai.server.openai.interrupted import fail_interrupted
from oxibonsai.server.server import Server

TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
FORCED = {"tool_choice": "required", "parallel_tool_calls": False}


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("state")
    made = make_model_app(tiny_path, folder, chat_template=TEMPLATE, n_predict=200)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


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


@pytest.fixture
def assistant(client: FlaskClient) -> str:
    made = post(client, "assistants", model="tiny", tools=[TOOL], temperature=0.0)
    return str(made["id"])


@pytest.fixture
def thread(client: FlaskClient) -> str:
    return str(post(client, "threads", messages=[{"role": "user", "content": "hi"}])["id"])


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


def test_assistants_are_made_changed_listed_and_deleted(client: FlaskClient) -> None:
    made = post(client, "assistants", model="tiny", name="a", metadata={"k": "v"}, tools=[TOOL])
    assert (made["object"], made["name"], made["metadata"]) == ("assistant", "a", {"k": "v"})
    changed = post(client, f"assistants/{made['id']}", name="b")
    assert changed == {**made, "name": "b"}
    assert get(client, f"assistants/{made['id']}") == changed
    assert get(client, "assistants?limit=1")["data"] == [changed]
    deleted = client.delete(f"/v1/assistants/{made['id']}").get_json()
    assert deleted == {"id": made["id"], "object": "assistant.deleted", "deleted": True}
    get(client, f"assistants/{made['id']}", 404)


def test_a_field_of_an_assistant_is_cleared_with_null(client: FlaskClient) -> None:
    form = {"type": "json_object"}
    fields = {"name": "a", "metadata": {"k": "v"}, "temperature": 0.5, "response_format": form}
    made = post(client, "assistants", model="tiny", **fields)
    plain = post(client, "assistants", model="tiny")
    cleared = post(client, f"assistants/{made['id']}", **dict.fromkeys(fields))
    own = ("id", "created_at")
    assert {k: v for k, v in cleared.items() if k not in own} == {
        k: v for k, v in plain.items() if k not in own
    }
    # Without a model there is no assistant.
    error = post(client, f"assistants/{made['id']}", 400, model=None)["error"]
    assert error["param"] == "model"
    assert get(client, f"assistants/{made['id']}")["model"] == "tiny"


@pytest.mark.parametrize(
    "tools",
    [[TOOL, TOOL], [{"type": "function", "function": {"name": "two words"}}],
     [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]],
)  # fmt: skip
def test_an_assistant_whose_runs_would_be_refused_is_refused(
    client: FlaskClient, assistant: str, tools: list[Any]
) -> None:
    assert (
        "tools[" in post(client, "assistants", 400, model="tiny", tools=tools)["error"]["message"]
    )
    post(client, f"assistants/{assistant}", 400, tools=tools)
    kept = get(client, f"assistants/{assistant}")["tools"]
    assert [t["function"]["name"] for t in kept] == ["weather"]


def test_threads_and_their_messages(client: FlaskClient) -> None:
    thread = post(client, "threads", metadata={"k": "v"})
    path = f"threads/{thread['id']}"
    assert thread["object"] == "thread"
    assert "active_run" not in thread
    assert post(client, path, metadata={"k": "w"})["metadata"] == {"k": "w"}
    ids = [post(client, f"{path}/messages", role="user", content=f"m{i}")["id"] for i in range(3)]
    listed = get(client, f"{path}/messages")
    assert [m["id"] for m in listed["data"]] == ids[::-1]
    message = get(client, f"{path}/messages/{ids[0]}")
    assert message["content"] == [{"type": "text", "text": {"value": "m0", "annotations": []}}]
    assert message["status"] == "completed"
    assert post(client, f"{path}/messages/{ids[0]}", metadata={"a": "b"})["metadata"] == {"a": "b"}
    assert client.delete(f"/v1/{path}/messages/{ids[0]}").get_json()["deleted"] is True
    get(client, f"{path}/messages/{ids[0]}", 404)
    assert client.delete(f"/v1/{path}").get_json()["object"] == "thread.deleted"
    get(client, path, 404)
    get(client, f"{path}/messages", 404)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_thread_is_made_with_a_body_or_without(client: FlaskClient, chunked: bool) -> None:
    # As a server hands on a body in chunks: without its length.
    chunks = {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""} if chunked else {}
    given = {"content_type": "application/json", "environ_overrides": chunks}
    made = client.post("/v1/threads", data=b'{"metadata": {"a": "b"}}', **given).get_json()
    assert made["metadata"] == {"a": "b"}
    empty = client.post("/v1/threads", environ_overrides=chunks)
    assert (empty.status_code, empty.get_json()["metadata"]) == (200, {})
    assert client.post("/v1/threads", data=b"[]", **given).status_code == 400


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
    most = {limit: used[limit.removeprefix("max_")]}
    asked = {"assistant_id": assistant, **FORCED, **most}
    run = settled(client, post(client, f"threads/{thread}/runs", **asked))
    assert run["status"] == "requires_action", run
    path = f"threads/{thread}/runs/{run['id']}"
    post(client, f"{path}/submit_tool_outputs", tool_outputs=outputs_for(run))
    run = settled(client, run)
    assert (run["status"], run["incomplete_details"]) == ("incomplete", {"reason": limit})
    assert run["usage"] == used


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


def long_thread(client: FlaskClient, messages: int) -> str:
    """About 70 tokens for each message; the context has 512."""
    said = [
        {"role": ("user", "assistant")[i % 2], "content": f"m{i:02} " + "x" * 50}
        for i in range(messages)
    ]
    return str(post(client, "threads", messages=said)["id"])


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the model was asked, the oldest first."""
    asked: list[str] = []
    submit = Generations.turn

    def spy(self: Generations, turn: ChatTurn, params: SamplingParams) -> Generation:
        asked.append(turn.prompt)
        return submit(self, turn, params)

    monkeypatch.setattr(Generations, "turn", spy)
    return asked


def finished(client: FlaskClient, assistant: str, thread: str, **fields: Any) -> Any:
    """A run that makes no calls, when it has ended."""
    asked = {"assistant_id": assistant, "tool_choice": "none", **fields}
    run = settled(client, post(client, f"threads/{thread}/runs", **asked))
    assert run["status"] in ("completed", "incomplete"), run
    return run


def shown(prompt: str) -> list[int]:
    """Numbers of the messages that a prompt holds."""
    return [int(n) for n in re.findall(r"m(\d\d) ", prompt)]


def test_of_a_thread_longer_than_the_context_the_middle_is_left_out(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    run = finished(client, assistant, long_thread(client, 21), max_completion_tokens=6)
    first, *rest = shown(prompts[-1])
    # The first message and the newest are there, and as many of the others as fit.
    assert (first, rest) == (0, list(range(rest[0], 21)))
    assert len(rest) > 2
    assert 512 - 6 - 80 < run["usage"]["prompt_tokens"] <= 512 - 6


@pytest.mark.parametrize(("wanted", "room"), [(None, 128), (6, 6), (100_000, 128)])
def test_a_thread_that_is_cut_leaves_room_for_the_answer(
    client: FlaskClient, assistant: str, wanted: int | None, room: int
) -> None:
    run = finished(client, assistant, long_thread(client, 21), max_completion_tokens=wanted)
    assert 512 - room - 80 < run["usage"]["prompt_tokens"] <= 512 - room


def test_a_thread_is_cut_to_the_tokens_that_its_run_may_read(
    client: FlaskClient, assistant: str
) -> None:
    run = finished(client, assistant, long_thread(client, 5), max_prompt_tokens=250)
    assert run["incomplete_details"] != {"reason": "max_prompt_tokens"}
    assert 250 - 80 < run["usage"]["prompt_tokens"] <= 250


def test_a_first_message_is_left_out_where_only_the_newest_fits(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    texts = ("m00 " + "x" * 600, "m01 hi", "m02 and?")
    said = [{"role": "user", "content": text} for text in texts]
    finished(client, assistant, post(client, "threads", messages=said)["id"])
    assert shown(prompts[-1]) == [2]
    # A newest message that is too long by itself can't be answered.
    alone = post(client, "threads", messages=said[:1])["id"]
    error = post(client, f"threads/{alone}/runs", 400, assistant_id=assistant)["error"]
    assert error["code"] == "context_length_exceeded"


def test_a_thread_is_cut_for_the_outputs_of_calls_too(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    thread = long_thread(client, 21)
    run = waiting_run(client, assistant, thread)
    path = f"threads/{thread}/runs/{run['id']}"
    post(client, f"{path}/submit_tool_outputs", tool_outputs=outputs_for(run, "sunny " * 15))
    assert settled(client, run)["status"] in ("completed", "incomplete")
    assert len(shown(prompts[-1])) < len(shown(prompts[-2]))
    assert "sunny" in prompts[-1]


def test_the_sides_take_turns_where_messages_are_left_out(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    """Many chat templates refuse a conversation in which they don't."""
    for extra in range(3):
        thread = long_thread(client, 21)
        more = [{"role": "user", "content": "x" * 70 * extra}]
        finished(client, assistant, thread, additional_messages=more, max_completion_tokens=6)
        sides = re.findall(r"<\|im_start\|>(\w+)", prompts[-1])[:-2]
        assert sides == [("user", "assistant")[i % 2] for i in range(len(sides))]


def test_only_the_last_messages_are_read_where_their_number_is_given(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    path = f"threads/{long_thread(client, 21)}/runs"
    last = {"type": "last_messages", "last_messages": 2}
    asked = {"assistant_id": assistant, "tool_choice": "none", "max_completion_tokens": 2}
    run = settled(client, post(client, path, **asked, truncation_strategy=last))
    assert (run["status"], run["truncation_strategy"]) == ("incomplete", last)
    assert shown(prompts[-1]) == [19, 20]
    many = {**last, "last_messages": 20}
    error = post(client, path, 400, **asked, truncation_strategy=many)["error"]
    assert error["code"] == "context_length_exceeded"
    unsaid = {"type": "last_messages"}
    error = post(client, path, 400, **asked, truncation_strategy=unsaid)["error"]
    assert (error["param"], "last_messages" in error["message"]) == ("truncation_strategy", True)


@pytest.mark.parametrize("sides", [["user", "assistant"], ["assistant"]])
def test_a_run_never_goes_on_with_a_message_of_the_thread(
    client: FlaskClient, assistant: str, prompts: list[str], sides: list[str]
) -> None:
    said = [{"role": side, "content": "I say"} for side in sides]
    thread = post(client, "threads", messages=said)["id"]
    finished(client, assistant, thread, max_completion_tokens=2)
    assert prompts[-1].endswith("\nI say<|im_end|>\n<|im_start|>assistant\n")


def test_a_run_thinks_as_hard_as_its_assistant_unless_it_says_so(
    client: FlaskClient, thread: str
) -> None:
    made = post(client, "assistants", model="tiny", reasoning_effort="low")
    assert made["reasoning_effort"] == "low"
    for given, expected in (({}, "low"), ({"reasoning_effort": "none"}, "none")):
        run = post(client, f"threads/{thread}/runs", assistant_id=made["id"], **given)
        assert run["reasoning_effort"] == expected
        settled(client, run)
    post(client, "assistants", 400, model="tiny", reasoning_effort="much")


def test_in_an_empty_thread_the_model_begins(client: FlaskClient, assistant: str) -> None:
    given = {"assistant_id": assistant, "max_completion_tokens": 2, "tool_choice": "none"}
    run = settled(client, post(client, "threads/runs", **given))
    assert run["status"] in ("completed", "incomplete")


def test_a_prompt_beyond_its_limit_ends_the_run(
    client: FlaskClient, assistant: str, thread: str
) -> None:
    given = {"assistant_id": assistant, "max_prompt_tokens": 3}
    run = settled(client, post(client, f"threads/{thread}/runs", **given))
    assert run["status"] == "incomplete"
    assert run["incomplete_details"] == {"reason": "max_prompt_tokens"}


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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("assistants", {}),
        ("assistants", {"model": "tiny", "tools": [{"type": "code_interpreter"}]}),
        ("assistants", {"model": "tiny", "temperature": 3}),
        ("assistants", {"model": "tiny", "name": "x" * 257}),
        ("threads", {"messages": [{"role": "system", "content": "x"}]}),
        ("threads", {"messages": [{"role": "user", "content": []}]}),
        ("threads", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        ("threads", {"metadata": {"a": 1}}),
        ("threads/runs", {}),
        ("threads/{thread}/runs", {}),
        ("threads/{thread}/messages", {"role": "user"}),
        ("threads/{thread}/messages", {"role": "user", "content": "x", "attachments": [{}]}),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    client: FlaskClient, thread: str, path: str, body: dict[str, Any]
) -> None:
    post(client, path.format(thread=thread), 400, **body)


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("response_format", "json", ""),
        ("response_format", {"type": "json_schema"}, ".json_schema"),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a"}},
         ".json_schema.schema"),
        ("tool_choice", "maybe", ""),
        ("tool_choice", {"type": "function"}, ".function"),
        ("tool_choice", {"type": "function", "function": {"name": 1}}, ".function.name"),
        ("tool_choice", {"type": "file_search"}, ".type"),
    ],
)  # fmt: skip
def test_a_field_of_several_forms_is_refused_by_what_is_wrong_in_the_form_that_was_meant(
    client: FlaskClient, field: str, value: Any, param: str
) -> None:
    error = post(client, "threads/runs", 400, assistant_id="asst_x", **{field: value})["error"]
    assert error["param"] == field + param
    assert error["message"].startswith(f"{field}{param}: ")


def test_a_run_of_an_unknown_assistant_is_not_found(client: FlaskClient, thread: str) -> None:
    for path in ("threads/runs", f"threads/{thread}/runs"):
        error = post(client, path, 404, assistant_id="asst_none")["error"]
        assert "asst_none" in error["message"]


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
