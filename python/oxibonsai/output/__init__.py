"""The client's view of a reply: where it stops, reasoning, tool calls."""

from __future__ import annotations

from oxibonsai.output.delta import Delta, ToolCall, ToolCallDelta
from oxibonsai.output.messages import ImageParts, template_messages
from oxibonsai.output.parser import OutputParser, Reply
from oxibonsai.output.reasoning import (
    ReasoningSplitter,
    ReasoningTags,
    ThinkingBudget,
    find_reasoning_tags,
    starts_inside,
)
from oxibonsai.output.stop import StopScanner

__all__ = [
    "Delta",
    "ImageParts",
    "OutputParser",
    "ReasoningSplitter",
    "ReasoningTags",
    "Reply",
    "StopScanner",
    "ThinkingBudget",
    "ToolCall",
    "ToolCallDelta",
    "find_reasoning_tags",
    "starts_inside",
    "template_messages",
]
