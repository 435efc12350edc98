"""``/v1/responses`` on a tiny model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from busy_engines import engines_busy
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from named_events import read_events
from tool_template import CITY, TEMPLATE, THINKING_TEMPLATE
from url_sweep import assert_error_object

from oxibonsai.output import Delta, ToolCallDelta
from oxibonsai.server.generation import Generation
from oxibonsai.server.openai.background_tasks import fail_interrupted
from oxibonsai.server.openai.responses.items import chat_messages, stored_items
from oxibonsai.server.openai.responses.output import OutputWriter
from oxibonsai.server.openai.schemas.responses import InputTokensRequest, unpacked
from oxibonsai.server.server import Server

TOOL = {"type": "function", "name": "weather", "parameters": CITY}


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path_factory.mktemp("state"), chat_template=TEMPLATE)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


def ask(client: FlaskClient, **fields: Any) -> Any:
    body = {"model": "tiny", "input": "hi", "max_output_tokens": 6, "ignore_eos": True, **fields}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return read_events(answer.text) if fields.get("stream") else answer.get_json()


def ended(client: FlaskClient, response_id: str) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        response = client.get(f"/v1/responses/{response_id}").get_json()
        if response["status"] not in ("queued", "in_progress"):
            return response
        time.sleep(0.02)
    raise AssertionError("the response did not end")


def test_an_answer_is_kept_as_it_was_given(client: FlaskClient) -> None:
    response = ask(client, metadata={"a": "b"}, instructions="Be brief.")
    assert response["object"] == "response"
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    (message,) = response["output"]
    assert message["content"][0]["type"] == "output_text"
    assert response["usage"]["output_tokens"] == 6
    assert response["metadata"] == {"a": "b"}
    assert client.get(f"/v1/responses/{response['id']}").get_json() == response


def test_a_stream_tells_the_same_as_the_answer_at_once(client: FlaskClient) -> None:
    whole = ask(client, seed=5)
    events = ask(client, seed=5, stream=True)
    assert [d["sequence_number"] for _, d in events] == list(range(len(events)))
    assert all(name == d["type"] for name, d in events)
    kinds = [name for name, _ in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.incomplete",
    ]  # fmt: skip
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    text = "".join(d["delta"] for name, d in events if name == "response.output_text.delta")
    assert text == whole["output"][0]["content"][0]["text"]
    last = events[-1][1]["response"]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    assert events[0][1]["response"]["output"] == []
    assert client.get(f"/v1/responses/{last['id']}").get_json() == last


def test_a_chain_reads_everything_that_was_said(client: FlaskClient) -> None:
    said: list[Any] = []
    previous = None
    for i in range(3):
        said.append({"role": "user", "content": f"question {i}"})
        response = ask(client, input=f"question {i}", previous_response_id=previous, seed=i)
        alone = ask(client, input=said, seed=i)
        assert response["usage"]["input_tokens"] == alone["usage"]["input_tokens"]
        text = response["output"][0]["content"][0]["text"]
        assert text == alone["output"][0]["content"][0]["text"]
        said.append({"role": "assistant", "content": text})
        previous = response["id"]


def test_a_chain_with_a_deleted_link_is_refused(client: FlaskClient) -> None:
    first = ask(client)
    second = ask(client, previous_response_id=first["id"])
    deleted = client.delete(f"/v1/responses/{first['id']}").get_json()
    assert deleted == {"id": first["id"], "object": "response", "deleted": True}
    assert client.get(f"/v1/responses/{first['id']}").status_code == 404
    body = {"model": "tiny", "input": "x", "previous_response_id": second["id"]}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 404
    assert answer.get_json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_to_be_stored_is_not(client: FlaskClient, stream: bool) -> None:
    made = ask(client, store=False, stream=stream)
    response = made[-1][1]["response"] if stream else made
    assert response["store"] is False
    assert client.get(f"/v1/responses/{response['id']}").status_code == 404


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_output(client: FlaskClient, stream: bool) -> None:
    given = {"tools": [TOOL], "parallel_tool_calls": False, "max_output_tokens": 200}
    made = ask(client, **given, tool_choice="required", stream=stream, ignore_eos=False)
    response = made[-1][1]["response"] if stream else made
    assert response["status"] == "completed"
    call = response["output"][-1]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "weather", "completed")
    assert json.loads(call["arguments"]) == {"city": "Rome"}
    if stream:
        pieces = [d for name, d in made if name == "response.function_call_arguments.delta"]
        assert "".join(d["delta"] for d in pieces) == call["arguments"]
        (done,) = [d for name, d in made if name == "response.function_call_arguments.done"]
        assert (done["arguments"], done["name"]) == (call["arguments"], "weather")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    after = ask(client, input=[output], previous_response_id=response["id"])
    assert after["output"][0]["type"] == "message"


def test_an_answer_follows_its_schema(client: FlaskClient) -> None:
    form = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
    response = ask(client, text={"format": form}, max_output_tokens=100, ignore_eos=False)
    assert json.loads(response["output"][0]["content"][0]["text"]) == {"city": "Rome"}
    assert response["text"]["format"]["schema"] == CITY


@pytest.mark.parametrize(
    ("summary", "kinds"),
    [
        (None, ["reasoning_text.delta", "reasoning_text.done", "content_part.done"]),
        ("auto", ["reasoning_summary_text.delta", "reasoning_summary_text.done",
                  "reasoning_summary_part.done"]),
    ],
)  # fmt: skip
def test_thoughts_are_an_item_of_their_own(
    tiny_path: Path, tmp_path: Path, summary: str | None, kinds: list[str]
) -> None:
    app = make_model_app(tiny_path, tmp_path, chat_template=THINKING_TEMPLATE)
    asked = {"effort": "high", "summary": summary}
    events = ask(app.test_client(), reasoning=asked, stream=True)
    close_model_app(app)
    names = [name for name, _ in events]
    assert {f"response.{k}" for k in kinds} <= set(names)
    (item,) = events[-1][1]["response"]["output"]
    assert item["type"] == "reasoning"
    part = item["summary" if summary else "content"][0]
    assert part["type"] == ("summary_text" if summary else "reasoning_text")
    assert part["text"]


def test_logprobs_cover_the_text(client: FlaskClient) -> None:
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    response = ask(client, **asked)
    part = response["output"][0]["content"][0]
    told = b"".join(bytes(t["bytes"]) for t in part["logprobs"])
    assert told.decode("utf-8", "replace") == part["text"]
    assert all(len(t["top_logprobs"]) == 2 for t in part["logprobs"])


def test_a_background_response_ends_and_can_be_followed_again(client: FlaskClient) -> None:
    response = ask(client, background=True)
    assert response["status"] == "queued"
    done = ended(client, response["id"])
    assert done["status"] == "incomplete"
    again = read_events(client.get(f"/v1/responses/{response['id']}?stream=true").text)
    assert [d["sequence_number"] for _, d in again] == list(range(len(again)))
    assert [name for name, _ in again][:3] == [
        "response.created", "response.queued", "response.in_progress",
    ]  # fmt: skip
    assert again[-1][1]["response"] == done
    tail = client.get(f"/v1/responses/{response['id']}?stream=true&starting_after=3").text
    assert read_events(tail) == again[4:]


def test_of_a_response_whose_events_are_gone_the_last_one_is_left(client: FlaskClient) -> None:
    response = ask(client)
    ((name, event),) = read_events(client.get(f"/v1/responses/{response['id']}?stream=true").text)
    assert name == event["type"] == "response.incomplete"
    assert event["response"] == response


def test_a_background_response_can_be_cancelled(app: Server, client: FlaskClient) -> None:
    with engines_busy(app):
        response = ask(client, background=True)
        cancelled = client.post(f"/v1/responses/{response['id']}/cancel").get_json()
    assert cancelled["status"] == "cancelled"
    assert client.get(f"/v1/responses/{response['id']}").get_json() == cancelled
    assert client.post(f"/v1/responses/{response['id']}/cancel").get_json() == cancelled
    foreground = ask(client)
    assert client.post(f"/v1/responses/{foreground['id']}/cancel").status_code == 400


@pytest.fixture
def narrow(tiny_path: Path, tmp_path: Path) -> Iterator[Server]:
    """One answer at a time; two background tasks run, two more may wait for a thread."""
    given = {"chat_template": TEMPLATE, "parallel": 1, "queue_size": 2}
    made = make_model_app(tiny_path, tmp_path, **given)
    yield made
    close_model_app(made)


def test_a_background_response_that_waits_for_its_turn_is_cancelled_at_once(
    narrow: Server,
) -> None:
    client = narrow.test_client()
    with engines_busy(narrow):
        *others, last = [ask(client, background=True) for _ in range(4)]
        more = {"model": "tiny", "input": "hi", "background": True}
        assert client.post("/v1/responses", json=more).status_code == 503
        cancelled = client.post(f"/v1/responses/{last['id']}/cancel").get_json()
        assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
        assert client.get(f"/v1/responses/{last['id']}").get_json() == cancelled
        assert client.post(f"/v1/responses/{last['id']}/cancel").get_json() == cancelled
        # Who follows it is told, and its place is free.
        events = read_events(client.get(f"/v1/responses/{last['id']}?stream=true").text)
        assert [name for name, _ in events] == [
            "response.created", "response.queued", "response.cancelled",
        ]  # fmt: skip
        assert events[-1][1]["response"] == cancelled
        others.append(ask(client, background=True))
    assert {ended(client, r["id"])["status"] for r in others} == {"incomplete"}
    assert client.get(f"/v1/responses/{last['id']}").get_json() == cancelled


def test_a_background_response_that_waits_for_its_turn_can_be_deleted(narrow: Server) -> None:
    client = narrow.test_client()
    with engines_busy(narrow):
        *_, last = [ask(client, background=True) for _ in range(4)]
        assert client.delete(f"/v1/responses/{last['id']}").status_code == 200
        assert ask(client, background=True)["status"] == "queued"


def test_a_server_that_drains_waits_for_jobs_that_wait_for_a_thread(narrow: Server) -> None:
    client = narrow.test_client()
    with engines_busy(narrow):
        *_, last = [ask(client, background=True) for _ in range(4)]
        assert narrow.lifecycle.background == 4
        client.post(f"/v1/responses/{last['id']}/cancel")
        assert narrow.lifecycle.background == 3


def test_a_client_that_leaves_a_stream_ends_the_work(app: Server, client: FlaskClient) -> None:
    body = {"model": "tiny", "input": "hi", "stream": True, "ignore_eos": True}
    answer = client.post("/v1/responses", json=body, buffered=False)
    pieces = answer.iter_encoded()
    first = read_events(next(pieces).decode())[0][1]["response"]
    next(pieces)
    answer.close()
    assert client.get(f"/v1/responses/{first['id']}").get_json()["status"] == "cancelled"
    deadline = time.monotonic() + 60
    while app.submitter.pool.running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert app.submitter.pool.running == 0


def test_responses_and_input_items_are_listed_in_pages(client: FlaskClient) -> None:
    items = [{"role": "user", "content": f"n{i}"} for i in range(5)]
    ids = [ask(client, input=items, max_output_tokens=1)["id"] for _ in range(3)]
    listed = client.get("/v1/responses?limit=3").get_json()
    assert [r["id"] for r in listed["data"]] == ids[::-1]
    path = f"/v1/responses/{ids[0]}/input_items"
    page = client.get(f"{path}?order=asc&limit=2").get_json()
    assert [i["content"][0]["text"] for i in page["data"]] == ["n0", "n1"]
    assert page["has_more"]
    rest = client.get(f"{path}?order=asc&after={page['last_id']}").get_json()
    assert [i["content"][0]["text"] for i in rest["data"]] == ["n2", "n3", "n4"]
    assert not rest["has_more"]
    newest = client.get(path).get_json()["data"]
    assert newest[0]["content"][0] == {"type": "input_text", "text": "n4"}
    assert client.get(f"{path}?after=msg_none").status_code == 400


def test_every_input_item_has_an_id_of_its_own(client: FlaskClient) -> None:
    given = ["msg_a", "msg_b", "msg_a", "", None]
    items = [
        {"type": "message", "role": "user", "content": f"n{i}", "id": item_id}
        for i, item_id in enumerate(given)
    ]
    response = ask(client, input=items, max_output_tokens=1)
    path = f"/v1/responses/{response['id']}/input_items?order=asc&limit=1"
    found, after = [], ""
    for _ in given:
        page = client.get(f"{path}&after={after}").get_json()
        found += page["data"]
        after = page["last_id"]
    assert not page["has_more"]
    assert [i["content"][0]["text"] for i in found] == [f"n{i}" for i in range(5)]
    ids = [i["id"] for i in found]
    assert ids[:2] == ["msg_a", "msg_b"]
    assert len(set(ids)) == len(ids)
    assert all(i.startswith("msg_") for i in ids)


def test_auto_truncation_leaves_out_the_oldest(client: FlaskClient) -> None:
    items = [{"role": "user", "content": f"{i:03} " + "x" * 60} for i in range(20)]
    body = {"model": "tiny", "input": items, "max_output_tokens": 2}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 400
    assert answer.get_json()["error"]["code"] == "context_length_exceeded"
    response = ask(client, input=items, truncation="auto", max_output_tokens=2)
    assert 300 < response["usage"]["input_tokens"] < 512


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 3}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, None),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [TOOL, TOOL]}, None),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "none"}}, None),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.name"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"k" * 65: ""}}, None),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"prompt": {"id": "pmpt_1"}}, None),
        ({"background": True, "store": False}, None),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": 3}}}}, None),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    client: FlaskClient, fields: dict[str, Any], param: str | None
) -> None:
    body = {"model": "tiny", "input": "hi", **fields}
    answer = client.post("/v1/responses", json={k: v for k, v in body.items() if v is not None})
    assert answer.status_code == (404 if "previous_response_id" in fields else 400), answer.text
    assert_error_object(answer)
    if param is not None:
        assert answer.get_json()["error"]["param"] == param


def test_a_refusal_is_one_sentence_of_our_own(client: FlaskClient) -> None:
    answer = client.post("/v1/responses", json={"input": "hi", "context_management": []})
    assert answer.get_json()["error"]["message"] == (
        "the body: context_management is not supported: send the items themselves."
    )


def test_a_request_without_a_model_gets_the_one_that_is_served(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/v1/responses", "/responses", "/v1/responses/input_tokens"):
        answer = client.post(path, json={"input": "hi"})
        assert answer.status_code == 200, answer.text
        assert answer.get_json().get("model", "tiny") == "tiny"
        monkeypatch.setitem(app.settings.__dict__, "require_model", True)
        refused = client.post(path, json={"input": "hi"})
        assert (refused.status_code, refused.get_json()["error"]["param"]) == (400, "model")
        monkeypatch.setitem(app.settings.__dict__, "require_model", False)


def test_an_image_is_refused_by_name(client: FlaskClient) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    body = {"input": [{"role": "user", "content": [image]}]}
    error = client.post("/v1/responses", json=body).get_json()["error"]
    assert "image input is not supported" in error["message"]


def test_input_tokens_are_those_of_the_response(client: FlaskClient) -> None:
    fields = {"instructions": "Be brief.", "tools": [TOOL], "input": "hi"}
    first = ask(client, **fields)
    counted = client.post("/v1/responses/input_tokens", json=fields).get_json()
    assert counted == {
        "object": "response.input_tokens",
        "input_tokens": first["usage"]["input_tokens"],
    }
    more = {"previous_response_id": first["id"], "input": "and?"}
    counted = client.post("/v1/responses/input_tokens", json=more).get_json()
    assert counted["input_tokens"] == ask(client, **more)["usage"]["input_tokens"]
    nothing = client.post("/v1/responses/input_tokens", json={}).get_json()
    assert nothing["input_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("most", [1, 2])
def test_more_calls_than_max_tool_calls_are_left_out(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, most: int, stream: bool
) -> None:
    def three_calls(answers: Generation) -> Iterator[tuple[int, Delta | None]]:
        for i in range(3):
            call = ToolCallDelta(index=i, id=f"call_{i}", name="weather", arguments="{}")
            yield 0, Delta(tool_call=call)
        yield 0, None

    monkeypatch.setattr(Generation, "stream", three_calls)
    made = ask(client, tools=[TOOL], max_tool_calls=most, stream=stream)
    response = made[-1][1]["response"] if stream else made
    assert response["status"] == "completed"
    assert [i["call_id"] for i in response["output"]] == [f"call_{i}" for i in range(most)]


def test_a_stream_tells_times_and_progress_where_they_are_asked_for(client: FlaskClient) -> None:
    asked = {"timings_per_token": True, "return_progress": True, "input": "This is a test " * 10}
    events = ask(client, stream=True, **asked)
    reports = [d["prompt_progress"] for _, d in events if "prompt_progress" in d]
    assert [n for n, d in events if "prompt_progress" in d] == ["response.in_progress"] * len(
        reports
    )
    assert reports[-1]["processed"] == reports[-1]["total"]
    timed = [d["timings"] for n, d in events if n == "response.output_text.delta"]
    assert timed
    assert all(t["prompt_per_second"] >= 0 for t in [*timed, events[-1][1]["timings"]])
    assert not any("timings" in d or "prompt_progress" in d for _, d in ask(client, stream=True))


def test_llama_servers_route_ends_a_cut_answer_with_completed(client: FlaskClient) -> None:
    body = {"input": "hi", "max_output_tokens": 2, "ignore_eos": True, "stream": True}
    for path, kind in (("/responses", "completed"), ("/v1/responses", "incomplete")):
        name, last = read_events(client.post(path, json=body).text)[-1]
        assert name == last["type"] == f"response.{kind}"
        assert last["response"]["status"] == "incomplete"


def test_items_become_messages_of_a_chat() -> None:
    text = lambda kind, value: [{"type": kind, "text": value}]  # noqa: E731
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    items = [
        {"type": "message", "role": "developer", "content": text("input_text", "Rules.")},
        {"type": "message", "role": "user", "content": text("input_text", "Go.")},
        {"type": "reasoning", "summary": [], "content": text("reasoning_text", "Hm.")},
        {"type": "message", "role": "assistant", "content": text("output_text", "I look.")},
        call,
        {**call, "call_id": "d"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"type": "function_call_output", "call_id": "d", "output": text("input_text", "2")},
    ]
    system, user, assistant, one, two = chat_messages("Be brief.", items)
    assert system == {"role": "system", "content": "Be brief.\n\nRules."}
    assert user == {"role": "user", "content": "Go."}
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Hm.")
    assert [c["id"] for c in assistant["tool_calls"]] == ["c", "d"]
    assert one == {"role": "tool", "tool_call_id": "c", "content": "1"}
    assert two["content"] == "2"


def test_a_model_that_says_nothing_has_sent_an_empty_message() -> None:
    writer = OutputWriter()
    kinds = [e["type"].removeprefix("response.") for e in writer.finish(complete=True)]
    assert kinds == [
        "output_item.added", "content_part.added", "output_text.done", "content_part.done",
        "output_item.done",
    ]  # fmt: skip
    assert [p["text"] for p in writer.items[0]["content"]] == [""]
    assert OutputWriter().finish(complete=False) == []


def test_thoughts_text_and_two_calls_are_four_items() -> None:
    writer = OutputWriter()
    events = []
    for delta in (
        Delta(reasoning_content="a"),
        Delta(content="b"),
        Delta(tool_call=ToolCallDelta(0, "c0", "f", "{")),
        Delta(tool_call=ToolCallDelta(0, arguments="}")),
        Delta(tool_call=ToolCallDelta(1, "c1", "g", "{}")),
    ):
        events += writer.feed(delta)
    events += writer.finish(complete=True)
    assert [i["type"] for i in writer.items] == [
        "reasoning", "message", "function_call", "function_call",
    ]  # fmt: skip
    assert [i.get("status") for i in writer.items] == [None, *["completed"] * 3]
    assert [i["arguments"] for i in writer.items[2:]] == ["{}", "{}"]
    names = [e["type"].removeprefix("response.") for e in events]
    assert names.count("output_item.added") == names.count("output_item.done") == 4
    for i in range(4):
        own = [e for e in events if e["output_index"] == i]
        assert own[0]["type"] == "response.output_item.added"
        assert own[-1]["type"] == "response.output_item.done"
        assert own[-1]["item"] == writer.items[i]


def test_what_was_in_progress_when_a_server_died_has_failed(app: Server) -> None:
    store = app.store.responses
    done = ask(app.test_client())
    response = {**done, "id": "resp_cut", "status": "in_progress", "output": []}
    store.create("anonymous", {"id": "resp_cut", "response": response, "input": []})
    assert fail_interrupted(app.store) == 1
    found = app.test_client().get("/v1/responses/resp_cut").get_json()
    assert found["status"] == "failed"
    assert found["error"]["code"] == "server_error"
    assert app.test_client().get(f"/v1/responses/{done['id']}").get_json() == done
    assert fail_interrupted(app.store) == 0


def compact(client: FlaskClient, **fields: Any) -> Any:
    answer = client.post("/v1/responses/compact", json={"model": "m", **fields})
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def test_a_conversation_is_made_short_and_goes_on(client: FlaskClient) -> None:
    first = ask(client, input="hi", instructions="Be brief.")
    short = compact(client, previous_response_id=first["id"], input="and?")
    assert short["object"] == "response.compaction"
    assert [i["type"] for i in short["output"]] == ["message", "message", "compaction"]
    assert [i["content"][0]["text"] for i in short["output"][:2]] == ["hi", "and?"]
    usage = short["usage"]
    assert 0 < usage["output_tokens"] <= 128  # a quarter of the context
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    again = compact(client, previous_response_id=first["id"], input="and?")
    sealed = [s["output"][-1]["encrypted_content"] for s in (short, again)]
    assert sealed[0] == sealed[1]
    more = [*short["output"], {"role": "user", "content": "go on"}]
    messages = chat_messages(None, stored_items(InputTokensRequest(input=more).input))
    assert [m["role"] for m in messages] == ["user", "user", "assistant", "user"]
    assert messages[2]["content"].endswith(unpacked(sealed[0]))
    kept = ask(client, input=more)
    assert ask(client, input="so?", previous_response_id=kept["id"])["status"] in (
        "completed",
        "incomplete",
    )
    # The compacted one itself is not kept.
    assert client.get(f"/v1/responses/{short['id']}").status_code == 404


def test_of_a_conversation_longer_than_the_context_the_newest_is_made_short(
    client: FlaskClient,
) -> None:
    said = [{"role": "user", "content": f"{i} " * 60} for i in range(20)]
    short = compact(client, input=said)
    assert len(short["output"]) == 21
    assert 200 < short["usage"]["input_tokens"] <= 512 - 128


@pytest.mark.parametrize(
    "content", ["", "secret", "e30=", "eyJzdW1tYXJ5IjogMX0=", "\u00e9", "W10="]
)
def test_a_compacted_conversation_of_another_service_is_refused(
    client: FlaskClient, content: str
) -> None:
    item = {"type": "compaction", "encrypted_content": content}
    for path in ("/v1/responses", "/v1/responses/compact"):
        answer = client.post(path, json={"input": [item]})
        assert answer.status_code == 400
        assert "this content was not made by this server" in answer.get_json()["error"]["message"]


def test_nothing_is_not_made_short(client: FlaskClient) -> None:
    answer = client.post("/v1/responses/compact", json={"model": "m"})
    assert answer.status_code == 400
    assert answer.get_json()["error"]["param"] == "input"
