"""Which format a model writes its calls in, as its chat template tells."""

from __future__ import annotations

from oxibonsai.output.tools.call_parser import ToolFormat
from oxibonsai.output.tools.llama3 import Llama3Format
from oxibonsai.output.tools.mistral import MistralFormat
from oxibonsai.output.tools.qwen import QwenFormat
from oxibonsai.output.tools.qwen_xml import QwenXmlFormat


def detect_tool_format(template_source: str) -> ToolFormat | None:
    """The format that a chat template teaches; None where it knows nothing of calls."""
    if "<function=" in template_source and "<parameter=" in template_source:
        return QwenXmlFormat()
    if "[TOOL_CALLS]" in template_source:
        return MistralFormat(named="[ARGS]" in template_source)
    if "<tool_call>" in template_source:
        return QwenFormat()
    if "<|start_header_id|>" in template_source and "tool_calls" in template_source:
        return Llama3Format()
    return None
