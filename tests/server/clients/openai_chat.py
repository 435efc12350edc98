"""Chat completions through the official Python client: each case without and with a stream.

No test of its own: ``openai_matrix.py`` runs the cases in whatever environment has the client. They
hold for every model, since they ask for shapes and equalities and never for a certain text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

Case = Callable[[openai.OpenAI, str, bool], None]

CITIES = {"type": "string", "enum": ["Paris", "Rome"]}
SCHEMA = {
    "type": "object",
    "properties": {"city": CITIES, "degrees": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


def tool(name: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"city": CITIES},
        "required": ["city"],
        "additionalProperties": False,
    }
    description = f"Says the {name} of a city."
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def chat(client: openai.OpenAI, model: str, stream: bool, **fields: Any) -> ChatCompletion:
    """One answer, whole or put together from a stream."""
    values: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 12,
        **fields,
    }
    if not stream:
        return client.chat.completions.create(**values)
    chunks = client.chat.completions.create(
        **values, stream=True, stream_options={"include_usage": True}
    )
    return joined(list(chunks))


def joined(chunks: list[ChatCompletionChunk]) -> ChatCompletion:
    """The answer that a stream's chunks are pieces of."""
    choices: dict[int, dict[str, Any]] = {}
    for choice in (c for chunk in chunks for c in chunk.choices):
        new = {"index": choice.index, "message": {"role": "assistant", "content": None}}
        at = choices.setdefault(choice.index, {**new, "logprobs": None, "finish_reason": None})
        at["finish_reason"] = choice.finish_reason or at["finish_reason"]
        if choice.delta.content is not None:
            at["message"]["content"] = (at["message"]["content"] or "") + choice.delta.content
        if choice.logprobs is not None and choice.logprobs.content:
            at["logprobs"] = at["logprobs"] or {"content": [], "refusal": None}
            at["logprobs"]["content"] += [t.model_dump() for t in choice.logprobs.content]
        for piece in choice.delta.tool_calls or []:
            calls = at["message"].setdefault("tool_calls", [])
            assert piece.function is not None
            if piece.index == len(calls):  # the first piece of a call has its id and its name
                assert piece.id is not None
                function = {"name": piece.function.name, "arguments": ""}
                calls.append({"id": piece.id, "type": "function", "function": function})
            else:
                assert piece.id is None
            calls[piece.index]["function"]["arguments"] += piece.function.arguments or ""
    first = chunks[0]
    return ChatCompletion.model_validate(
        {
            "id": first.id, "object": "chat.completion", "created": first.created,
            "model": first.model, "choices": [choices[i] for i in sorted(choices)],
            "usage": chunks[-1].usage and chunks[-1].usage.model_dump(),
        }
    )  # fmt: skip


def text_of(answer: ChatCompletion, choice: int = 0) -> str:
    return answer.choices[choice].message.content or ""


