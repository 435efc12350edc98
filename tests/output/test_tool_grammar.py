"""Generation held to tool calls: every grammar compiles, takes what it should and nothing else."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import pytest

from oxibonsai.errors import RequestError
from oxibonsai.output import OutputParser, ReasoningTags
from oxibonsai.output.grammar import tool_structure
from oxibonsai.output.tools import (
    Llama3Format,
    MistralFormat,
    QwenFormat,
    TaggedFormat,
    ToolChoice,
    ToolFormat,
    read_tools,
)
from oxibonsai.structured import Structure
from oxibonsai.structured.grammar import to_lark

END = 256
MARKS = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
]
SPECIAL = {mark: 257 + i for i, mark in enumerate(MARKS)}


class Bytes:
    """A vocabulary of bytes, an end, and marks as special tokens."""

    eos_token_id = END
    bos_token_id = None
    tokens = (*(bytes([i]) for i in range(256)), b"<end>", *(m.encode() for m in MARKS))
    special_token_ids = tuple(range(256, 257 + len(MARKS)))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


VOCABULARY = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), eos_token=[END])

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"$ref": "#/$defs/days"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 7}},
}


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


TOOLS = read_tools(
    [function("now"), function("weather", parameters=SCHEMA), function("any", parameters={})]
)

AUTO, REQUIRED = ToolChoice("auto"), ToolChoice("required")
QWEN, XML, LLAMA = QwenFormat(), TaggedFormat(), Llama3Format()
MISTRAL, NAMED = MistralFormat(), MistralFormat(named=True)
FORMATS = [QWEN, XML, LLAMA, MISTRAL, NAMED]


def encode(text: str, special: bool) -> list[int]:
    if not special:
        return list(text.encode())
    ids: list[int] = []
    while text:
        mark = next((m for m in MARKS if text.startswith(m)), None)
        ids += [SPECIAL[mark]] if mark else list(text[0].encode())
        text = text[len(mark) if mark else 1 :]
    return ids


class Judge:
    """A grammar, asked about whole texts."""

    def __init__(self, tool_format: ToolFormat, choice: ToolChoice, special: bool, **options: Any):
        marks = SPECIAL if special else {}
        tools = options.pop("tools", TOOLS)
        structure = tool_structure(tool_format, tools, choice, special_tokens=marks, **options)
        assert structure is not None
        self.matcher = llguidance.LLMatcher(VOCABULARY, to_lark(structure))
        assert not self.matcher.is_error(), self.matcher.get_error()
        self.special = special

    def accepts(self, text: str) -> bool:
        """Whether the text is allowed and may end."""
        return self.begins(text) and self.matcher.is_accepting()

    def begins(self, text: str) -> bool:
        """Whether the text may be the beginning of one."""
        self.matcher.reset()
        ids = encode(text, self.special)
        return bool(self.matcher.try_consume_tokens(ids) == len(ids))


def arguments_of(tool_format: ToolFormat, name: str, fields: dict[str, Any]) -> str:
    """A call as the format writes it, without what opens it."""
    text = json.dumps(fields, ensure_ascii=False)
    if tool_format is XML:
        values = {k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()}
        inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
        return f"\n<function={name}>\n{inner}</function>\n</tool_call>"
    if tool_format is NAMED:
        return f"{name}[ARGS]{text}"
    key = "parameters" if tool_format is LLAMA else "arguments"
    call = f'{{"name": "{name}", "{key}": {text}}}'
    return {QWEN: f"\n{call}\n</tool_call>", LLAMA: call, MISTRAL: f"[{call}]"}[tool_format]


OPENING = {
    QWEN: "<tool_call>",
    XML: "<tool_call>",
    LLAMA: "",
    MISTRAL: "[TOOL_CALLS]",
    NAMED: "[TOOL_CALLS]",
}


def call(tool_format: ToolFormat, name: str = "weather", **fields: Any) -> str:
    if name == "weather":
        fields = {"city": "Köln", **fields}
    return OPENING[tool_format] + arguments_of(tool_format, name, fields)


formats = pytest.mark.parametrize(
    "tool_format", FORMATS, ids=["qwen", "xml", "llama", "mistral", "named"]
)
spellings = pytest.mark.parametrize("special", [False, True], ids=["letters", "tokens"])


@formats
@spellings
def test_required_is_a_call_that_fits_its_schema(tool_format: ToolFormat, special: bool) -> None:
    judge = Judge(tool_format, REQUIRED, special)
    assert judge.accepts(call(tool_format))
    assert judge.accepts(call(tool_format, days=3))
    assert judge.accepts(call(tool_format, "now"))
    assert judge.accepts(call(tool_format, "any"))
    assert not judge.begins("Hello")
    assert not judge.begins(" ")
    assert not judge.accepts("")
    assert not judge.begins(call(tool_format, days=8))
    assert not judge.begins(call(tool_format, other=1))
    assert not judge.begins(call(tool_format, "now", a=1))
    assert not judge.begins(call(tool_format, "rm"))
    assert not judge.begins(call(tool_format) + " and text")
    assert not judge.begins(
        OPENING[tool_format] + arguments_of(tool_format, "weather", {"days": 1})
    )


@formats
@spellings
def test_named_is_one_call_of_that_function(tool_format: ToolFormat, special: bool) -> None:
    judge = Judge(tool_format, ToolChoice("named", "weather"), special)
    assert judge.accepts(call(tool_format))
    assert not judge.begins(call(tool_format, "now"))
    assert not judge.begins(several(tool_format))


@formats
@spellings
def test_auto_leaves_text_free_and_holds_calls(tool_format: ToolFormat, special: bool) -> None:
    judge = Judge(tool_format, AUTO, special)
    for text in ("", "Hello.\n", "1 < 2 <tool_ca", '[1, {"a": 2}]', "[TOOL_", "éß\n\n{}"):
        assert judge.accepts(text), text
    assert judge.accepts(call(tool_format))
    assert not judge.begins(call(tool_format, days=8))
    assert not judge.begins(call(tool_format, "rm"))
    if tool_format is LLAMA:
        assert judge.accepts("<|python_tag|>" + call(tool_format))
        assert judge.accepts('{"city": 1}')
        assert not judge.accepts('{"name": ')
        assert not judge.begins('Hm. <|python_tag|>{"name": "rm"')
    else:
        assert judge.accepts("Let me see.\n" + call(tool_format))
        assert not judge.begins(OPENING[tool_format] + "text")
        assert not judge.accepts(OPENING[tool_format])


def several(tool_format: ToolFormat) -> str:
    one = arguments_of(tool_format, "now", {})
    if tool_format is LLAMA:
        return f"{one}; {one}"
    if tool_format is MISTRAL:
        return f"[TOOL_CALLS]{one[:-1]}, {one[1:]}"
    between = "" if tool_format is NAMED else "\n"
    return f"{OPENING[tool_format]}{one}{between}{OPENING[tool_format]}{one}"


@formats
@spellings
@pytest.mark.parametrize("choice", [AUTO, REQUIRED], ids=["auto", "required"])
def test_several_calls_where_they_are_allowed(
    tool_format: ToolFormat, special: bool, choice: ToolChoice
) -> None:
    assert Judge(tool_format, choice, special).accepts(several(tool_format))
    assert not Judge(tool_format, choice, special, parallel=False).begins(several(tool_format))
    assert Judge(tool_format, choice, special, parallel=False).accepts(call(tool_format))


@formats
@spellings
@pytest.mark.parametrize("choice", [AUTO, REQUIRED], ids=["auto", "required"])
def test_reasoning_may_come_first(
    tool_format: ToolFormat, special: bool, choice: ToolChoice
) -> None:
    thought = "Call <tool>? {}[1]"
    judge = Judge(tool_format, choice, special, reasoning=ReasoningTags())
    assert judge.accepts(f"<think>\n{thought}\n</think>\n\n{call(tool_format)}")
    assert judge.accepts(call(tool_format))
    assert not judge.accepts(f"<think>\n{thought}")
    inside = Judge(tool_format, choice, special, reasoning=ReasoningTags(), inside_reasoning=True)
    assert inside.accepts(f"\n{thought}\n</think>\n\n{call(tool_format)}")
    assert inside.accepts(f"</think>{call(tool_format)}")
    assert not inside.accepts(thought)
    assert not inside.accepts("")
    for one, head in ((judge, "<think>a</think>"), (inside, "a</think>")):
        assert one.accepts(head + "\n\nText.") is (choice is AUTO)
        assert one.accepts(head) is (choice is AUTO)
        assert not one.begins(head + "\n\n" + call(tool_format, "rm"))


def test_a_thought_may_hold_the_text_of_a_call() -> None:
    judge = Judge(QWEN, AUTO, False, reasoning=ReasoningTags())
    assert judge.accepts("<think>say <tool_call>x</think>fine")


@formats
@spellings
def test_where_a_call_must_come_white_space_ends(tool_format: ToolFormat, special: bool) -> None:
    judge = Judge(tool_format, REQUIRED, special, reasoning=ReasoningTags())
    for head in ("", "<think>a</think>", call(tool_format)):
        assert not judge.begins(head + "\n" * 4)


def test_who_does_not_think_is_not_made_to() -> None:
    assert not Judge(QWEN, REQUIRED, True).begins("<think>")
    assert not Judge(QWEN, REQUIRED, False).begins("<think>")


ANSWER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "sum": {"type": "integer"}},
    "required": ["name", "sum"],
    "additionalProperties": False,
}


@formats
@spellings
def test_an_answer_that_has_a_structure_stands_beside_calls(
    tool_format: ToolFormat, special: bool
) -> None:
    judge = Judge(tool_format, AUTO, special, answer=Structure.json_schema(ANSWER))
    assert judge.accepts('{"name": "weather", "sum": 5}')
    assert judge.accepts(call(tool_format))
    assert judge.accepts(several(tool_format))
    for text in ("Hello", "", '{"name": 5'):
        assert not judge.accepts(text)
    assert not judge.begins(call(tool_format, days=8))
    assert not judge.begins(call(tool_format, "rm"))
    assert not judge.begins('{"name": "a", "sum": 5}' + call(tool_format))
    assert not judge.begins(call(tool_format) + '{"name": "a"')


@formats
@spellings
def test_reasoning_may_come_before_a_structured_answer_beside_calls(
    tool_format: ToolFormat, special: bool
) -> None:
    options = {"answer": Structure.json_schema(ANSWER), "reasoning": ReasoningTags()}
    for judge, head in (
        (Judge(tool_format, AUTO, special, **options), "<think>a"),
        (Judge(tool_format, AUTO, special, inside_reasoning=True, **options), "a"),
    ):
        assert not judge.accepts(head)
        assert not judge.accepts(head + "</think>")
        assert judge.accepts(head + '</think>\n\n{"name": "a", "sum": 5}')
        assert judge.accepts(head + "</think>\n\n" + call(tool_format))


@pytest.mark.parametrize("structure", [Structure.regex("a"), Structure.gbnf('root ::= "a"')])
def test_beside_calls_a_structure_is_a_schema(structure: Structure) -> None:
    with pytest.raises(RequestError, match=f"{structure.kind} exclude each other"):
        tool_structure(QWEN, TOOLS, AUTO, answer=structure)


@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice("named", "now")])
def test_a_forced_call_leaves_no_room_for_an_answer(choice: ToolChoice) -> None:
    asked = tool_structure(QWEN, TOOLS, choice, answer=Structure.json_schema(ANSWER))
    assert asked == tool_structure(QWEN, TOOLS, choice)


@pytest.mark.parametrize("schema", [{"type": "object"}, {"required": ["sum"]}, True])
def test_an_answer_that_could_be_a_bare_call_is_refused(schema: Any) -> None:
    answer = Structure.json_schema(schema)
    assert tool_structure(QWEN, TOOLS, AUTO, answer=answer) is not None
    with pytest.raises(RequestError, match="require a property other than name"):
        tool_structure(LLAMA, TOOLS, AUTO, answer=answer)


def test_without_calls_there_is_no_structure() -> None:
    assert tool_structure(QWEN, TOOLS, ToolChoice("none")) is None
    assert tool_structure(QWEN, (), AUTO) is None


@formats
@spellings
def test_what_is_accepted_can_be_read(tool_format: ToolFormat, special: bool) -> None:
    for text in (call(tool_format, days=3), several(tool_format)):
        assert Judge(tool_format, AUTO, special).accepts(text)
        parser = OutputParser(tool_format, TOOLS, ids=str)
        parser.feed(text)
        parser.finish()
        assert parser.reply.content == ""
        assert parser.reply.tool_calls
        for one in parser.reply.tool_calls:
            json.loads(one.arguments)


@formats
@spellings
def test_the_longest_name_can_be_called(tool_format: ToolFormat, special: bool) -> None:
    name = "mcp__server__" + "n" * 115
    tools = read_tools([function(name)])
    text = call(tool_format, name)
    assert Judge(tool_format, REQUIRED, special, tools=tools).accepts(text)
    parser = OutputParser(tool_format, tools, ids=str)
    parser.feed(text)
    parser.finish()
    assert [c.name for c in parser.reply.tool_calls] == [name]


# --- the XML-like form: text between tags instead of JSON -----------------------------------------


def xml(schema: dict[str, Any]) -> Judge:
    parameters = {"properties": {"a": schema}, "required": ["a"]}
    tools = read_tools([function("f", parameters=parameters)])
    return Judge(XML, REQUIRED, False, tools=tools)


def value(text: str) -> str:
    return (
        f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
    )


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", 'a "b"\n</p>\n<c>', "</parameter"], []),
        ({"type": "string", "enum": ["x", "y z"]}, ["x", "y z"], ["z", "", '"x"']),
        ({"const": "x"}, ["x"], ["y"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "éßx"], ["a", "abcd"]),
        ({"type": "string", "pattern": "^[a-c]+$"}, ["abc"], ["d", ""]),
        ({"type": "string", "pattern": "b/"}, ["abc b/ d"], ["ab"]),
        ({"type": "integer"}, ["5", "-3"], ["x", "1.5", ""]),
        ({"enum": [1, 2]}, ["1"], ["3"]),
        ({"type": "boolean"}, ["true"], ["True"]),
        ({"type": ["string", "null"]}, ["null", "x"], []),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["1", "null"], ["x"]),
        ({"type": "array", "items": {"type": "string"}}, ["[]", '["</parameter>"]'], ["[1]", "x"]),
        ({"type": "object", "properties": {"b": {"type": "number"}}}, ['{"b": 1.5}'], ['{"b": "c"}']),
    ],
)  # fmt: skip
def test_values_between_tags(schema: dict[str, Any], good: list[str], bad: list[str]) -> None:
    judge = xml(schema)
    for text in good:
        assert judge.accepts(value(text)), text
    for text in bad:
        assert not judge.begins(value(text)), text


def test_optional_parameters_keep_the_order_of_the_schema() -> None:
    names = {"a": {}, "b": {"type": "integer"}, "c": {"type": "null"}}
    tools = read_tools([function("f", parameters={"properties": names, "required": ["b"]})])
    judge = Judge(XML, REQUIRED, False, tools=tools)

    def text(**values: str) -> str:
        inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
        return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"

    assert judge.accepts(text(b="1"))
    assert judge.accepts(text(a="any", b="1", c="null"))
    assert not judge.begins(text(a="any"))
    assert not judge.begins(text(b="1", a="any"))


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"anyOf": [{"required": ["a"]}]}, "anyOf"),
        ({"minProperties": 1}, "minProperties"),
        ({"properties": {"a>b": {}}}, "a>b"),
    ],
)
def test_what_tags_can_not_express_is_refused(parameters: dict[str, Any], word: str) -> None:
    tools = read_tools([function("f", parameters=parameters, strict=True)])
    with pytest.raises(RequestError, match=word):
        tool_structure(XML, tools, REQUIRED)


def test_a_tool_that_is_not_strict_is_held_to_what_tags_express() -> None:
    branch = {"properties": {"b": {"type": "integer"}, "c": {"type": "integer"}}}
    parameters = {
        "properties": {"a": {"$ref": "https://example.com/a"}},
        "anyOf": [{"$ref": "#/$defs/branch"}, {"properties": {"c": {"type": "null"}}}],
        "$defs": {"branch": branch},
        "minProperties": 1,
    }
    judge = Judge(XML, REQUIRED, False, tools=read_tools([function("f", parameters=parameters)]))
    for name, text, good in (
        ("a", "x", True),
        ("b", "5", True),
        ("b", "x", False),
        ("c", "x", True),
    ):
        whole = value(text).replace("=a>", f"={name}>")
        assert judge.begins(whole) is good, whole


LOOSE = [
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1, 1]", '["a"]'),
    ({"type": "object", "propertyNames": {"type": "string"}}, '{"b": 1}', "5"),
    ({"type": "integer", "format": "int32"}, "5", "1.5"),
    ({"type": "array", "items": {"type": "string", "format": "uri-reference"}}, '["x y"]', "[1]"),
    ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, "5", "-5"),
    ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}, "7", "{}"),
]


@formats
@spellings
@pytest.mark.parametrize(("schema", "good", "bad"), LOOSE, ids=str)
def test_a_keyword_that_is_not_enforced_is_left_out_unless_the_tool_is_strict(
    tool_format: ToolFormat, special: bool, schema: dict[str, Any], good: str, bad: str
) -> None:
    parameters = {"properties": {"a": schema}, "required": ["a"]}
    tools = read_tools([function("f", parameters=parameters)])
    judge = Judge(tool_format, REQUIRED, special, tools=tools)
    assert judge.accepts(call(tool_format, "f", a=json.loads(good)))
    assert not judge.begins(call(tool_format, "f", a=json.loads(bad)))
    strict = read_tools([function("f", parameters=parameters, strict=True)])
    assert not is_taken(tool_format, strict)


def is_taken(tool_format: ToolFormat, tools: Any) -> bool:
    try:
        structure = tool_structure(tool_format, tools, REQUIRED)
        assert structure is not None
        return not llguidance.LLMatcher(VOCABULARY, to_lark(structure)).is_error()
    except RequestError:
        return False


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": '0}/\nx: "'},
        {"type": "string", "maxLength": -1},
        {"type": "string", "maxLength": True},
        {"type": "string", "pattern": 5},
        {"type": "number", "minimum": float("nan")},
    ],
)
def test_keywords_that_are_none_are_refused(schema: dict[str, Any]) -> None:
    tools = read_tools([function("f", parameters={"properties": {"a": schema}})])
    with pytest.raises(RequestError):
        tool_structure(XML, tools, REQUIRED)


@formats
def test_a_schema_that_is_nested_too_deep_is_refused(tool_format: ToolFormat) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}
    tools = read_tools([function("f", parameters={"properties": {"a": schema}})])
    with pytest.raises(RequestError, match="too deep"):
        tool_structure(tool_format, tools, REQUIRED)


@pytest.mark.parametrize("text", ["a\nb", '"', "\\", "a/b", "\x01", "é🙂", "</a>", "#", "//"])
def test_any_text_of_an_enum_can_be_written(text: str) -> None:
    assert xml({"enum": [text]}).accepts(value(text))
    assert xml({"type": "string", "pattern": "^[a-z]+/?$"}).accepts(value("ab/"))
