"""``/v1/chat/completions`` on a model with random weights: form, counts, limits, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from sse_reader import events

URL = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}},
    "required": ["a"],
    "additionalProperties": False,
}


def ask(client: FlaskClient, **fields: Any) -> Any:
    answer = client.post(URL, json={"messages": HELLO, "max_tokens": 12, "seed": 1, **fields})
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def stream(client: FlaskClient, **fields: Any) -> list[Any]:
    body = {"messages": HELLO, "max_tokens": 12, "seed": 1, "stream": True, **fields}
    return events(client.post(URL, json=body))


def refused(client: FlaskClient, **fields: Any) -> dict[str, Any]:
    answer = client.post(URL, json={"messages": HELLO, **fields})
    assert answer.status_code == 400, answer.text
    return dict(answer.get_json()["error"])


def joined(chunks: list[Any], index: int = 0) -> str:
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(c["delta"].get("content") or "" for c in choices)


def test_an_answer_has_openais_form(model_client: FlaskClient) -> None:
    answer = ask(model_client)
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "tiny"
    assert answer["system_fingerprint"].startswith("b")
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    counts = answer["usage"]
    assert counts["completion_tokens"] == 12
    assert counts["total_tokens"] == counts["prompt_tokens"] + 12
    assert counts["prompt_tokens_details"] == {"cached_tokens": 0}
    assert answer["timings"]["predicted_n"] == 12


def test_a_stream_gives_the_same_text(model_client: FlaskClient) -> None:
    chunks = stream(model_client)
    assert joined(chunks) == ask(model_client)["choices"][0]["message"]["content"]
    first, last = chunks[0]["choices"][0], chunks[-1]["choices"][0]
    assert first["delta"] == {"role": "assistant", "content": None}
    assert (last["delta"], last["finish_reason"]) == ({}, "length")
    middle = [c["choices"][0] for c in chunks[1:-1]]
    assert all("role" not in c["delta"] and c["finish_reason"] is None for c in middle)
    assert len({c["id"] for c in chunks}) == 1
    assert "usage" not in chunks[-1]
    assert chunks[-1]["timings"]["predicted_n"] == 12


def test_counts_come_last_and_only_when_asked_for(model_client: FlaskClient) -> None:
    chunks = stream(model_client, stream_options={"include_usage": True})
    assert [c["choices"] for c in chunks].count([]) == 1
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 12
    assert chunks[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert all(c["usage"] is None for c in chunks[:-1])
    assert "timings" in chunks[-1]


def test_each_sample_is_the_answer_of_its_own_seed(model_client: FlaskClient) -> None:
    samples = ask(model_client, n=3)["choices"]
    alone = [ask(model_client, seed=1 + i)["choices"][0] for i in range(3)]
    assert [c["message"] for c in samples] == [c["message"] for c in alone]
    chunks = stream(model_client, n=3)
    assert [joined(chunks, i) for i in range(3)] == [c["message"]["content"] for c in samples]
    ends = [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert sorted(c["index"] for c in ends) == [0, 1, 2]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_bytes_of_logprobs_are_those_of_the_text(
    model_client: FlaskClient, streamed: bool
) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 3, "max_tokens": 40}
    if streamed:
        chunks = stream(model_client, **fields)
        text = joined(chunks)
        items = [
            item
            for c in chunks
            if c["choices"][0]["logprobs"]
            for item in c["choices"][0]["logprobs"]["content"]
        ]
    else:
        choice = ask(model_client, **fields)["choices"][0]
        text, items = choice["message"]["content"], choice["logprobs"]["content"]
    data = b"".join(bytes(item["bytes"]) for item in items)
    assert data.decode("utf-8", "replace") == text
    for item in items:
        assert item["logprob"] <= 0
        assert len(item["top_logprobs"]) == 3
        assert item["top_logprobs"][0]["logprob"] == max(t["logprob"] for t in item["top_logprobs"])


def test_a_stop_string_ends_the_text_and_shows_nowhere(model_client: FlaskClient) -> None:
    text = ask(model_client, max_tokens=30)["choices"][0]["message"]["content"]
    stop = text[5:8]
    answer = ask(model_client, max_tokens=30, stop=[stop, "never there"])["choices"][0]
    assert answer["message"]["content"] == text[: text.index(stop)]
    assert answer["finish_reason"] == "stop"
    assert joined(stream(model_client, max_tokens=30, stop=stop)) == text[: text.index(stop)]


@pytest.mark.parametrize(
    "fields",
    [
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA},
            }
        },
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"json_schema": SCHEMA},
        {"guided_json": SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
    ],
)
def test_an_answer_matches_its_schema(model_client: FlaskClient, fields: dict[str, Any]) -> None:
    choice = ask(model_client, max_tokens=60, **fields)["choices"][0]
    assert json.loads(choice["message"]["content"]) in ({"a": 1}, {"a": 2})
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"guided_choice": ["red", "green"]}, {"red", "green"}),
        ({"choice": ["red"]}, {"red"}),
        ({"structured_outputs": {"choice": ["blue"]}}, {"blue"}),
        ({"guided_regex": "[ab]"}, {"a", "b"}),
        ({"regex": "x{3}"}, {"xxx"}),
        ({"grammar": 'root ::= "yes" | "no"'}, {"yes", "no"}),
    ],
)
def test_an_answer_matches_its_pattern(
    model_client: FlaskClient, fields: dict[str, Any], wanted: set[str]
) -> None:
    assert ask(model_client, **fields)["choices"][0]["message"]["content"] in wanted


def test_two_structures_are_refused(model_client: FlaskClient) -> None:
    assert "exclude each other" in refused(model_client, regex="a", json_schema={})["message"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_that_does_not_fit_says_by_how_much(
    model_client: FlaskClient, streamed: bool
) -> None:
    long = [{"role": "user", "content": "x" * 600}]
    error = refused(model_client, messages=long, stream=streamed)
    assert error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] > 600
    assert error["n_ctx"] == 512


def test_an_equal_beginning_is_not_computed_again(model_client: FlaskClient) -> None:
    long = [{"role": "user", "content": "tell me more " * 20}]
    first, second = (ask(model_client, messages=long) for _ in range(2))
    assert first["choices"] == second["choices"]
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < second["usage"]["prompt_tokens"]
    assert second["timings"]["cache_n"] == cached


def test_progress_goes_from_the_cache_to_the_whole_prompt(model_client: FlaskClient) -> None:
    chunks = stream(model_client, return_progress=True, timings_per_token=True)
    reports = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
    assert reports[0]["processed"] == reports[0]["cache"]
    assert reports[-1]["processed"] == reports[-1]["total"]
    pieces = [c for c in chunks if c["choices"] and c["choices"][0]["delta"].get("content")]
    assert all("timings" in c for c in pieces)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_n_sigma": 1.0}, "top_n_sigma"),
        ({"samplers": ["sorcery"]}, "samplers"),
        ({"logit_bias": {"1": 1000}}, "logit_bias"),
        ({"response_format": {"type": "sound"}}, "response_format.type"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_a_wrong_field_is_named(
    model_client: FlaskClient, fields: dict[str, Any], param: str
) -> None:
    assert refused(model_client, **fields)["param"] == param


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "nobody", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": [{"type": "text"}]}]},
        {"messages": [*HELLO, *[{"role": "assistant", "content": "a"}] * 2]},
        {"add_generation_prompt": True, "continue_final_message": True},
        {"continue_final_message": True},
        {"chat_template_kwargs": {"messages": []}},
        {"chat_template_kwargs": {"add_generation_prompt": False}},
        {"top_logprobs": 2},
        {"logit_bias": {"100000": 1}},
        {"samplers": ["magic"]},
        {"json_schema": {"type": "hiccup"}},
        {"grammar": "root ::= (nothing"},
        {"tool_choice": "required"},
    ],
)
def test_what_makes_no_sense_is_refused(model_client: FlaskClient, fields: dict[str, Any]) -> None:
    assert refused(model_client, **fields)["type"] == "invalid_request_error"


def test_nulls_are_defaults(model_client: FlaskClient) -> None:
    names = [
        "temperature",
        "top_p",
        "stop",
        "n",
        "logit_bias",
        "tools",
        "response_format",
        "stream",
    ]
    assert ask(model_client, **dict.fromkeys(names))["choices"] == ask(model_client)["choices"]


def test_an_answer_goes_on_from_a_last_message(model_client: FlaskClient) -> None:
    begun = [*HELLO, {"role": "assistant", "content": [{"type": "text", "text": "Well"}]}]
    prompt = model_client.post("/apply-template", json={"messages": begun}).get_json()["prompt"]
    assert prompt.endswith("<|im_start|>assistant\nWell")
    ended = {"messages": begun, "continue_final_message": False}
    prompt = model_client.post("/apply-template", json=ended).get_json()["prompt"]
    assert prompt.endswith("Well<|im_end|>\n<|im_start|>assistant\n")


def test_a_token_can_be_forced_and_banned(model_client: FlaskClient) -> None:
    (a,) = model_client.post("/tokenize", json={"content": "a"}).get_json()["tokens"]
    text = ask(model_client, logit_bias={str(a): 100})["choices"][0]["message"]["content"]
    assert text == "a" * 12
    text = ask(model_client, temperature=0, logit_bias=[["a", 100], ["b", False]])
    assert text["choices"][0]["message"]["content"] == "a" * 12


def test_the_prompt_is_shown_on_request(model_client: FlaskClient) -> None:
    shown = ask(model_client, verbose=True)["__verbose"]["prompt"]
    assert shown == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert "__verbose" not in ask(model_client)


def test_a_conversations_tokens_are_counted(model_client: FlaskClient) -> None:
    counted = model_client.post(f"{URL}/input_tokens", json={"messages": HELLO}).get_json()
    assert counted["input_tokens"] == ask(model_client)["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "param"),
    [("chat/completions", "messages"), ("completions", "prompt"), ("embeddings", "input")],
)
def test_a_field_that_is_missing_is_named(model_client: FlaskClient, path: str, param: str) -> None:
    answer = model_client.post(f"/v1/{path}", json={"model": "tiny"})
    error = answer.get_json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"{param}: ")


def test_a_message_without_content_is_refused(model_client: FlaskClient) -> None:
    answer = model_client.post(URL, json={"messages": [*HELLO, {"role": "user"}]})
    error = answer.get_json()["error"]
    assert (answer.status_code, error["param"]) == (400, "messages[1].content")
    assert error["type"] == "invalid_request_error"
