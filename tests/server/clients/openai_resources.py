"""The official Python client on everything beside chat: completions, embeddings, models, responses,
assistants, files. As in ``openai_chat.py``, cases hold for every model."""

from __future__ import annotations

import base64
import io
import json
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

import openai
from openai_chat import CITIES, SCHEMA, Case, tool

PROMPT = "What is the capital of France?"


def lax(client: openai.OpenAI) -> openai.OpenAI:
    """For what OpenAI itself answers otherwise than its own types say."""
    return openai.OpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=0)


def complete(client: openai.OpenAI, model: str, stream: bool, **fields: Any) -> list[str]:
    """The texts of the choices."""
    values: dict[str, Any] = {
        "model": model, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, **fields,
    }  # fmt: skip
    if not stream:
        answer = client.completions.create(**values)
        assert answer.object == "text_completion"
        return [c.text for c in sorted(answer.choices, key=lambda c: c.index)]
    texts: dict[int, str] = {}
    # finish_reason is null in all chunks but the last, which the type of a choice does not allow.
    for chunk in lax(client).completions.create(**values, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    return [texts[i] for i in sorted(texts)]


def completions(client: openai.OpenAI, model: str, stream: bool) -> None:
    (one,) = complete(client, model, stream)
    assert complete(client, model, not stream) == [one]
    assert complete(client, model, stream, prompt=["Once upon a time"]) == [one]
    first, second = complete(client, model, stream, prompt=["Once upon a time", "In the end"])
    assert first == one
    assert [second] == complete(client, model, stream, prompt="In the end")
    assert len(complete(client, model, stream, n=2)) == 2
    (echoed,) = complete(client, model, stream, echo=True)
    assert echoed == "Once upon a time" + one
    ids = complete(client, model, stream, prompt=[5, 6, 7])
    assert ids == complete(client, model, stream, prompt=[[5, 6, 7]])


def completion_logprobs(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = client.completions.create(
        model=model, prompt="Once upon a time", max_tokens=4, temperature=0, logprobs=2
    )
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.token_logprobs is not None
    assert found.top_logprobs is not None
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs)
    assert all(x <= 0 for x in found.token_logprobs)


def embeddings(client: openai.OpenAI, model: str, stream: bool) -> None:
    texts = ["a cat", "a dog", "thermodynamics"]
    # Without a format the client asks for base64, and decodes it only after its strict checks.
    one = lax(client).embeddings.create(model=model, input="a cat")
    plain = client.embeddings.create(model=model, input=texts, encoding_format="float")
    packed = lax(client).embeddings.with_raw_response.create(
        model=model, input=texts, encoding_format="base64"
    )
    assert [e.index for e in plain.data] == [0, 1, 2]
    assert plain.usage.prompt_tokens > 0
    for entry, other in zip(plain.data, json.loads(packed.text)["data"], strict=True):
        data = base64.b64decode(other["embedding"])
        floats = struct.unpack(f"<{len(data) // 4}f", data)
        assert len(floats) == len(entry.embedding)
        assert all(abs(a - b) < 1e-6 for a, b in zip(floats, entry.embedding, strict=True))
    assert len(one.data) == 1
    assert isinstance(one.data[0].embedding[0], float)
    ids = lax(client).embeddings.create(model=model, input=[5, 6, 7])
    assert len(ids.data) == 1


def models(client: openai.OpenAI, model: str, stream: bool) -> None:
    assert model in [m.id for m in client.models.list()]
    assert client.models.retrieve(model).id == model
    try:
        client.models.retrieve("no-such-model")
    except openai.NotFoundError:
        return
    raise AssertionError("a model that is not there was found")


def respond(client: openai.OpenAI, model: str, stream: bool, **fields: Any) -> Any:
    """A response; a streamed one from its last event, after a look at the order of events."""
    values: dict[str, Any] = {
        "model": model, "input": PROMPT, "temperature": 0, "max_output_tokens": 8, **fields,
    }  # fmt: skip
    if not stream:
        return client.responses.create(**values)
    events = list(client.responses.create(**values, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds
    assert kinds[-1] in ("response.completed", "response.incomplete"), kinds
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done")
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    final = events[-1].response
    assert text == final.output_text
    return final


def responses(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = respond(client, model, stream)
    assert answer.id.startswith("resp_")
    assert answer.status in ("completed", "incomplete")
    if answer.status == "incomplete":
        assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens > 0
    assert respond(client, model, not stream).output_text == answer.output_text
    stored = client.responses.retrieve(answer.id)
    assert stored.output_text == answer.output_text
    (item,) = client.responses.input_items.list(answer.id).data
    assert item.type == "message"
    # Raw: by its words the output begins with the user's messages, by its types there are none.
    raw = client.responses.with_raw_response
    short = raw.compact(model=model, input="Go on.", previous_response_id=answer.id)
    output = short.http_response.json()["output"]
    assert [item["type"] for item in output] == ["message", "message", "compaction"]
    again = [*output, {"role": "user", "content": "And?"}]
    assert respond(client, model, stream, input=again).usage.input_tokens > 0
    client.responses.delete(answer.id)
    _expect(openai.NotFoundError, lambda: client.responses.retrieve(answer.id))


def response_chains(client: openai.OpenAI, model: str, stream: bool) -> None:
    chain = [respond(client, model, stream)]
    for i in range(4):
        chain.append(
            respond(client, model, stream, input=f"Go on {i}.", previous_response_id=chain[-1].id)
        )
    tokens = [r.usage.input_tokens for r in chain]
    assert tokens == sorted(set(tokens)), tokens
    assert chain[-1].previous_response_id == chain[-2].id
    client.responses.delete(chain[2].id)
    _expect(
        openai.APIStatusError,
        lambda: respond(client, model, stream, previous_response_id=chain[2].id),
    )
    unstored = respond(client, model, stream, store=False)
    _expect(openai.NotFoundError, lambda: client.responses.retrieve(unstored.id))


def response_tools(client: openai.OpenAI, model: str, stream: bool) -> None:
    function = {"type": "function", "strict": True, **tool("weather")["function"]}
    answer = respond(
        client, model, stream, tools=[function], tool_choice="required", max_output_tokens=128
    )
    calls = [i for i in answer.output if i.type == "function_call"]
    assert calls, answer
    assert json.loads(calls[0].arguments)["city"] in CITIES["enum"]
    result = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "21 degrees"}
    rest = [
        {"type": "function_call_output", "call_id": c.call_id, "output": "?"} for c in calls[1:]
    ]
    after = respond(
        client, model, stream, input=[result, *rest], previous_response_id=answer.id,
        tools=[function],
    )  # fmt: skip
    assert after.status in ("completed", "incomplete")


def response_schema(client: openai.OpenAI, model: str, stream: bool) -> None:
    form = {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}
    answer = respond(client, model, stream, text={"format": form}, max_output_tokens=128)
    assert json.loads(answer.output_text)["city"] in CITIES["enum"]


def background_response(client: openai.OpenAI, model: str, stream: bool) -> None:
    answer = client.responses.create(
        model=model, input=PROMPT, background=True, max_output_tokens=8, temperature=0
    )
    assert answer.status in ("queued", "in_progress", "completed", "incomplete")
    done = _wait(lambda: client.responses.retrieve(answer.id), ("queued", "in_progress"))
    assert done.status in ("completed", "incomplete")
    cancelled = client.responses.create(
        model=model, input=PROMPT, background=True, max_output_tokens=2000
    )
    assert client.responses.cancel(cancelled.id).status in ("cancelled", "completed", "incomplete")


def files(client: openai.OpenAI, model: str, stream: bool) -> None:
    data = "é\n".encode() * 1000
    made = client.files.create(file=("notes.txt", io.BytesIO(data)), purpose="assistants")
    assert made.bytes == len(data)
    assert made.filename == "notes.txt"
    assert client.files.content(made.id).read() == data
    assert made.id in [f.id for f in client.files.list()]
    assert client.files.retrieve(made.id).id == made.id
    assert client.files.delete(made.id).deleted
    _expect(openai.NotFoundError, lambda: client.files.retrieve(made.id))


def assistant_with_tools(client: openai.OpenAI, model: str, stream: bool) -> None:
    beta = client.beta
    assistant = beta.assistants.create(
        model=model, instructions="Be brief.", tools=[tool("weather")], name="helper"
    )
    thread = beta.threads.create(messages=[{"role": "user", "content": "Weather in Rome?"}])
    options: dict[str, Any] = {"temperature": 0, "max_completion_tokens": 128}
    run = beta.threads.runs.create(
        thread_id=thread.id, assistant_id=assistant.id, tool_choice="required", **options
    )
    run = _wait(
        lambda: beta.threads.runs.retrieve(run.id, thread_id=thread.id), ("queued", "in_progress")
    )
    assert run.status == "requires_action", run
    assert run.required_action is not None
    calls = run.required_action.submit_tool_outputs.tool_calls
    outputs = [{"tool_call_id": c.id, "output": "21 degrees"} for c in calls]
    if stream:
        with beta.threads.runs.submit_tool_outputs_stream(
            run_id=run.id, thread_id=thread.id, tool_outputs=outputs
        ) as events:
            kinds = [e.event for e in events]
        assert "thread.run.in_progress" in kinds or "thread.run.queued" in kinds, kinds
    else:
        beta.threads.runs.submit_tool_outputs(
            run_id=run.id, thread_id=thread.id, tool_outputs=outputs
        )
    ended = _wait(
        lambda: beta.threads.runs.retrieve(run.id, thread_id=thread.id), ("queued", "in_progress")
    )
    assert ended.status in ("completed", "incomplete", "requires_action"), ended
    steps = beta.threads.runs.steps.list(run.id, thread_id=thread.id).data
    assert "tool_calls" in [s.type for s in steps]
    if ended.status == "requires_action":
        beta.threads.runs.cancel(run.id, thread_id=thread.id)
    assert beta.assistants.delete(assistant.id).deleted
    assert beta.threads.delete(thread.id).deleted


def assistant_stream(client: openai.OpenAI, model: str, stream: bool) -> None:
    beta = client.beta
    assistant = beta.assistants.create(model=model, instructions="Be brief.")
    thread = beta.threads.create(messages=[{"role": "user", "content": PROMPT}])
    options: dict[str, Any] = {"temperature": 0, "max_completion_tokens": 12}
    ends = ("thread.run.completed", "thread.run.incomplete")
    if stream:
        with beta.threads.runs.stream(
            thread_id=thread.id, assistant_id=assistant.id, **options
        ) as events:
            kinds = [e.event for e in events]
        assert kinds[0] == "thread.run.created", kinds
        assert "thread.message.delta" in kinds, kinds
        assert any(k in ends for k in kinds), kinds
    else:
        run = beta.threads.runs.create_and_poll(
            thread_id=thread.id, assistant_id=assistant.id, poll_interval_ms=50, **options
        )
        assert run.status in ("completed", "incomplete"), run
    messages = beta.threads.messages.list(thread.id, order="asc").data
    assert [m.role for m in messages] == ["user", "assistant"]


def _expect(error: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def _wait(get: Callable[[], Any], while_: Iterable[str]) -> Any:
    deadline = time.monotonic() + 60
    while (found := get()).status in while_:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


CASES: Iterable[Case] = (
    completions, completion_logprobs, embeddings, models, responses, response_chains,
    response_tools, response_schema, background_response, files, assistant_with_tools,
    assistant_stream,
)  # fmt: skip
