"""The bodies of ``/v1/responses`` and ``/v1/conversations``, and the compaction item."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from oxibonsai.server.openai.schemas.mcp import (
    HostedMcpTool,
    McpApprovalRequestItem,
    McpApprovalResponseItem,
    McpCallItem,
    McpListToolsItem,
    NamedMcpTool,
)
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.schemas.fields import MOST_MESSAGES, MOST_TOOLS, Effort, Fields, Metadata
from oxibonsai.server.schemas.known import TextRequest


def packed(summary: str) -> str:
    """Return a summary as ``encrypted_content``; it is encoded, not encrypted."""
    return base64.urlsafe_b64encode(json.dumps({"summary": summary}).encode()).decode()


def unpacked(content: str) -> str:
    """Return the summary.

    Raises:
        ValueError: It was not made by :func:`packed`.
    """
    try:
        summary = json.loads(base64.b64decode(content, altchars=b"-_", validate=True))["summary"]
    except (ValueError, TypeError, KeyError, RecursionError):
        summary = None
    if not isinstance(summary, str):
        raise ValueError("this content was not made by this server")
    return summary


def _checked(content: str) -> str:
    unpacked(content)
    return content


class CompactionItem(Fields):
    """The result of ``/v1/responses/compact``."""

    type: Literal["compaction"]
    id: str | None = None
    encrypted_content: Annotated[str, AfterValidator(_checked)]


Role = Literal["user", "assistant", "system", "developer"]
Status = Literal["in_progress", "completed", "incomplete"]


class TextPart(Fields):
    """A text part of an input or output."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class ImagePart(Fields):
    """A picture: its address, or a stored file."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None

    @model_validator(mode="after")
    def _given_once(self) -> ImagePart:
        if (self.image_url is None) == (self.file_id is None):
            raise ValueError("an input_image has either image_url or file_id")
        return self


class FilePart(Fields):
    """A PDF document: its content in base64, or a stored file."""

    type: Literal["input_file"]
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_address(cls, part: Any) -> Any:
        if isinstance(part, dict) and part.get("file_url") is not None:
            raise ValueError(
                "file_url is not fetched: send file_data, or upload it and send file_id"
            )
        return part

    @model_validator(mode="after")
    def _given_once(self) -> FilePart:
        if (self.file_data is None) == (self.file_id is None):
            raise ValueError("an input_file has either file_data or file_id")
        return self


class RefusalPart(Fields):
    """A refusal by the model."""

    type: Literal["refusal"]
    refusal: str


Part = Annotated[TextPart | ImagePart | FilePart | RefusalPart, Field(discriminator="type")]


class MessageItem(Fields):
    """A message."""

    type: Literal["message"]
    id: str | None = None
    role: Role
    content: list[Part] = Field(max_length=MOST_MESSAGES)
    status: Status | None = None


class FunctionCallItem(Fields):
    """A call that the model made."""

    type: Literal["function_call"]
    id: str | None = None
    call_id: str
    name: str
    arguments: str
    status: Status | None = None


class FunctionCallOutputItem(Fields):
    """The output of a call."""

    type: Literal["function_call_output"]
    id: str | None = None
    call_id: str
    output: str | list[Annotated[TextPart | ImagePart, Field(discriminator="type")]]
    status: Status | None = None


class ThoughtPart(Fields):
    """A piece of reasoning, or of its summary."""

    type: Literal["summary_text", "reasoning_text"]
    text: str


class ReasoningItem(Fields):
    """The model's reasoning before a message or a call."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ThoughtPart] = Field(default_factory=list)
    content: list[ThoughtPart] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


Item = Annotated[
    MessageItem
    | FunctionCallItem
    | FunctionCallOutputItem
    | ReasoningItem
    | CompactionItem
    | McpListToolsItem
    | McpCallItem
    | McpApprovalRequestItem
    | McpApprovalResponseItem,
    Field(discriminator="type"),
]


class FunctionTool(Fields):
    """A function tool. ``strict`` rejects a schema that can't be enforced exactly."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(Fields):
    """A function by its name."""

    type: Literal["function"]
    name: str


class AllowedTools(Fields):
    """A subset of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[Annotated[NamedFunction | NamedMcpTool, Field(discriminator="type")]]


