"""Converts the body of ``POST /v1/responses`` to a prompt and sampling parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oxibonsai.chat import ChatRequest, PreparedPrompt
from oxibonsai.engine import Engine
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.described_json import described_json
from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import PromptLimit
from oxibonsai.server.openai.prompts import fitting_prompt
from oxibonsai.server.openai.responses.hosted import NO_TOOLS, HostedTools
from oxibonsai.server.openai.responses.items import chat_messages
from oxibonsai.server.openai.schemas.mcp import NamedMcpTool
from oxibonsai.server.openai.schemas.responses import (
    AllowedTools,
    FunctionTool,
    InputTokensRequest,
    NamedFunction,
    ResponseRequest,
    SchemaFormat,
)
from oxibonsai.server.settings import Settings
from oxibonsai.server.stores import Object
from oxibonsai.server.submitter import Submitter
from oxibonsai.structured import Structure

LOGPROBS = "message.output_text.logprobs"


def prepare_response(
    submitter: Submitter,
    request: InputTokensRequest,
    items: Sequence[Object],
    hosted: HostedTools = NO_TOOLS,
    *,
    answer_tokens: int = 1,
    runs: bool = True,
) -> PreparedPrompt:
    """Return the prompt.

    Args:
        submitter: The server's.
        request: What is asked.
        items: The conversation, that of earlier responses included. With ``truncation: auto`` the
            oldest are left out where they don't fit.
        hosted: The tools of MCP servers that the request offers.
        answer_tokens: Tokens of the context that are then reserved for the answer.
        runs: Reject a prompt that does not fit into the context.

    Raises:
        RequestError, ApiError: A field makes no sense for this model.
    """
    ctx_size = submitter.engine.ctx_size
    most = PromptLimit(ctx_size) if runs else None

    def prepared(dropped: int) -> PreparedPrompt:
        rest = list(items[dropped:])
        # A tool output without its call is meaningless.
        while dropped and rest and rest[0]["type"] == "function_call_output":
            rest.pop(0)
        return submitter.read_chat(_chat_request(request, rest, hosted), most)

    can_be_cut = request.truncation == "auto"
    return fitting_prompt(prepared, len(items) - 1 if can_be_cut else 0, ctx_size - answer_tokens)


def sampling(
    engine: Engine, request: ResponseRequest, settings: Settings, thinks: bool | None
) -> SamplingParams:
    """Return the sampling parameters; ``thinks`` as of :attr:`PreparedPrompt.thinks`."""
    wanted = LOGPROBS in (request.include or []) or bool(request.top_logprobs)
    return request.sampling_params(
        settings,
        engine,
        max_tokens=request.max_output_tokens,
        thinks=thinks,
        logprobs=wanted,
        top_logprobs=request.top_logprobs or 0,
    )


def _chat_request(
    request: InputTokensRequest, items: Sequence[Object], hosted: HostedTools
) -> ChatRequest:
    tools, choice = _tools(request, hosted)
    return ChatRequest(
        messages=chat_messages(request.instructions, items),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        structure=_structure(request),
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
    )


def _tools(request: InputTokensRequest, hosted: HostedTools) -> tuple[list[Object], Any]:
    """Return tools and tool choice of the chat API."""
    choice = request.tool_choice
    tools = [_chat_tool(t) for t in request.tools if isinstance(t, FunctionTool)]
    tools += [tool.definition for tool in hosted.by_name.values()]
    if isinstance(choice, NamedFunction):
        return tools, {"type": "function", "function": {"name": choice.name}}
    if isinstance(choice, NamedMcpTool):
        names = _chosen(choice, request, hosted, "tool_choice")
        return _of_names(tools, names), "required"
    if isinstance(choice, AllowedTools):
        names = [
            name for c in choice.tools for name in _chosen(c, request, hosted, "tool_choice.tools")
        ]
        return _of_names(tools, names), choice.mode
    # Without tools, auto is left out.
    return tools, choice if tools or choice == "required" else None


def _chosen(
    choice: NamedFunction | NamedMcpTool,
    request: InputTokensRequest,
    hosted: HostedTools,
    place: str,
) -> list[str]:
    """Return the model's names of the tools that a choice means."""
    if isinstance(choice, NamedFunction):
        names = [t.name for t in request.tools if isinstance(t, FunctionTool)]
        names, wanted = [name for name in names if name == choice.name], choice.name
    else:
        label, name = choice.server_label, choice.name
        of_label = [t for t in hosted.by_name.values() if t.label == label]
        names = [t.name for t in of_label if name is None or t.tool.tool == name]
        wanted = label if name is None else f"{label}.{name}"
    if not names:
        raise ApiError(400, f"{place}: there is no tool '{wanted[:80]}'", param="tool_choice")
    return names


def _of_names(tools: list[Object], names: Sequence[str]) -> list[Object]:
    return [tool for tool in tools if tool["function"]["name"] in names]


def later_request(request: ResponseRequest, *, tokens_used: int, may_call: bool) -> ResponseRequest:
    """Return the request for the reply after a call: the model is free to call again, or may not.

    Args:
        request: The client's.
        tokens_used: Of ``max_output_tokens``.
        may_call: Whether the model may call tools.
    """
    choice = request.tool_choice
    if not may_call:
        choice = "none"
    elif isinstance(choice, AllowedTools):
        choice = choice.model_copy(update={"mode": "auto"})
    elif choice != "none":
        choice = "auto"
    most = request.max_output_tokens
    left = None if most is None else most - tokens_used
    return request.model_copy(update={"tool_choice": choice, "max_output_tokens": left})


def _chat_tool(tool: FunctionTool) -> Object:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": {k: v for k, v in function.items() if v is not None}}


def _structure(request: InputTokensRequest) -> Structure | None:
    form = request.text.format
    if isinstance(form, SchemaFormat):
        return described_json(form.schema_, strict=form.strict)
    return Structure.json_object() if form.type == "json_object" else None
