"""Messages on their way to a template, and calls there and back again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oxibonsai.chat_template import ChatTemplate
from oxibonsai.errors import RequestError
from oxibonsai.output import OutputParser, template_messages
from oxibonsai.output.tools import (
    Llama3Format,
    MistralFormat,
    QwenFormat,
    TaggedFormat,
    ToolFormat,
    detect_tool_format,
    read_tools,
)


def called(name: str, arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_what_templates_get() -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": None, "reasoning": "d", "tool_calls": [called("f", '{"x": [1]}')]},
        {"role": "tool", "tool_call_id": "call_1", "content": "e"},
    ]  # fmt: skip
    before = json.dumps(messages)
    assert template_messages(messages) == [
        {"role": "system", "content": "a\nb"},
        {"role": "user", "content": "c"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "d",
            "thinking": "d",
            "tool_calls": [called("f", {"x": [1]})],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "e", "name": "f"},
    ]
    assert json.dumps(messages) == before
    kept = template_messages(messages[:1], template_source="{% if role == 'developer' %}")
    assert kept[0]["role"] == "developer"


def test_a_refusal_is_what_the_assistant_said() -> None:
    parts = [{"type": "text", "text": "Hm."}, {"type": "refusal", "refusal": "No."}]
    message = {"role": "assistant", "content": parts}
    assert template_messages([message]) == [{"role": "assistant", "content": "Hm.\nNo."}]


@pytest.mark.parametrize("arguments", [None, "", "{}", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    message = {"role": "assistant", "tool_calls": [called("f", arguments)]}
    assert template_messages([message])[0]["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"city": "Par',
        "[1]",
        "5",
        '{"a": NaN}',
        '{"a": 1e999}',
        f'{{"a": {"9" * 5000}}}',
        '{"a":' * 10_000 + "1" + "}" * 10_000,
    ],
    ids=range(8),
)
def test_arguments_that_are_no_object_come_in_one(text: str) -> None:
    message = {"role": "assistant", "tool_calls": [called("f", text)]}
    function = template_messages([message])[0]["tool_calls"][0]["function"]
    assert function["arguments"] == {"INVALID_JSON": text}


def assistant(calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": calls}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("hi", r"messages\[1\] is not an object"),
        ({}, r"messages\[1\].role"),
        ({"role": "function", "content": "x"}, r"messages\[1\].role is 'function'"),
        ({"role": "user", "content": 5}, r"messages\[1\].content"),
        *(
            (
                {"role": role, **content},
                rf"messages\[1\].content is missing: a message of {role} has",
            )
            for role in ("system", "user", "tool")
            for content in ({}, {"content": None})
        ),
        ({"role": "assistant", "content": None}, r"messages\[1\].content is missing, and .*calls"),
        (assistant([]), r"messages\[1\].content is missing"),
        (
            {"role": "user", "content": [{"type": "image_url"}]},
            r"content\[0\]: image input is not supported",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, r"content\[0\].text"),
        ({"role": "user", "content": [{"type": "refusal", "refusal": "No."}]}, "'refusal': only"),
        ({"role": "assistant", "content": [{"type": "refusal"}]}, r"content\[0\].refusal is not"),
        ({"role": "assistant", "reasoning_content": 1}, r"messages\[1\].reasoning_content"),
        (assistant("f"), r"messages\[1\].tool_calls is not a list"),
        (assistant(["f"]), r"messages\[1\].tool_calls\[0\].function"),
        (assistant([called(5, "{}")]), r"tool_calls\[0\].function.name"),  # type: ignore[arg-type]
        (
            assistant([called("f", [1])]),
            r"tool_calls\[0\].function.arguments is neither an object nor",
        ),
        (assistant([called("f", "{}", 5)]), r"tool_calls\[0\].id"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_named(message: Any, error: str) -> None:
    with pytest.raises(RequestError, match=error):
        template_messages([{"role": "user", "content": "x"}, message])


def test_mistral_gets_ids_of_nine_letters_and_results_keep_theirs() -> None:
    taken = template_messages(
        [
            assistant([called("f", "{}", "call_abc"), called("f", "{}", "abcdefgh9")]),
            {"role": "tool", "tool_call_id": "call_abc", "content": "1"},
        ],
        tool_format=MistralFormat(),
    )
    ids = [c["id"] for c in taken[0]["tool_calls"]]
    assert len(ids[0]) == 9
    assert ids[0].isalnum()
    assert ids[1] == "abcdefgh9"
    assert taken[1]["tool_call_id"] == ids[0]
    assert taken[1]["name"] == "f"


def test_llama_gets_one_call_to_a_message() -> None:
    calls = [called("f", "{}", "a"), called("g", "{}", "b")]
    taken = template_messages([{**assistant(calls), "content": "x"}], tool_format=Llama3Format())
    assert [(m["content"], m["tool_calls"][0]["id"]) for m in taken] == [("x", "a"), ("", "b")]


# Each as the models of the family bring it, down to what writes a call.
TEMPLATES: list[tuple[type[ToolFormat], str]] = [
    (
        QwenFormat,
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content }}"
        "{%- for tool_call in m.tool_calls %}{%- set tool_call = tool_call.function %}"
        "{{- '\n<tool_call>\n{\"name\": \"' + tool_call.name + '\", \"arguments\": ' }}"
        "{%- if tool_call.arguments is string %}{{- tool_call.arguments }}"
        "{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}{{- '}\n</tool_call>' }}{%- endfor %}"
        "{{- '<|im_end|>' }}{%- endfor %}",
    ),
    (
        TaggedFormat,
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content }}"
        "{%- for c in m.tool_calls %}{{- '\n\n<tool_call>\n<function=' + c.function.name + '>\n' }}"
        "{%- for name, value in c.function.arguments | items %}{{- '<parameter=' + name + '>\n' }}"
        "{{- value | tojson if value is mapping or value is boolean else value }}"
        "{{- '\n</parameter>\n' }}{%- endfor %}{{- '</function>\n</tool_call>' }}{%- endfor %}"
        "{{- '<|im_end|>' }}{%- endfor %}",
    ),
    (
        Llama3Format,
        "{%- for m in messages %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
        "{%- if m.tool_calls %}{%- if m.tool_calls | length > 1 %}{{- raise_exception('one') }}{%- endif %}"
        "{%- set f = m.tool_calls[0].function %}{{- '{\"name\": \"' + f.name + '\", \"parameters\": ' }}"
        "{{- f.arguments | tojson }}{{- '}' }}{%- else %}{{- m.content }}{%- endif %}"
        "{{- '<|im_end|>' }}{%- endfor %}",
    ),
    (
        MistralFormat,
        "{%- for m in messages %}{{- '\n' }}{%- if m.tool_calls %}{{- '[TOOL_CALLS][' }}"
        "{%- for c in m.tool_calls %}{%- if c.id | length != 9 %}{{- raise_exception('id') }}{%- endif %}"
        "{%- set text = c.function | tojson %}{{- text[:-1] + ', \"id\": \"' + c.id + '\"}' }}"
        "{{- ', ' if not loop.last else ']' }}{%- endfor %}{%- endif %}{{- '<|im_end|>' }}{%- endfor %}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "source"), TEMPLATES)
def test_a_call_that_a_template_writes_is_read_back(kind: type[ToolFormat], source: str) -> None:
    tool_format = detect_tool_format(source)
    assert type(tool_format) is kind
    properties = {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "deep": {"type": "object"},
    }
    tools = read_tools(
        [{"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}]
    )
    arguments = {"text": 'a "b"\nß <c>', "count": 3, "flag": True, "deep": {"x": [1.5, None, "ü"]}}
    message = assistant([called("f", json.dumps(arguments))])
    text = ChatTemplate(source).render(template_messages([message], tool_format=tool_format))
    written = text.split("\n", 1)[1].removesuffix("<|im_end|>")
    parser = OutputParser(tool_format, tools, ids=str)
    parser.feed(written)
    parser.finish()
    assert parser.reply.content == ""
    assert [(c.name, json.loads(c.arguments)) for c in parser.reply.tool_calls] == [
        ("f", arguments)
    ]


def test_what_the_templates_of_a_format_want_of_calls() -> None:
    message = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "a",
        "tool_calls": [called("f", {"x": "é"})],
    }
    deepseek = detect_tool_format("<\uff5ctool\u2581calls\u2581begin\uff5c> ```json")
    taken = template_messages([message], tool_format=deepseek)[0]
    assert taken["content"] is None
    both = template_messages([{**message, "content": "b"}], tool_format=deepseek)
    assert [(m["content"], "tool_calls" in m) for m in both] == [("b", False), (None, True)]
    assert taken["tool_calls"][0]["function"]["arguments"] == '{"x": "é"}'
    harmony = detect_tool_format("<|channel|> <|message|> functions.")
    for content, thinking in (("", "a"), ("b", "a\n\nb")):
        taken = template_messages([{**message, "content": content}], tool_format=harmony)[0]
        assert (taken["content"], taken["thinking"]) == ("", thinking)
        assert taken["reasoning_content"] == thinking
    assert message["tool_calls"] == [called("f", {"x": "é"})]


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("<|tool_call|>", '<|tool_call|>[{"name": "f", "arguments": {"x": "é", "y": null}}]'),
        ("<|tool_list_start|>", "<|tool_call_start|>[f(x='é', y=None)]<|tool_call_end|>"),
        ("<tool_calls>", '<tool_calls>\n{"name": "f", "arguments": {"x": "é", "y": null}}\n</tool_calls>'),
    ],
)  # fmt: skip
def test_calls_are_content_where_the_template_knows_none(source: str, written: str) -> None:
    call = called("f", {"x": "é", "y": None})
    message = {"role": "assistant", "content": "a", "tool_calls": [call]}
    tool_format = detect_tool_format(source)
    taken = template_messages([message], tool_format=tool_format, template_source=source)
    assert taken == [{"role": "assistant", "content": f"a{written}"}]
    known = f"{source} message.tool_calls"
    taken = template_messages([message], tool_format=tool_format, template_source=known)
    assert taken[0]["tool_calls"] == [call]
    parser = OutputParser(
        tool_format, read_tools([{"type": "function", "function": {"name": "f"}}]), ids=str
    )
    parser.feed(written)
    parser.finish()
    assert [json.loads(c.arguments) for c in parser.reply.tool_calls] == [{"x": "é", "y": None}]
