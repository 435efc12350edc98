"""Tool calls: what a request offers, and the formats that models write calls in."""

from __future__ import annotations

from oxibonsai.output.tools.call_parser import CallParser, ToolFormat
from oxibonsai.output.tools.call_writer import CallIds, CallWriter, call_ids
from oxibonsai.output.tools.detect import detect_tool_format
from oxibonsai.output.tools.json_formats import (
    GenericFormat,
    Llama3Format,
    MistralFormat,
    QwenFormat,
)
from oxibonsai.output.tools.request import (
    ONLY_FUNCTIONS,
    Tool,
    ToolChoice,
    read_tool_choice,
    read_tools,
)
from oxibonsai.output.tools.tagged import TaggedFormat

__all__ = [
    "ONLY_FUNCTIONS",
    "CallIds",
    "CallParser",
    "CallWriter",
    "GenericFormat",
    "Llama3Format",
    "MistralFormat",
    "QwenFormat",
    "TaggedFormat",
    "Tool",
    "ToolChoice",
    "ToolFormat",
    "call_ids",
    "detect_tool_format",
    "read_tool_choice",
    "read_tools",
]
