"""The body of ``POST /v1/messages``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from oxibonsai.server.schemas.fields import MOST_MESSAGES, MOST_TOOLS, Effort, Fields


class TextBlock(Fields):
    """A piece of text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(Fields):
    """What the model thought."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Fields):
    """Thoughts that only another service can read; they are left out."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(Fields):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Fields):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: list[TextBlock] = Field(default_factory=list)
    is_error: bool = False


Block = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock,
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
    """The form of the answer's text, and how hard to think about it."""

    format: SchemaFormat | None = None
    effort: Effort | None = None


class CountRequest(Fields):
    """A prompt whose tokens are to be counted."""

    model: str
    messages: list[Message] = Field(
        max_length=MOST_MESSAGES, description="None at all: a user who says nothing."
    )
    system: list[TextBlock] = Field(default_factory=list)
    tools: list[Tool] = Field(default_factory=list, max_length=MOST_TOOLS)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, body: Any) -> Any:
        """Texts in place of lists of blocks; null means the same as nothing."""
        body = {k: v for k, v in body.items() if v is not None}
        if body.get("mcp_servers"):
            raise ValueError("mcp_servers is not supported: send the servers' tools as tools")
        body["system"] = _blocks(body.get("system", []))
        if isinstance(body.get("messages"), list):
            body["messages"] = [_with_blocks(m) for m in body["messages"]]
        return body


class MessageRequest(CountRequest):
    """What is asked for."""

    max_tokens: int = Field(ge=1)
    stop_sequences: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=16
    )
    stream: bool = False
    temperature: float | None = Field(None, ge=0, le=2)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, ge=0, le=1)


def _blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_blocks(message: Any) -> Any:
    """The same, of a message and of the results within it."""
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
