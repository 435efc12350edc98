"""The result of a tool call, as a model reads it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp import types

MOST_CHARACTERS = 65536  # of a result: more would fill most contexts
# Control characters that no text needs, and halves of characters, which can't be encoded.
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class CallResult:
    """The result of a call.

    Attributes:
        text: The result, or what went wrong.
        failed: Whether the tool, its server or the way there failed.
    """

    text: str
    failed: bool = False

    @property
    def message(self) -> str:
        """Return the content of the tool's message to the model, as llama.cpp's page writes it."""
        return json.dumps({"error": self.text}, ensure_ascii=False) if self.failed else self.text


def read_result(result: types.CallToolResult) -> CallResult:
    """Return a server's answer as text, cut where it is too long."""
    texts = [_block(block) for block in result.content]
    if not any(texts) and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return CallResult(readable("\n".join(texts)), bool(result.is_error))


def readable(text: str) -> str:
    """Return a text of bounded length without control characters other than line ends and tabs."""
    count = len(text)
    text = text[: 2 * MOST_CHARACTERS].replace("\r\n", "\n")
    text = _UNREADABLE.sub("\ufffd", text[:MOST_CHARACTERS])
    if count > MOST_CHARACTERS:
        text += (
            f"\n[The result has {count} characters; only the first {MOST_CHARACTERS} are shown.]"
        )
    return text


def _block(block: types.ContentBlock) -> str:
    """Return a part of a result as text; what is no text is described."""
    kind: Any = block.type
    if block.type == "text":
        return block.text
    if block.type == "resource":
        resource = block.resource
        text: str | None = getattr(resource, "text", None)
        return text if text is not None else f"[data of {resource.uri}, which is no text]"
    if block.type == "resource_link":
        return f"[{block.name}: {block.uri}]"
    return f"[{kind} ({block.mime_type}), which is not shown to the model]"
