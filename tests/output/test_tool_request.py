"""What a request may offer and choose, and which format a chat template teaches."""

from __future__ import annotations

from typing import Any

import pytest

from oxibonsai.chat_template import ChatTemplate
from oxibonsai.errors import RequestError
from oxibonsai.output.tools import (
    ToolChoice,
    detect_tool_format,
    read_tool_choice,
    read_tools,
)


def function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **fields}}


def test_tools_are_read() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    first, second, third = read_tools(
        [function(parameters=schema), function(name="g_1-X"), function(name="h", parameters={})]
    )
    assert (first.name, first.parameters) == ("f", schema)
    assert second.parameters["additionalProperties"] is False, "no parameters: no arguments"
    assert third.parameters == {"type": "object"}, "an empty schema: any object"
    assert read_tools(None) == ()


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("f", "tools is not a list"),
        (["f"], r"tools\[0\] is not an object"),
        ([{"type": "code"}], r"tools\[0\].type"),
        ([{"type": "function"}], r"tools\[0\].function is"),
        ([function(), function(name="")], r"tools\[1\].function.name"),
        ([function(name="a b")], r"tools\[0\].function.name"),
        ([function(name="é")], r"tools\[0\].function.name"),
        ([function(name="a\n")], r"tools\[0\].function.name"),
        ([function(name="a" * 129)], r"tools\[0\].function.name"),
        ([function(name=7)], r"tools\[0\].function.name"),
        ([function(), function()], r"tools\[1\].function.name: 'f' is there twice"),
        ([function(description=1)], r"tools\[0\].function.description"),
        ([function(strict="yes")], r"tools\[0\].function.strict"),
        ([function(parameters=[])], r"tools\[0\].function.parameters is not an object"),
        ([function(parameters={"type": "string"})], r"tools\[0\].function.parameters.type"),
        ([function(parameters={"properties": []})], r"tools\[0\].function.parameters.properties"),
        ([function(parameters={"properties": {"a": 1}})], r"parameters.properties.a is not a schema"),
        ([function(parameters={"required": "a"})], r"tools\[0\].function.parameters.required"),
        ([function(name=f"f{i}") for i in range(129)], "at most 128"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_tools_is_named(tools: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_tools(tools)


TOOLS = read_tools([function()])
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (NAMED, ToolChoice("named", "f")),
    ],
)
def test_choices(choice: Any, expected: ToolChoice) -> None:
    assert read_tool_choice(choice, TOOLS) == expected


def test_without_tools_nothing_is_called() -> None:
    assert read_tool_choice(None, ()) == ToolChoice("none")
    with pytest.raises(RequestError, match="there are no tools"):
        read_tool_choice("required", ())


@pytest.mark.parametrize(
    "choice",
    ["always", 7, [], {}, {"type": "function"}, {"type": "function", "function": {"name": "g"}}],
)
def test_other_choices_are_refused(choice: Any) -> None:
    with pytest.raises(RequestError, match="tool_choice"):
        read_tool_choice(choice, TOOLS)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("... <tool_call>\n<function=example>\n<parameter=one>\nvalue ...", "qwen_xml"),
        ('... <tool_call>\n{"name": <function-name>, "arguments": ...}\n</tool_call>', "qwen"),
        ("[AVAILABLE_TOOLS] ... [TOOL_CALLS][ ...", "mistral"),
        ("[TOOL_CALLS]' + name + '[ARGS]' + arguments", "mistral"),
        ("<|start_header_id|> ... message.tool_calls ...", "llama3"),
        ("<|start_header_id|>{{ message.role }}<|end_header_id|>", None),
        (ChatTemplate.chatml().source, None),
    ],
)
def test_the_template_tells_the_format(source: str, name: str | None) -> None:
    found = detect_tool_format(source)
    assert (found.name if found else None) == name
    if name == "mistral":
        assert found.named is ("[ARGS]" in source)
