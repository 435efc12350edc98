"""What can be asked for, and how a wrong request is answered."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.errors import RequestError
from oxibonsai.structured import Structure

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.sampled_from([Structure.regex, Structure.lark, Structure.gbnf]), _TEXTS)
def test_a_structure_comes_back_from_its_json(make, text: str) -> None:
    structure = make(text)
    assert Structure.from_json(structure.to_json()) == structure


def test_equal_requests_are_equal_structures() -> None:
    assert Structure.json_schema('{"type": "integer"}') == Structure.json_schema(
        {"type": "integer"}
    )
    assert Structure.choice(["a", "b", "a"]) == Structure.choice(("a", "b"))
    assert hash(Structure.json_object()) == hash(Structure.json_schema({"type": "object"}))


def test_properties_keep_their_order() -> None:
    schema = {"properties": {"z": True, "a": True}}
    assert Structure.json_schema(schema).text == '{"properties":{"z":true,"a":true}}'


_TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("described", "meant"),
    [
        ({"properties": {"a": _TEXT}}, {"type": "object", "properties": {"a": _TEXT}}),
        ({"required": ["a"]}, {"type": "object", "required": ["a"]}),
        ({"items": _TEXT}, {"type": "array", "items": _TEXT}),
        (
            {"items": [{"minItems": 1}, True]},
            {
                "type": "array",
                "items": [{"type": "array", "minItems": 1}, True],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            {"prefixItems": [{"properties": {"a": {"maxProperties": 1}}}], "minItems": 0},
            {
                "type": "array",
                "prefixItems": [
                    {"type": "object", "properties": {"a": {"type": "object", "maxProperties": 1}}}
                ],
                "minItems": 0,
            },
        ),
    ],
)
def test_properties_mean_an_object_and_places_a_whole_array(described, meant) -> None:
    assert json.loads(Structure.described_json(described).text) == meant


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        _TEXT,
        {"properties": {"a": {}}, "items": {}},
        {"properties": {"a": True}, "type": ["object", "null"]},
        {"properties": {"a": True}, "anyOf": [{"type": "string"}, {"type": "object"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": _TEXT}, "required": ["b"]},
        {"enum": [1, []], "minItems": 0},
    ],
)
def test_a_type_that_is_said_or_not_clear_is_left_alone(schema) -> None:
    assert Structure.described_json(schema) == Structure.json_schema(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "no JSON"),
        ('{"minimum": NaN}', "NaN is not a JSON value"),
        ('{"type": "object", "type": "array"}', "'type' is there twice"),
        ("[1]", "an array, not an object"),
        ("null", "null, not an object"),
        ({"enum": [float("inf")]}, "can't be written as JSON"),
        ({"enum": [object()]}, "can't be written as JSON"),
        ("[" * 10_000 + "]" * 10_000, "nested too deep"),
        ({"const": "\ud800"}, "half a surrogate pair"),
        ({"enum": ["x" * (1 << 20)]}, "more than the 1048576"),
    ],
)
def test_what_is_no_schema_is_refused(schema, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        Structure.json_schema(schema)


@pytest.mark.parametrize("options", [[], "abc", [1], None, [["a"]]])
def test_what_is_no_list_of_texts_is_refused(options) -> None:
    with pytest.raises(RequestError, match="choice is not a list"):
        Structure.choice(options)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"kind": "xml", "text": ""}', '{"kind": "regex", "text": 1}']
)
def test_what_is_no_saved_structure_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        Structure.from_json(text)
