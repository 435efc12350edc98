"""Bodies of the routes of assistants, threads, messages and runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from oxibonsai.server.schemas.fields import MOST_MESSAGES, MOST_TOOLS, Effort, Fields, Metadata

Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(ge=0, le=1)]
Instructions = Annotated[str, Field(max_length=256_000)]


class Function(Fields):
    """A function that can be called."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Fields):
    """A function tool; OpenAI's built-in tools are not supported."""

    type: Literal["function"]
    function: Function


class FunctionName(Fields):
    """A function by its name."""

    name: str


class NamedFunction(Fields):
    """The function that must be called."""

    type: Literal["function"]
    function: FunctionName


class PlainFormat(Fields):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class NamedSchema(Fields):
    """A JSON schema with a name."""

    name: str = Field(min_length=1, max_length=64)
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(Fields):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


Tools = Annotated[list[FunctionTool], Field(max_length=MOST_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | NamedFunction
Format = Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")]
ResponseFormat = Literal["auto"] | Format


class AssistantFields(Fields):
    """The fields of an assistant."""

    name: str | None = Field(None, max_length=256)
    description: str | None = Field(None, max_length=512)
    instructions: Instructions | None = None
    tools: Tools = Field(default_factory=list)
    tool_resources: dict[str, Any] | None = None
    metadata: Metadata | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None


class AssistantCreate(AssistantFields):
    """A new assistant."""

    model: str


class AssistantChange(AssistantFields):
    """A change of an assistant; fields that are left out stay unchanged."""

    model: str = ""  # never null; ignored unless given


class TextPart(Fields):
    """A piece of text."""

    type: Literal["text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _no_image(cls, part: Any) -> Any:
        """Refuse images, which other routes read."""
        if isinstance(part, dict) and part.get("type") in ("image_url", "image_file"):
            raise ValueError(
                "threads hold no pictures in this version: send them to /v1/chat/completions or "
                "/v1/responses"
            )
        return part


class MessageCreate(Fields):
    """A new message. Attachments are not supported, since no tool would read them."""

    role: Literal["user", "assistant"]
    content: list[TextPart] = Field(min_length=1, max_length=MOST_MESSAGES)
    attachments: Annotated[list[Any], Field(max_length=0)] | None = None
    metadata: Metadata | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_parts(cls, body: Any) -> Any:
        """Convert a plain text to one part."""
        if isinstance(body, dict) and isinstance(body.get("content"), str):
            return {**body, "content": [{"type": "text", "text": body["content"]}]}
        return body


Messages = Annotated[list[MessageCreate], Field(max_length=MOST_MESSAGES)]


class ThreadChange(Fields):
    """A change of a thread."""

    metadata: Metadata | None = None
    tool_resources: dict[str, Any] | None = None


class ThreadCreate(ThreadChange):
    """A new thread."""

    messages: Messages | None = None


class MetadataChange(Fields):
    """A change of a message or run."""

    metadata: Metadata | None = None


class Truncation(Fields):
    """How a long thread is truncated."""

    type: Literal["auto", "last_messages"]
    last_messages: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _with_its_number(self) -> Truncation:
        if self.type == "last_messages" and self.last_messages is None:
            raise ValueError("last_messages is missing: say how many of them")
        return self


class RunFields(Fields):
    """The fields of a run, which override those of its assistant."""

    assistant_id: str
    model: str | None = None
    instructions: Instructions | None = None
    tools: Tools | None = None
    metadata: Metadata | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    stream: bool | None = False
    max_prompt_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    truncation_strategy: Truncation | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None


class RunCreate(RunFields):
    """A run of a thread."""

    additional_instructions: Instructions | None = None
    additional_messages: Messages | None = None


class ThreadAndRunCreate(RunFields):
    """A new thread with a run."""

    thread: ThreadCreate | None = None
    tool_resources: dict[str, Any] | None = None


class ToolOutput(Fields):
    """The output of a call."""

    tool_call_id: str
    output: str = ""


class ToolOutputs(Fields):
    """The outputs of all calls of a run."""

    tool_outputs: list[ToolOutput]
    stream: bool | None = False
