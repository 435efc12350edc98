"""The body of ``/v1/chat/completions``, and of ``/apply-template``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from oxibonsai.chat import ChatRequest
from oxibonsai.errors import RequestError
from oxibonsai.output.tools import read_tools
from oxibonsai.server.model_settings import ModelSettings
from oxibonsai.server.openai.schemas.answer_fields import AnswerFields
from oxibonsai.server.openai.schemas.assistants import NamedFunction
from oxibonsai.server.openai.schemas.beam_search import BeamFields
from oxibonsai.server.openai.schemas.structure import StructureFields
from oxibonsai.server.sampling_fields import SamplingFields, SpeculationFields
from oxibonsai.server.schemas.fields import (
    MOST_MESSAGES,
    MOST_TOOLS,
    Checked,
    Effort,
    Fields,
    Metadata,
)
from oxibonsai.server.schemas.known import (
    OLD_TOOLS,
    ConversationRequest,
    Ignored,
    Unsupported,
)
from oxibonsai.structured import Structure


class AllowedSet(Fields):
    """Names of tools, and whether one of them has to be called."""

    mode: Literal["auto", "required"]
    tools: list[NamedFunction]


class AllowedTools(Fields):
    """``tool_choice``: a subset of the tools; the model sees no others."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedSet


class ThinkingField(Fields):
    """``thinking`` as Anthropic and DeepSeek have it."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=0)


class ReasoningField(Fields):
    """``reasoning`` as OpenAI's responses and OpenRouter have it."""

    effort: Effort | None = None
    enabled: bool | None = None
    max_tokens: int | None = Field(None, ge=0)
    summary: Annotated[Any, Ignored("reasoning is returned whole", "auto")] = None
    exclude: Annotated[Any, Unsupported("leave reasoning_content unread", False)] = None


