"""The incremental check of JSON agrees with Python's reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.output.tools.json_scan import MAX_DEPTH, JsonObjectScanner, Malformed, is_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def accepts(text: str) -> bool:
    scanner = JsonObjectScanner()
    try:
        for char in text:
            scanner.push(char)
    except Malformed:
        return False
    return scanner.done


def python_accepts(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=lambda name: 1 / 0), dict)
    except (ValueError, ZeroDivisionError):
        return False


@given(st.dictionaries(st.text(), values), st.booleans(), st.sampled_from([None, 2]))
def test_what_python_writes_is_accepted(value: object, ascii: bool, indent: int | None) -> None:
    assert accepts(json.dumps(value, ensure_ascii=ascii, indent=indent))


@given(values)
def test_any_value_is_json(value: object) -> None:
    assert is_json(f" {json.dumps(value)}\n")


json_pieces = st.sampled_from(
    [*'{}[]":,- \n0123.eE+\\u', "true", "null", '"a"', '"\\u00e9"', "\x01"]
)


@given(st.lists(json_pieces, max_size=12).map("".join))
def test_no_text_divides_it_from_python(text: str) -> None:
    assert accepts("{" + text + "}") == python_accepts("{" + text + "}")


@given(st.dictionaries(st.text(max_size=3), values, max_size=3), st.data())
def test_nor_does_a_damaged_document(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.sampled_from([*'{}[]":,-0eE\\u n\n'])) + text[at + 1 :]
    assert accepts(text.strip(" \n")) == python_accepts(text.strip(" \n"))


@pytest.mark.parametrize(
    "text", ["", "1}", '1,"a":2', "1 2", "NaN", "01", "[", '"', "tru", "truee"]
)
def test_these_are_no_values(text: str) -> None:
    assert not is_json(text)


def test_keys_and_values_of_the_outermost_object() -> None:
    scanner = JsonObjectScanner()
    seen: dict[str, str] = {}
    for char in '{ "a" : [1, {"x": 2}] , "b":-1.5e3,"c": "}\\"" ,"d":null}':
        scanner.push(char)
        if scanner.in_value:
            seen[scanner.key] = seen.get(scanner.key, "") + char
    assert seen == {"a": '[1, {"x": 2}]', "b": "-1.5e3", "c": '"}\\""', "d": "null"}


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> str:
        return '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)

    assert accepts(nested(MAX_DEPTH))
    assert not accepts(nested(MAX_DEPTH + 1))