def text(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0
    assert 0 < answer.usage.completion_tokens <= 12
    total = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.total_tokens == total
    assert text_of(chat(client, model, not stream)) == text_of(answer)


def list_content(client: openai.OpenAI, model: str, stream: bool) -> None:
    parts = [
        {"type": "text", "text": "What is the capital"},
        {"type": "text", "text": " of France?"},
    ]
    listed = chat(client, model, stream, messages=[{"role": "user", "content": parts}])
    plain = chat(client, model, stream)
    assert listed.usage is not None
    assert listed.choices[0].finish_reason in ("stop", "length")
    one = [{"type": "text", "text": "What is the capital of France?"}]
    same = chat(client, model, stream, messages=[{"role": "user", "content": one}])
    assert text_of(same) == text_of(plain)


def required_tool(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(
        client, model, stream, tools=[tool("weather"), tool("time")], tool_choice="required",
        max_tokens=128,
    )  # fmt: skip
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls", choice
    assert choice.message.tool_calls
    ids = [c.id for c in choice.message.tool_calls]
    assert len(set(ids)) == len(ids)
    for call in choice.message.tool_calls:
        assert call.type == "function"
        assert call.function.name in ("weather", "time")
        assert json.loads(call.function.arguments)["city"] in CITIES["enum"]


def named_tool(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(
        client, model, stream, tools=[tool("weather"), tool("time")], max_tokens=128,
        tool_choice={"type": "function", "function": {"name": "time"}},
    )  # fmt: skip
    calls = answer.choices[0].message.tool_calls
    assert calls, answer
    assert {c.function.name for c in calls} == {"time"}


def no_parallel_tools(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(
        client, model, stream, tools=[tool("weather"), tool("time")], tool_choice="required",
        parallel_tool_calls=False, max_tokens=128,
    )  # fmt: skip
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert len(calls) == 1


def no_tool(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, tools=[tool("weather")], tool_choice="none")
    assert not answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason in ("stop", "length")


def auto_tool(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, tools=[tool("weather")], tool_choice="auto", max_tokens=64)
    (choice,) = answer.choices
    called = bool(choice.message.tool_calls)
    assert (choice.finish_reason == "tool_calls") == called


def tool_results_go_back(client: openai.OpenAI, model: str, stream: bool) -> None:
    user = {"role": "user", "content": "Weather in Rome?"}
    call = chat(
        client, model, False, messages=[user], tools=[tool("weather")], tool_choice="required",
        max_tokens=128,
    ).choices[0].message  # fmt: skip
    assert call.tool_calls
    results = [
        {"role": "tool", "tool_call_id": c.id, "content": '{"degrees": 21}'}
        for c in call.tool_calls
    ]
    messages = [user, call.model_dump(exclude_none=True, exclude={"parsed"}), *results]
    answer = chat(client, model, stream, messages=messages, tools=[tool("weather")])
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


def json_schema(client: openai.OpenAI, model: str, stream: bool) -> None:
    wanted = {"name": "answer", "strict": True, "schema": SCHEMA}
    answer = chat(
        client, model, stream, max_tokens=128,
        response_format={"type": "json_schema", "json_schema": wanted},
    )  # fmt: skip
    value = json.loads(text_of(answer))
    assert set(value) == {"city", "degrees"}
    assert value["city"] in CITIES["enum"]
    assert 0 <= value["degrees"] <= 9
    assert answer.choices[0].finish_reason == "stop"


def unicode_over_tokens(client: openai.OpenAI, model: str, stream: bool) -> None:
    wanted = {"name": "answer", "schema": {"enum": ["é🙂漢字👩‍👩‍👧"]}}
    answer = chat(
        client, model, stream, max_tokens=128,
        response_format={"type": "json_schema", "json_schema": wanted},
    )  # fmt: skip
    assert json.loads(text_of(answer)) == "é🙂漢字👩‍👩‍👧"


def bad_schema(client: openai.OpenAI, model: str, stream: bool) -> None:
    wanted = {"name": "answer", "schema": {"type": "no such type"}}
    try:
        chat(client, model, stream, response_format={"type": "json_schema", "json_schema": wanted})
    except openai.BadRequestError as e:
        kind = e.type
    else:
        kind = None
    assert kind == "invalid_request_error"


def logprobs(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, logprobs=True, top_logprobs=3)
    (choice,) = answer.choices
    assert choice.logprobs is not None
    assert choice.logprobs.content
    tokens = choice.logprobs.content
    joined = b"".join(bytes(t.bytes or b"") for t in tokens)
    assert joined.decode(errors="replace").startswith(text_of(answer))
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        best = [t.logprob for t in token.top_logprobs]
        assert best == sorted(best, reverse=True)
        # Greedy: the token taken is the likeliest one.
        assert math.isclose(token.logprob, best[0], abs_tol=1e-6)


def two_choices(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, n=2, temperature=1, seed=5)
    assert sorted(c.index for c in answer.choices) == [0, 1]
    again = chat(client, model, not stream, n=2, temperature=1, seed=5)
    by_index = [{c.index: c.message.content for c in a.choices} for a in (answer, again)]
    assert by_index[0] == by_index[1]
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 1


def stop_strings(client: openai.OpenAI, model: str, stream: bool) -> None:
    whole = text_of(chat(client, model, False, max_tokens=24))
    assert len(whole) > 6
    for stop in (whole[3:6], ["never said 1", whole[3:6], "never said 2", "never said 3"]):
        answer = chat(client, model, stream, max_tokens=24, stop=stop)
        wanted = whole[3:6]
        assert text_of(answer) == whole[: whole.index(wanted)]
        assert answer.choices[0].finish_reason == "stop"


def seeds(client: openai.OpenAI, model: str, stream: bool) -> None:
    def texts(seed: int) -> str:
        return text_of(chat(client, model, stream, temperature=1.5, seed=seed, max_tokens=16))

    assert texts(7) == texts(7)
    assert len({texts(seed) for seed in range(4)}) > 1


def one_token(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 1


def max_completion_tokens(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, max_tokens=openai.NOT_GIVEN, max_completion_tokens=2)
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 2


def empty_prompt(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, messages=[{"role": "user", "content": ""}])
    assert answer.choices[0].finish_reason in ("stop", "length")


def system_and_turns(client: openai.OpenAI, model: str, stream: bool) -> None:
    messages = [
        {"role": "system", "content": "Be brief, friendly and exact. " * 20},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "And now?"},
    ]
    first = chat(client, model, stream, messages=messages)
    second = chat(client, model, stream, messages=messages)
    assert text_of(first) == text_of(second)
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) > 0


def logit_bias_and_penalties(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = chat(client, model, stream, frequency_penalty=0.5, presence_penalty=0.5, max_tokens=4)
    assert answer.choices[0].finish_reason in ("stop", "length")
    answer = chat(client, model, stream, logit_bias={"65": 100}, max_tokens=4)
    assert len(set(text_of(answer))) == 1


def chunks_are_openais(client: openai.OpenAI, model: str, stream: bool) -> None:
    """The chunks themselves; ``stream`` says whether usage is asked for."""
    options = {"stream_options": {"include_usage": True}} if stream else {}
    chunks = list(
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8,
            temperature=0, stream=True, **options,
        )
    )  # fmt: skip
    assert len({c.id for c in chunks}) == 1
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    if stream:
        last = chunks.pop()
        assert last.choices == []
        assert last.usage is not None
        assert last.usage.completion_tokens > 0
    assert all(c.usage is None for c in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(c.choices[0].delta.role is None for c in chunks[1:])
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    assert not chunks[-1].choices[0].delta.content
    assert all(c.choices[0].finish_reason is None for c in chunks[:-1])


def errors_have_their_classes(client: openai.OpenAI, model: str, stream: bool) -> None:
    def refused(error: type[openai.APIStatusError], **fields: Any) -> None:
        try:
            chat(client, model, stream, **fields)
        except error:
            return
        raise AssertionError(f"no {error.__name__} for {fields}")

    refused(openai.BadRequestError, temperature=-1)
    refused(openai.BadRequestError, messages=[])
    refused(openai.BadRequestError, top_logprobs=3)
    refused(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 20_000}])


CASES: Iterable[Case] = (
    text, list_content, required_tool, named_tool, no_parallel_tools, no_tool, auto_tool,
    tool_results_go_back, json_schema, unicode_over_tokens, bad_schema, logprobs, two_choices,
    stop_strings, seeds, one_token, max_completion_tokens, empty_prompt, system_and_turns,
    logit_bias_and_penalties, chunks_are_openais, errors_have_their_classes,
)  # fmt: skip