class ConversationFields(Checked):
    """The fields that determine the prompt of a conversation."""

    model_config = ConfigDict(extra="ignore", strict=True)

    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_MESSAGES)
    tools: list[dict[str, Any]] | None = Field(None, max_length=MOST_TOOLS)
    tool_choice: str | AllowedTools | dict[str, Any] | None = Field(
        None, union_mode="left_to_right"
    )
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = Field(
        None, description="Default: continue a last message of the assistant."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Variables of the chat template, enable_thinking among them."
    )
    reasoning_effort: Effort | None = Field(
        None, description="none and minimal turn thinking off, the others on."
    )
    reasoning_format: str | None = Field(
        None, pattern="^(auto|none|deepseek|deepseek-legacy)$",
        description="none leaves reasoning in the content.",
    )  # fmt: skip
    reasoning_budget: int | None = Field(None, ge=-1, description="-1: no limit.")
    thinking_budget_tokens: int | None = Field(None, ge=-1, description="The same.")
    enable_thinking: bool | None = Field(None, description="As in chat_template_kwargs.")
    thinking: bool | ThinkingField | None = Field(
        None, description="The same, with a budget if it is an object."
    )
    reasoning: ReasoningField | None = Field(
        None, description="The same, with reasoning_effort and a budget."
    )

    # OpenAI's predecessor of tools; rejected, since ignoring them would lose the calls.
    functions: Annotated[Any, OLD_TOOLS] = None
    function_call: Annotated[Any, OLD_TOOLS] = None

    def chat_request(
        self, settings: ModelSettings, structure: Structure | None = None
    ) -> ChatRequest:
        """Return the conversation, with the server's defaults.

        Raises:
            RequestError: Two fields contradict each other.
        """
        last = self.messages[-1]
        with_answer = last.get("role") == "assistant"
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError(
                "add_generation_prompt and continue_final_message exclude each other: send one"
            )
        if self.continue_final_message and not with_answer:
            raise RequestError("continue_final_message: the last message is not the assistant's")
        if with_answer and [m.get("role") for m in self.messages[-2:]] == ["assistant"] * 2:
            raise RequestError(
                "messages ends with two assistant messages: there is nothing to answer"
            )
        # Llama 3's and related templates use these names for the date and the tools.
        now = datetime.now()
        tools, choice = self._tools()
        defaults = dict(settings.chat_template_kwargs)
        thinks = defaults.pop("enable_thinking", None)
        if settings.reasoning != "auto":
            thinks = settings.reasoning == "on"
        options = {
            "functions": json.dumps(tools, indent=4) if tools else "",
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y %H:%M:%S"),
            **defaults,
            **(self.chat_template_kwargs or {}),
        }
        thinking = options.pop("enable_thinking", None)
        if thinking is not None and not isinstance(thinking, bool):
            raise RequestError("chat_template_kwargs.enable_thinking must be true or false")
        asked, reasoning = self.thinking, self.reasoning or ReasoningField.model_validate({})
        effort = self.reasoning_effort or reasoning.effort
        budgets = [self.thinking_budget_tokens, self.reasoning_budget, reasoning.max_tokens]
        if isinstance(asked, ThinkingField):
            budgets.insert(0, asked.budget_tokens)
            asked = {"enabled": True, "disabled": False}.get(asked.type)
        ways = (thinking, self.enable_thinking, asked, reasoning.enabled)
        thinking = next((way for way in ways if way is not None), None)
        if thinking is None and effort is None:
            thinking = thinks
        budget = next(b for b in [*budgets, settings.reasoning_budget] if b is not None)
        format_ = self.reasoning_format or settings.reasoning_format
        return ChatRequest(
            [*self.messages[:-1], _joined(last)] if with_answer else self.messages,
            continue_last=self.continue_final_message is not False,
            add_generation_prompt=self.add_generation_prompt is not False,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls is not False,
            structure=structure,
            enable_thinking=thinking,
            reasoning_effort=effort,
            split_reasoning=format_ != "none",
            thinking_budget=None if budget == -1 else budget,
            template_options=options,
        )

    def _tools(self) -> tuple[list[dict[str, Any]], str | dict[str, Any] | None]:
        """Return the tools that the model may call, and the tool choice."""
        tools, choice = self.tools or [], self.tool_choice
        if not isinstance(choice, AllowedTools):
            return tools, choice
        offered = {tool.name for tool in read_tools(tools)}
        names = {tool.function.name for tool in choice.allowed_tools.tools}
        if unknown := names - offered:
            raise RequestError(f"tool_choice.allowed_tools: there is no tool {min(unknown)!r}")
        return [t for t in tools if t["function"]["name"] in names], choice.allowed_tools.mode


class ChatBody(
    BeamFields,
    ConversationFields,
    StructureFields,
    AnswerFields,
    SamplingFields,
    SpeculationFields,
    ConversationRequest,
):
    """``POST /v1/chat/completions``."""

    max_tokens: int | None = Field(None, ge=-1)
    max_completion_tokens: int | None = Field(
        None, ge=-1, description="Takes precedence over max_tokens."
    )
    n_predict: int | None = Field(None, ge=-1, description="llama-server's name of max_tokens.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    store: bool | None = Field(
        None, description="Keep the completion for GET /v1/chat/completions/{completion_id}."
    )
    metadata: Metadata | None = Field(None, description="Kept with a stored completion.")

    background: bool | None = Field(
        None,
        description="With stream: go on when the client leaves, until the end or until "
        "/v1/chat/completions/{completion_id}/cancel; .../stream joins the answer again.",
    )

    @property
    def limit(self) -> int | None:
        """Maximum number of new tokens; None or -1: the server's default."""
        given = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        return next((n for n in given if n is not None), None)


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    """Return a partial answer as one text: its parts are joined as paragraphs, as in llama-server."""
    content = message.get("content")
    if not isinstance(content, list) or not all(_is_text(p) for p in content):
        return message
    return {**message, "content": "\n\n".join(part["text"] for part in content)}


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )
