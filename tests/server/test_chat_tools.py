"""Tool calls and reasoning over HTTP, forced out of a model with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from sse_reader import events

URL = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
_HERE = Path(__file__).parent


def tool(name: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.fixture(scope="module")
def tools_client(
    tiny_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FlaskClient]:
    template = _HERE / "tool_template.jinja"
    app = make_model_app(
        tiny_path, tmp_path_factory.mktemp("state"), chat_template_file=str(template)
    )
    yield app.test_client()
    close_model_app(app)


@pytest.fixture(scope="module")
def thinking_client(
    tiny_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FlaskClient]:
    template = _HERE / "thinking_template.jinja"
    app = make_model_app(
        tiny_path, tmp_path_factory.mktemp("state"), chat_template_file=str(template)
    )
    yield app.test_client()
    close_model_app(app)


def ask(client: FlaskClient, **fields: Any) -> Any:
    answer = client.post(URL, json={"messages": HELLO, "max_tokens": 150, "seed": 3, **fields})
    assert answer.status_code == 200, answer.text
    return answer.get_json()["choices"][0]


def stream(client: FlaskClient, **fields: Any) -> list[dict[str, Any]]:
    body = {"messages": HELLO, "max_tokens": 150, "seed": 3, "stream": True, **fields}
    return [c["choices"][0] for c in events(client.post(URL, json=body))]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "lamp"}}])
def test_a_forced_call_is_one_of_the_tools(tools_client: FlaskClient, choice: Any) -> None:
    fields = {
        "tools": [tool("lamp"), tool("radio")],
        "tool_choice": choice,
        "parallel_tool_calls": False,
    }
    answer = ask(tools_client, **fields)
    assert answer["finish_reason"] == "tool_calls"
    (call,) = answer["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] in (("lamp", "radio") if choice == "required" else ("lamp",))
    assert set(json.loads(call["function"]["arguments"])) == {"on"}
    assert answer["message"]["content"] is None


def test_the_pieces_of_a_streamed_call_make_the_call(tools_client: FlaskClient) -> None:
    fields = {"tools": [tool("lamp")], "tool_choice": "required", "parallel_tool_calls": False}
    whole = ask(tools_client, **fields)["message"]["tool_calls"][0]
    chunks = stream(tools_client, **fields)
    assert chunks[-1]["finish_reason"] == "tool_calls"
    pieces = [p for c in chunks for p in c["delta"].get("tool_calls", [])]
    assert all(p["index"] == 0 for p in pieces)
    assert [p["id"] for p in pieces if "id" in p] == [pieces[0]["id"]]
    assert [p["function"]["name"] for p in pieces if "name" in p["function"]] == ["lamp"]
    arguments = "".join(p["function"].get("arguments", "") for p in pieces)
    assert arguments == whole["function"]["arguments"]


@pytest.mark.parametrize("limit", [150, 40, 3])
def test_a_stream_tells_the_log_probabilities_of_all_tokens_of_a_call(
    tools_client: FlaskClient, limit: int
) -> None:
    fields: dict[str, Any] = {"tools": [tool("lamp")], "tool_choice": "required"}
    fields |= {"parallel_tool_calls": False, "logprobs": True, "max_tokens": limit}
    whole = ask(tools_client, **fields)["logprobs"]["content"]
    told = [c["logprobs"]["content"] for c in stream(tools_client, **fields) if c["logprobs"]]
    assert [token for tokens in told for token in tokens] == whole
    text = b"".join(bytes(token["bytes"]) for token in whole).decode()
    assert text.endswith("</tool_call>") is (limit == 150)


def test_a_forbidden_call_is_text(tools_client: FlaskClient) -> None:
    answer = ask(tools_client, tools=[tool("lamp")], tool_choice="none", max_tokens=20)
    assert "tool_calls" not in answer["message"]


def test_reasoning_comes_apart_and_its_budget_ends_it(thinking_client: FlaskClient) -> None:
    answer = ask(thinking_client, thinking_budget_tokens=5, max_tokens=40)["message"]
    assert answer["reasoning_content"]
    assert answer["content"]
    chunks = stream(thinking_client, reasoning_budget=5, max_tokens=40)
    for name in ("reasoning_content", "content"):
        assert "".join(c["delta"].get(name) or "" for c in chunks) == answer[name]


def test_tokens_of_thoughts_are_counted_among_the_new_ones(thinking_client: FlaskClient) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40}
    whole = thinking_client.post("/v1/chat/completions", json={**body, "reasoning_budget": 5})
    usage = whole.get_json()["usage"]
    thoughts = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 1 <= thoughts < usage["completion_tokens"]


def test_reasoning_can_be_turned_off_or_left_in_the_text(thinking_client: FlaskClient) -> None:
    off = ask(thinking_client, chat_template_kwargs={"enable_thinking": False}, max_tokens=20)
    assert "reasoning_content" not in off["message"]
    assert off["message"]["content"]
    left = ask(thinking_client, reasoning_format="none", reasoning_budget=5, max_tokens=40)
    assert "</think>" in left["message"]["content"]
    assert "reasoning_content" not in left["message"]


_EFFORT_TEMPLATE = (
    "{{ messages[-1].content }} {% if enable_thinking is defined %}"
    "{{ 'thinks' if enable_thinking else 'answers' }}{% endif %}{{ reasoning_effort }}"
)


def test_an_effort_reaches_the_template_from_every_api(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, chat_template=_EFFORT_TEMPLATE, reasoning="off")
    client = app.test_client()
    body = {"messages": HELLO, "reasoning_effort": "high"}
    prompts = {
        effort: client.post("/apply-template", json={**body, "reasoning_effort": effort})
        for effort in ("none", "high", None)
    }
    shown = {effort: answer.get_json()["prompt"] for effort, answer in prompts.items()}
    assert shown == {"none": "hello answersnone", "high": "hello thinkshigh", None: "hello answers"}
    counted = [
        ("/v1/chat/completions/input_tokens", body),
        ("/v1/responses/input_tokens", {"input": "hello", "reasoning": {"effort": "high"}}),
        (
            "/v1/messages/count_tokens",
            {"model": "tiny", "messages": HELLO, "output_config": {"effort": "high"}},
        ),
    ]
    tokens = {url: client.post(url, json=one).get_json()["input_tokens"] for url, one in counted}
    assert len(set(tokens.values())) == 1, tokens
    refused = client.post(URL, json={"messages": HELLO, "reasoning_effort": "much"})
    assert refused.status_code == 400
    assert "reasoning_effort" in refused.text
    close_model_app(app)


def test_an_answer_after_reasoning_matches_its_schema(thinking_client: FlaskClient) -> None:
    answer = ask(thinking_client, thinking_budget_tokens=4, json_schema={"enum": [1, 2]})
    assert json.loads(answer["message"]["content"]) in (1, 2)
    assert answer["message"]["reasoning_content"]


def test_a_call_that_a_limit_cuts_off_is_no_content(tools_client: FlaskClient) -> None:
    forced = {"tools": [tool("lamp")], "tool_choice": "required"}
    (whole,) = ask(tools_client, **forced)["message"]["tool_calls"][:1]
    beginnings = set()
    for limit in range(1, 150):
        cut = ask(tools_client, **forced, max_tokens=limit)
        if cut["finish_reason"] != "length":
            break
        message = cut["message"]
        assert not message["content"]
        for call in message.get("tool_calls", [])[:1]:
            assert call["function"]["name"] == "lamp"
            assert whole["function"]["arguments"].startswith(call["function"]["arguments"])
            beginnings.add(call["function"]["arguments"])
    assert len(beginnings) > 2
    chunks = stream(tools_client, **forced, max_tokens=limit - 2)
    assert not "".join(c["delta"].get("content") or "" for c in chunks).strip()
    assert chunks[-1]["finish_reason"] == "length"


def test_only_a_strict_tool_is_refused_for_what_can_not_be_enforced(
    tools_client: FlaskClient,
) -> None:
    schema = {
        "type": "object",
        "properties": {"on": {"type": "array", "maxItems": 2, "uniqueItems": True}},
    }
    chat = {"name": "lamp", "parameters": schema}
    bodies: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        URL: (
            {"messages": HELLO, "max_tokens": 5},
            {"type": "function", "function": chat},
        ),
        "/v1/responses": (
            {"input": "hello", "max_output_tokens": 5, "store": False},
            {"type": "function", **chat},
        ),
        "/v1/messages": (
            {"model": "tiny", "messages": HELLO, "max_tokens": 5},
            {"name": "lamp", "input_schema": schema},
        ),
    }
    for url, (body, tool_) in bodies.items():
        for strict, status in ((None, 200), (False, 200), (True, 400)):
            marked = {**tool_, "function": {**chat, "strict": strict}}
            given = marked if "function" in tool_ else {**tool_, "strict": strict}
            answer = tools_client.post(url, json={**body, "tools": [given]})
            assert answer.status_code == status, (url, strict, answer.text)
            assert status == 200 or "uniqueItems" in answer.text


def test_strictness_is_no_part_of_the_prompt(tools_client: FlaskClient) -> None:
    prompts = set()
    for strict in (None, False, True):
        given = tool("lamp")
        given["function"]["strict"] = strict
        body = {"messages": HELLO, "tools": [given]}
        prompts.add(tools_client.post("/apply-template", json=body).get_json()["prompt"])
    assert len(prompts) == 1


def test_a_conversation_goes_on_behind_a_call_that_was_cut_off(tools_client: FlaskClient) -> None:
    forced = {"tools": [tool("lamp")], "tool_choice": "required"}
    limit = next(
        n
        for n in range(30, 60)
        if ask(tools_client, **forced, max_tokens=n)["message"].get("tool_calls")
    )
    cut = ask(tools_client, **forced, max_tokens=limit)
    assert cut["finish_reason"] == "length"
    (call,) = cut["message"]["tool_calls"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(call["function"]["arguments"])
    result = {"role": "tool", "tool_call_id": call["id"], "content": "cut off"}
    ask(tools_client, messages=[*HELLO, cut["message"], result], max_tokens=5)
    body = {"input": "hello", "max_output_tokens": limit, "seed": 3, "tool_choice": "required"}
    body["tools"] = [{"type": "function", **tool("lamp")["function"]}]
    first = tools_client.post("/v1/responses", json=body).get_json()
    assert first["status"] == "incomplete"
    assert first["output"][-1]["type"] == "function_call"
    answer = tools_client.post(
        "/v1/responses",
        json={"input": "again", "previous_response_id": first["id"], "max_output_tokens": 5},
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("field", ["functions", "function_call"])
def test_the_predecessors_of_tools_are_refused_by_name(
    tools_client: FlaskClient, field: str
) -> None:
    value = {"functions": [tool("lamp")["function"]], "function_call": "auto"}[field]
    refused = tools_client.post(URL, json={"messages": HELLO, field: value})
    assert refused.status_code == 400
    assert f"{field} is not supported: use tools" in refused.get_json()["error"]["message"]
    ask(tools_client, max_tokens=2, **{field: None})


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_some_of_the_tools_may_be_allowed(tools_client: FlaskClient) -> None:
    offered = [tool("lamp"), tool("radio"), tool("stove")]
    for names in (("radio",), ("lamp", "stove")):
        fields = {"tools": offered, "tool_choice": allowed("required", *names)}
        calls = ask(tools_client, **fields)["message"]["tool_calls"]
        assert {c["function"]["name"] for c in calls} <= set(names)
        shown = [t for t in offered if t["function"]["name"] in names]
        bodies: list[dict[str, Any]] = [{"tools": shown}, {**fields}]
        prompts = {
            tools_client.post("/apply-template", json={"messages": HELLO, **b}).get_json()["prompt"]
            for b in bodies
        }
        assert len(prompts) == 1
    ask(tools_client, tools=offered, tool_choice=allowed("auto", "lamp"), max_tokens=3)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (allowed("required", "horn"), "tool_choice.allowed_tools: there is no tool 'horn'"),
        (allowed("required"), "tool_choice is required, but there are no tools"),
        ({"type": "allowed_tools"}, "tool_choice is none of"),
    ],
)
def test_allowed_tools_that_make_no_sense_are_refused(
    tools_client: FlaskClient, choice: dict[str, Any], message: str
) -> None:
    body = {"messages": HELLO, "tools": [tool("lamp")], "tool_choice": choice}
    refused = tools_client.post(URL, json=body)
    assert refused.status_code == 400
    assert message in refused.get_json()["error"]["message"]


ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
}
RUN_HERE = {("/v1/responses", "mcp")}


@pytest.mark.parametrize(
    ("path", "kind"),
    sorted(set(product(ROUTES, ("web_search", "mcp", "code_interpreter"))) - RUN_HERE),
)
def test_tools_that_nobody_runs_are_refused_with_what_to_do(
    model_client: FlaskClient, path: str, kind: str
) -> None:
    tool = {"type": kind, "name": "search", "server_url": "https://example.org", "input_schema": {}}
    body = ROUTES[path]
    answer = model_client.post(path, json={"model": "tiny", **body, "tools": [tool]})
    assert answer.status_code == 400
    message = answer.get_json()["error"]["message"]
    assert kind in message
    assert "offer a function" in message
