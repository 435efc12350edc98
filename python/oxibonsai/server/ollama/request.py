"""Converts bodies of Ollama's API to conversations and sampling parameters."""

from __future__ import annotations

import json
import logging
import math
import re
from typing import Any

from oxibonsai.chat import ChatRequest
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.described_json import described_json
from oxibonsai.server.model_settings import ModelSettings
from oxibonsai.server.ollama.schemas import (
    OllamaChat,
    OllamaGenerate,
    OllamaGeneration,
    OllamaMessage,
    OllamaOptions,
)
from oxibonsai.server.openai.schemas.chat import ConversationFields
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.validation import as_body
from oxibonsai.structured import Structure

_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 100 * 365 * 86_400.0  # longer is for ever
Message = dict[str, Any]
_log = logging.getLogger("oxibonsai.server")


def model_name(name: str) -> str:
    """Return a model's name without ``:latest``, which clients append to a name without a tag."""
    return name.removesuffix(":latest")


def keep_alive_seconds(value: float | str | None) -> float | None:
    """Return ``keep_alive`` in seconds; negative: for ever; None: the server's setting.

    Raises:
        RequestError: It is no duration.
    """
    if value is None:
        return None
    seconds = _seconds(value) if isinstance(value, str) else value
    if seconds is None or math.isnan(seconds):
        raise RequestError(
            f"keep_alive is {value!r}; it must be seconds, or a duration such as 5m or 1h30m"
        )
    return seconds if seconds <= _LONGEST_SECONDS else -1.0


def _seconds(text: str) -> float | None:
    parts = _DURATION.findall(text)
    if text and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        return None


def chat_request(body: OllamaChat, settings: ModelSettings) -> ChatRequest:
    """Return the conversation of ``/api/chat``."""
    return _conversation(_messages(body.messages or []), body, settings, body.tools)


def prompt_request(body: OllamaGenerate, settings: ModelSettings) -> ChatRequest:
    """Return the conversation of ``/api/generate``: a system message and the prompt."""
    system = [{"role": "system", "content": body.system}] if body.system else []
    user = {"role": "user", "content": _content(body.prompt or "", body.images)}
    return _conversation([*system, user], body, settings, None)


def structure_of(body: OllamaGeneration) -> Structure | None:
    """Return the structure that ``format`` asks for."""
    if not body.format:
        return None
    if body.format == "json":
        return Structure.json_object()
    return described_json(body.format)


def sampling(
    body: OllamaGeneration, settings: ModelSettings, engine: Engine, thinks: bool | None = None
) -> SamplingParams:
    """Return the sampling parameters; ``thinks`` as of :attr:`ChatRequest.thinks`.

    Raises:
        RequestError: A value is out of range.
    """
    options = body.options or OllamaOptions.model_validate({})
    note_context(options, engine)
    fields = as_body(SamplingFields, options.sampling())
    limit = options.num_predict
    logprobs = bool(body.logprobs)
    if body.top_logprobs and not logprobs:
        raise RequestError("top_logprobs requires logprobs: true")
    return fields.sampling_params(
        settings,
        engine,
        max_tokens=None if limit is None or limit < 0 else limit,
        thinks=thinks,
        logprobs=logprobs,
        top_logprobs=body.top_logprobs or 0,
    )


def note_context(options: OllamaOptions | None, engine: Engine) -> None:
    """Log that a request wants a larger context than the model was loaded with, which it doesn't get."""
    if options is not None and options.num_ctx is not None and options.num_ctx > engine.ctx_size:
        _log.info(
            "options.num_ctx is %d, but the model has been loaded with a context of %d, which stays: "
            "--ctx-size, or ctx-size in its preset, changes it",
            options.num_ctx, engine.ctx_size,
        )  # fmt: skip


def _conversation(
    messages: list[Message],
    body: OllamaGeneration,
    settings: ModelSettings,
    tools: list[dict[str, Any]] | None,
) -> ChatRequest:
    variables, effort = None, None
    if isinstance(body.think, str):
        effort = body.think
    elif body.think is not None:
        variables = {"enable_thinking": body.think}
    fields = as_body(
        ConversationFields,
        {
            "messages": messages, "tools": tools, "chat_template_kwargs": variables,
            "reasoning_effort": effort,
        }
    )  # fmt: skip
    return fields.chat_request(settings, structure_of(body))


def _messages(messages: list[OllamaMessage]) -> list[Message]:
    """Return the messages in OpenAI's form, in which a tool's answer names its call by an id."""
    made: list[Message] = []
    open_calls: list[tuple[str, str]] = []  # id and name of calls without an answer yet
    for i, message in enumerate(messages):
        one: Message = {
            "role": message.role, "content": _content(message.content or "", message.images),
        }  # fmt: skip
        if message.thinking:
            one["reasoning_content"] = message.thinking
        if message.tool_calls:
            calls = [
                (c.id or f"call_{i}_{k}", c.function) for k, c in enumerate(message.tool_calls)
            ]
            open_calls = [(call_id, function.name) for call_id, function in calls]
            one["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {
                        "name": function.name,
                        "arguments": json.dumps(function.arguments, ensure_ascii=False),
                    },
                }
                for call_id, function in calls
            ]
        if message.role == "tool":
            one["tool_call_id"] = _answered(message, open_calls, i)
        made.append(one)
    return made


def _answered(message: OllamaMessage, open_calls: list[tuple[str, str]], i: int) -> str:
    """Return the call that a tool's message answers: the first open one, of its name if it has one."""
    if message.tool_call_id is not None:
        return message.tool_call_id
    found = next((c for c in open_calls if message.tool_name in (None, c[1])), None)
    if found is None:
        raise RequestError(f"messages.{i}: there is no tool call that it answers")
    open_calls.remove(found)
    return found[0]


def _content(text: str, images: list[str] | None) -> Any:
    if not images:
        return text
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        for data in images
    ]
    return [*parts, {"type": "text", "text": text}]
