"""The body of ``POST /v1/messages``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from oxibonsai.server.batches.records import MOST_REQUESTS
from oxibonsai.server.schemas.fields import MOST_MESSAGES, MOST_TOOLS, Effort, Fields


class TextBlock(Fields):
    """A piece of text."""

    type: Literal["text"]
    text: str


class Base64Source(Fields):
    """A picture in the request."""

    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


class UrlSource(Fields):
    """A picture on the web."""

    type: Literal["url"]
    url: str


class FileSource(Fields):
    """A picture among the stored files."""

    type: Literal["file"]
    file_id: str


class ImageBlock(Fields):
    """A picture."""

    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource | FileSource, Field(discriminator="type")]


class PdfSource(Fields):
    """A PDF file in the request."""

    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: str


class PlainTextSource(Fields):
    """A text in the request."""

    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: str


class StoredSource(Fields):
    """A PDF file among the stored files."""

    type: Literal["file"]
    file_id: str


class Citations(Fields):
    """Whether the answer shall cite a document."""

    enabled: bool = False

    @model_validator(mode="after")
    def _none(self) -> Citations:
        if self.enabled:
            raise ValueError(
                "citations are not supported: leave citations out or set enabled to false"
            )
        return self


class DocumentBlock(Fields):
    """A document: a PDF file or a text."""

    type: Literal["document"]
    source: Annotated[PdfSource | PlainTextSource | StoredSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None


class ThinkingBlock(Fields):
    """The model's reasoning."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Fields):
    """Encrypted reasoning of another service; it is dropped."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(Fields):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Fields):
    """The output of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: list[Annotated[TextBlock | ImageBlock, Field(discriminator="type")]] = Field(
        default_factory=list
    )
    is_error: bool = False


Block = Annotated[
    TextBlock
    | ImageBlock
    | DocumentBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock,
    Field(discriminator="type"),
]


class Message(Fields):
    """A message; a text stands for one block."""

    role: Literal["user", "assistant", "system"]
    content: list[Block] = Field(max_length=MOST_MESSAGES)


class Tool(Fields):
    """A function on offer."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class ToolChoice(Fields):
    """Whether to call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(Fields):
    """Whether the model thinks first."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=1)
    display: Literal["summarized", "omitted"] | None = None


class SchemaFormat(Fields):
    """JSON of a schema."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """The format of the output text, and the reasoning effort."""

    format: SchemaFormat | None = None
    effort: Effort | None = None


class CountRequest(Fields):
    """The fields that determine the prompt; the body of ``/v1/messages/count_tokens``."""

    model: str
    messages: list[Message] = Field(
        max_length=MOST_MESSAGES, description="An empty list is the same as one empty user message."
    )
    system: list[TextBlock] = Field(default_factory=list)
    tools: list[Tool] = Field(default_factory=list, max_length=MOST_TOOLS)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, body: Any) -> Any:
        """Normalize plain texts to blocks; null is the same as a missing field."""
        body = {k: v for k, v in body.items() if v is not None}
        if body.get("mcp_servers"):
            raise ValueError("mcp_servers is not supported: send the servers' tools as tools")
        body["system"] = _blocks(body.get("system", []))
        if isinstance(body.get("messages"), list):
            body["messages"] = [_with_blocks(m) for m in body["messages"]]
        return body


class MessageRequest(CountRequest):
    """The body of the request."""

    max_tokens: int = Field(ge=1)
    stop_sequences: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=16
    )
    stream: bool = False
    temperature: float | None = Field(None, ge=0, le=2)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, ge=0, le=1)


class BatchedRequest(Fields):
    """A request of a batch."""

    custom_id: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")
    params: dict[str, Any] = Field(description="A body of POST /v1/messages, checked when it runs.")


class BatchCreate(Fields):
    """The body of ``POST /v1/messages/batches``."""

    requests: list[BatchedRequest] = Field(min_length=1, max_length=MOST_REQUESTS)

    @model_validator(mode="after")
    def _distinct(self) -> BatchCreate:
        names = [request.custom_id for request in self.requests]
        if len(set(names)) < len(names):
            raise ValueError("two requests have the same custom_id")
        return self


class BatchQuery(Fields):
    """The query parameters of the list of batches, which begins with the newest."""

    limit: int = Field(20, ge=1, le=1000)
    after_id: str | None = None
    before_id: str | None = None


def _blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_blocks(message: Any) -> Any:
    """Validate the blocks of a message and of the results within it."""
    if not isinstance(message, dict):
        return message
    content = _blocks(message.get("content"))
    if isinstance(content, list):
        content = [
            {**b, "content": _blocks(b["content"])}
            if isinstance(b, dict) and b.get("type") == "tool_result" and "content" in b
            else b
            for b in content
        ]
    return {**message, "content": content}
