"""Converts the body of ``POST /v1/messages`` to a conversation and sampling parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from oxibonsai.chat import ChatRequest
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.engine import Engine
from oxibonsai.output import find_reasoning_tags
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.anthropic.schemas import (
    Base64Source,
    CountRequest,
    DocumentBlock,
    ImageBlock,
    Message,
    MessageRequest,
    OutputConfig,
    PlainTextSource,
    StoredSource,
    TextBlock,
    ThinkingBlock,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
)
from oxibonsai.server.described_json import described_json
from oxibonsai.server.errors import ApiError
from oxibonsai.server.model_settings import ModelSettings
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.stores import Object


def chat_request(request: CountRequest, template: ChatTemplate | None) -> ChatRequest:
    """Return the conversation.

    Args:
        request: What is asked.
        template: The model's chat template. If it does not support reasoning, ``thinking`` is ignored.
    """
    system = "\n\n".join(block.text for block in request.system)
    messages: list[Object] = [{"role": "system", "content": system}] if system else []
    for i, message in enumerate(request.messages):
        messages += _chat_messages(message, f"messages.{i}")
    if not request.messages:
        messages.append({"role": "user", "content": ""})
    thinking, budget = _thinking(request, template)
    output = request.output_config or OutputConfig()
    form = output.format
    choice = request.tool_choice
    return ChatRequest(
        messages=messages,
        tools=[_tool(t) for t in request.tools],
        tool_choice=_tool_choice(request),
        parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
        structure=None if form is None else described_json(form.schema_),
        enable_thinking=thinking,
        reasoning_effort=output.effort,
        thinking_budget=budget,
    )


def sampling(
    request: MessageRequest, settings: ModelSettings, engine: Engine, thinks: bool | None
) -> SamplingParams:
    """Return the sampling parameters; ``thinks`` as of :attr:`ChatRequest.thinks`."""
    given = {
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "stop": request.stop_sequences,
    }
    fields = SamplingFields.model_validate(given)
    return fields.sampling_params(settings, engine, max_tokens=request.max_tokens, thinks=thinks)


def _thinking(
    request: CountRequest, template: ChatTemplate | None
) -> tuple[bool | None, int | None]:
    wanted = request.thinking
    if wanted is None or template is None or find_reasoning_tags(template.source) is None:
        return None, None
    return wanted.type != "disabled", wanted.budget_tokens if wanted.type == "enabled" else None


def _tool(tool: Tool) -> Object:
    function: Object = {"name": tool.name, "parameters": tool.input_schema, "strict": tool.strict}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _tool_choice(request: CountRequest) -> Any:
    choice = request.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        if choice.name is None:
            raise ApiError(400, "tool_choice.name: Field required.", param="tool_choice.name")
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type if request.tools else None


def _chat_messages(message: Message, place: str) -> list[Object]:
    """Return one message, or tool results followed by the user's text."""
    if message.role == "assistant":
        return [_assistant(message, place)]
    messages: list[Object] = []
    shown: list[TextBlock | ImageBlock | DocumentBlock] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            messages.append(_result(block))
        elif isinstance(block, TextBlock | ImageBlock | DocumentBlock):
            shown.append(block)
        else:
            raise ApiError(
                400, f"{place}.content: a {block.type} block is not allowed in a {message.role} message",
                param=f"{place}.content",
            )  # fmt: skip
    if shown or not messages:
        messages.append({"role": message.role, "content": _content(shown)})
    return messages


def _content(blocks: Sequence[TextBlock | ImageBlock | DocumentBlock]) -> str | list[Object]:
    """Return one text; with images or documents, parts as of the chat API."""
    if any(isinstance(block, ImageBlock | DocumentBlock) for block in blocks):
        return [part for block in blocks for part in _parts(block)]
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def _parts(block: TextBlock | ImageBlock | DocumentBlock) -> list[Object]:
    if isinstance(block, TextBlock):
        return [_said(block.text)]
    if isinstance(block, DocumentBlock):
        return _document(block)
    source = block.source
    if isinstance(source, Base64Source):
        return [{"type": "image", "base64": source.data, "media_type": source.media_type}]
    if isinstance(source, UrlSource):
        return [{"type": "image", "url": source.url}]
    return [{"type": "image", "file_id": source.file_id}]


def _document(block: DocumentBlock) -> list[Object]:
    source = block.source
    if isinstance(source, PlainTextSource):
        about = [t for t in (block.title, block.context) if t]
        return [_said("\n".join([*about, source.data, ""]))]
    held = (
        {"file_id": source.file_id}
        if isinstance(source, StoredSource)
        else {"file_data": source.data}
    )
    file = {"type": "file", "file": {"filename": block.title or None, **held}}
    return [_said(f"{block.context}\n"), file] if block.context else [file]


def _result(block: ToolResultBlock) -> Object:
    content = _content(block.content)
    if block.is_error:
        # Chat templates have no field for it.
        said = "Error: "
        content = f"{said}{content}" if isinstance(content, str) else [_said(said), *content]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _said(text: str) -> Object:
    return {"type": "text", "text": text}


def _assistant(message: Message, place: str) -> Object:
    texts, thoughts, calls = [], [], []
    for block in message.content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ThinkingBlock):
            thoughts += [block.thinking] if block.thinking else []  # else they were omitted
        elif isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": json.dumps(block.input)}
            calls.append({"type": "function", "id": block.id, "function": function})
        elif isinstance(block, ToolResultBlock | ImageBlock):
            raise ApiError(
                400, f"{place}.content: a {block.type} block is not allowed in an assistant message",
                param=f"{place}.content",
            )  # fmt: skip
    said: Object = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        said["reasoning_content"] = "\n".join(thoughts)
    if calls:
        said["tool_calls"] = calls
    return said