class PlainFormat(Fields):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Fields):
    """JSON of a schema; always enforced, with ``strict`` or without."""

    type: Literal["json_schema"]
    name: str = Field("response", min_length=1, max_length=64)
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextField(Fields):
    """The format of the output text."""

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] = PlainFormat(
        type="text"
    )
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningField(Fields):
    """Whether the model reasons, and how its reasoning is returned."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


# References to stored objects that this server does not have; they can't be ignored.
_UNKNOWN = ("prompt", "context_management")


class ConversationReference(Fields):
    """A conversation by its id."""

    id: str


class InputTokensRequest(Fields):
    """The fields that determine the prompt.

    They are also the body of ``/v1/responses/input_tokens`` and ``/v1/responses/compact``.
    """

    model: str | None = Field(None, description="Ignored: one model is served.")
    input: list[Item] = Field(default_factory=list, max_length=MOST_MESSAGES)
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: ConversationReference | None = Field(
        None, description="The conversation whose items come first, or its id."
    )
    tools: list[Annotated[FunctionTool | HostedMcpTool, Field(discriminator="type")]] = Field(
        default_factory=list, max_length=MOST_TOOLS
    )
    tool_choice: (
        Literal["none", "auto", "required"]
        | Annotated[NamedFunction | NamedMcpTool | AllowedTools, Field(discriminator="type")]
    ) = "auto"
    parallel_tool_calls: bool | None = True
    text: TextField = TextField()
    reasoning: ReasoningField | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, body: Any) -> Any:
        """Normalize plain texts and messages without a type; null is the same as a missing field."""
        body = {k: v for k, v in body.items() if v is not None}
        for name in _UNKNOWN:
            if name in body:
                raise ValueError(f"{name} is not supported: send the items themselves")
        if isinstance(body.get("conversation"), str):
            body["conversation"] = {"id": body["conversation"]}
        if "conversation" in body and "previous_response_id" in body:
            raise ValueError("conversation and previous_response_id exclude each other")
        if isinstance(body.get("input"), str):
            body["input"] = [{"role": "user", "content": body["input"]}]
        if isinstance(body.get("input"), list):
            body["input"] = [with_type(item) for item in body["input"]]
        return body


class ResponseRequest(TextRequest, InputTokensRequest, SamplingFields):
    """The body of the request."""

    # Clients send ever more fields by default, so unknown ones are ignored.
    model_config = ConfigDict(extra="ignore")

    max_output_tokens: int | None = Field(None, ge=1)
    max_tool_calls: int | None = Field(None, ge=1)
    top_logprobs: int | None = Field(None, ge=0, le=20)
    metadata: Metadata | None = None
    include: list[str] | None = None
    store: bool | None = True
    background: bool | None = False
    stream: bool | None = False
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    timings_per_token: bool | None = Field(None, description="Timings with every piece of text.")
    return_progress: bool | None = Field(None, description="Progress of the prompt in the stream.")

    @model_validator(mode="after")
    def _consistent(self) -> ResponseRequest:
        if self.background and self.store is False:
            raise ValueError("background and store=false exclude each other")
        return self


def with_type(item: Any) -> Any:
    """Return an item as it is validated: a message may lack its type, and its content may be a text."""
    if not isinstance(item, dict) or "role" not in item:
        return item
    item = {"type": "message", **item}
    if isinstance(item.get("content"), str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        item["content"] = [{"type": kind, "text": item["content"]}]
    return item


# OpenAI's limit of items that one request may add.
MOST_ITEMS = 20


class ConversationItems(Fields):
    """``POST /v1/conversations/{conversation_id}/items``."""

    items: list[Item] = Field(min_length=1, max_length=MOST_ITEMS)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, body: Any) -> Any:
        return _with_types(body)


class ConversationCreate(Fields):
    """``POST /v1/conversations``."""

    items: list[Item] | None = Field(None, max_length=MOST_ITEMS)
    metadata: Metadata | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, body: Any) -> Any:
        return _with_types(body)


def _with_types(body: Any) -> Any:
    """Normalize plain texts and messages without a type."""
    items = body.get("items") if isinstance(body, dict) else None
    return {**body, "items": [with_type(i) for i in items]} if isinstance(items, list) else body
