"""Parts of a reply, whole and in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of a tool call.

    Attributes:
        index: Position of the call among those of the reply.
        id: On the first piece of a call only.
        name: Of the function; on the first piece of a call only.
        arguments: A piece of JSON text. The pieces of a call, joined, are one JSON object.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True)
class ToolCall:
    """A complete call.

    Attributes:
        arguments: JSON text of an object, as the model wrote it.
    """

    id: str
    name: str
    arguments: str

    @property
    def message_form(self) -> dict[str, Any]:
        """The call as a message of OpenAI's chat API has it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class Delta:
    """A piece of a reply; exactly one of the three fields is not empty."""

    content: str = ""
    reasoning_content: str = ""
    tool_call: ToolCallDelta | None = None
