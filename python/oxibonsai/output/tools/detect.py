"""Which format a model writes its calls in, as its chat template tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oxibonsai.output.tools.call_parser import ToolFormat
from oxibonsai.output.tools.call_tags import GLM, MINIMAX_M2, QWEN_XML, SEED, dsml
from oxibonsai.output.tools.gemma import FUNCTION_GEMMA, GEMMA4, GemmaFormat
from oxibonsai.output.tools.harmony import HarmonyFormat
from oxibonsai.output.tools.json_calls import JSON_MARKS, ApertusFormat, JsonCallsFormat
from oxibonsai.output.tools.json_formats import Llama3Format, MistralFormat, QwenFormat
from oxibonsai.output.tools.lfm2 import Lfm2Format
from oxibonsai.output.tools.named_calls import (
    DEEPSEEK_R1,
    DEEPSEEK_V3,
    FUNCTIONARY,
    KIMI_K2,
    NamedCallsFormat,
)
from oxibonsai.output.tools.tagged import TaggedFormat

_JSON = {marks.name: marks for marks in JSON_MARKS}
_DEEPSEEK = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
# Some of its templates write arguments as JSON themselves.
_R1_OF_OBJECTS = replace(DEEPSEEK_R1, arguments_as_text=False)
# Texts that a template holds, and the format that they tell, None where it is one that nobody reads
# here: the first that fits counts.
_FORMATS: tuple[tuple[tuple[str, ...], Callable[[], ToolFormat | None]], ...] = (
    (("<|channel|>", "<|message|>", "functions."), HarmonyFormat),
    (("<seed:tool_call>",), lambda: TaggedFormat(SEED)),
    (("minimax:tool_call", "<invoke name="), lambda: TaggedFormat(MINIMAX_M2)),
    (("\uff5cDSML\uff5c", "function_calls"), lambda: TaggedFormat(dsml("function_calls"))),
    (("\uff5cDSML\uff5c", "tool_calls"), lambda: TaggedFormat(dsml("tool_calls"))),
    (("<arg_key>", "<arg_value>", "<tool_call>"), lambda: TaggedFormat(GLM)),
    (("<function=", "<parameter="), lambda: TaggedFormat(QWEN_XML)),
    (("<function=", "</function>"), lambda: NamedCallsFormat(FUNCTIONARY)),
    (("[TOOL_CALLS]", "[ARGS]"), lambda: MistralFormat(named=True)),
    (("[TOOL_CALLS]",), MistralFormat),
    ((_DEEPSEEK, "```json", "['arguments'] | tojson"), lambda: NamedCallsFormat(_R1_OF_OBJECTS)),
    ((_DEEPSEEK, "```json", "['arguments']|tojson"), lambda: NamedCallsFormat(_R1_OF_OBJECTS)),
    ((_DEEPSEEK, "```json"), lambda: NamedCallsFormat(DEEPSEEK_R1)),
    ((_DEEPSEEK,), lambda: NamedCallsFormat(DEEPSEEK_V3)),
    (("<|tool_calls_section_begin|>",), lambda: NamedCallsFormat(KIMI_K2)),
    (("<|tool_call>", "<tool_call|>"), lambda: GemmaFormat(GEMMA4)),
    (("<start_function_call>",), lambda: GemmaFormat(FUNCTION_GEMMA)),
    (("<|tool_call_start|>",), Lfm2Format),
    (("<|tool_list_start|>",), Lfm2Format),
    (("List of tools: [",), Lfm2Format),
    (("<|tools_prefix|>",), ApertusFormat),
    (("<|START_ACTION|>",), lambda: JsonCallsFormat(_JSON["command_r"])),
    (("<TOOLCALL>",), lambda: JsonCallsFormat(_JSON["nemotron"])),
    (("<tool_calls>[",), lambda: JsonCallsFormat(_JSON["apriel"])),
    (("<tool_calls>",), lambda: JsonCallsFormat(_JSON["minimax_m1"])),
    (("<|tool_call|>", "<|/tool_call|>"), lambda: JsonCallsFormat(_JSON["phi4"])),
    (("<|tool|>", "<|/tool|>"), lambda: JsonCallsFormat(_JSON["phi4"])),
    (("<|tool_call|>",), lambda: JsonCallsFormat(_JSON["granite"])),
    (("<tool_call>", "<invoke name="), lambda: None),  # MiniMax M3
    (("<tool_call>",), QwenFormat),
    (("functools[",), lambda: JsonCallsFormat(_JSON["functools"])),
    (("<|start_header_id|>", "tool_calls", ">>>"), lambda: None),  # Functionary 3.2
    (("<|start_header_id|>", "tool_calls"), Llama3Format),
)


def detect_tool_format(template_source: str) -> ToolFormat | None:
    """Return the format that a chat template teaches; None where it knows nothing of calls."""
    for texts, make in _FORMATS:
        if all(text in template_source for text in texts):
            return make()
    return None
