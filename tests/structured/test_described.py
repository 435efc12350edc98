"""Schemas as their authors mean them: closed objects, numbers and texts that end."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import byte_level

from oxibonsai.errors import RequestError
from oxibonsai.structured import Constraint, DescribedJson, Structure, StructureCompiler
from oxibonsai.structured.described import with_implied_types

_TOKENIZER = byte_level()
_COMPILER = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size)
_TEXT: dict[str, Any] = {"type": "string"}


def constraint(schema: Any, **options: bool) -> Constraint:
    return _COMPILER.constraint(Structure.described_json(schema, **options))


def takes(state: Constraint, text: str) -> bool:
    state = state.fork()
    try:
        for byte in text.encode():
            state.accept(byte)
    except RequestError:
        return False
    return state.may_end


@pytest.mark.parametrize(
    ("given", "meant"),
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
def test_properties_mean_an_object_and_places_a_whole_array(given: Any, meant: Any) -> None:
    assert with_implied_types(given) == meant


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
def test_a_type_that_is_said_or_not_clear_is_left_alone(schema: Any) -> None:
    assert with_implied_types(schema) == schema


NAMED = {"type": "object", "properties": {"a": {"type": "integer"}, "b": _TEXT}, "required": ["b"]}


def test_objects_have_the_keys_that_are_named_required_ones_first() -> None:
    state = constraint(NAMED)
    assert takes(state, '{"b":"x"}')
    assert takes(state, '{"b":"x","a":1}')
    assert not takes(state, '{"a":1,"b":"x"}')
    assert not takes(state, '{"b":"x","c":1}')
    assert not takes(state, '{"a":1}')


@pytest.mark.parametrize(
    "schema", [{**NAMED, "additionalProperties": True}, {**NAMED, "patternProperties": {"^c": {}}}]
)
def test_objects_that_the_schema_opens_stay_open(schema: dict[str, Any]) -> None:
    assert takes(constraint(schema), '{"b":"x","c":1}')


def test_objects_stay_open_where_the_letter_is_asked_for() -> None:
    assert takes(constraint(NAMED, open_objects=True), '{"b":"x","c":1}')


B = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, B]},
        {**A, "allOf": [B]},
        {**A, "$ref": "#/$defs/b", "$defs": {"b": B}},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": A, "b": B}},
        {"allOf": [A, {"allOf": [B]}]},
    ],
    ids=str,
)
def test_objects_that_several_schemas_describe_have_the_keys_of_all(schema: dict[str, Any]) -> None:
    state = constraint(schema)
    assert takes(state, '{"a":1,"b":2}') or takes(state, '{"b":2,"a":1}')


@pytest.mark.parametrize(
    "schema",
    [
        {
            "allOf": [{"$ref": "#/$defs/a"}],
            "description": "as pydantic writes it",
            "$defs": {"a": A},
        },
        {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": A}},
        {"oneOf": [A, B]},
    ],
    ids=str,
)
def test_objects_behind_a_reference_or_an_alternative_are_closed(schema: dict[str, Any]) -> None:
    state = constraint(schema)
    assert takes(state, '{"a":1}')
    assert not takes(state, '{"a":1,"c":1}')


# What stands before a number that is not the whole text.
_OUTER = {'{"type": "object"}': '{"k":', '{"type": "array"}': "["}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number"},
        {"type": ["number", "null"]},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "number", "exclusiveMinimum": -3},
        {"type": "integer"},
        {"type": "integer", "minimum": 10},
        {"type": "object"},
        {"type": "array"},
        {},
        True,
    ],
    ids=str,
)
def test_numbers_end(schema: Any) -> None:
    """Whoever writes the same digit for ever comes to an end."""
    outer = _OUTER.get(json.dumps(schema))
    for first, digit in itertools.product(("", "1", "0.", "3."), "0379"):
        state = constraint(schema)
        written = ""
        for character in (outer or "") + first:
            if not state.allows(ord(character)):
                break
            state.accept(ord(character))
        while state.allows(ord(digit)):
            state.accept(ord(digit))
            written += digit
            assert len(written) <= 16
        for letter in "eE":
            assert not state.allows(ord(letter)) or outer is None


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        ({"type": "number"}, "0"),
        ({"type": "number"}, "-12.75"),
        ({"type": "number"}, "1732700000000"),
        ({"type": "number"}, "0.000001"),
        ({"type": ["number", "null"]}, "null"),
        ({"type": "number", "minimum": 0, "maximum": 1}, "0.123456789"),
        ({"type": "number", "exclusiveMinimum": 0}, "0.5"),
        ({"type": "number", "minimum": 5_000_000_000_000}, "5000000000000.5"),
        ({"type": "number", "multipleOf": 0.01}, "9.99"),
        ({"type": "integer"}, "-999999999999999"),
        ({"enum": [1e-12, 10**14]}, "0.000000000001"),
    ],
    ids=str,
)
def test_numbers_that_are_meant_can_be_written(schema: dict[str, Any], number: str) -> None:
    jsonschema.validate(json.loads(number), schema)
    assert takes(constraint(schema), number) or takes(constraint(schema), str(json.loads(number)))


COLOURS = {"type": "string", "enum": ["red", "green", "blue"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": COLOURS, "uniqueItems": True},
        {
            "type": "array",
            "items": {"$ref": "#/$defs/c"},
            "uniqueItems": True,
            "$defs": {"c": COLOURS},
        },
    ],
)
def test_different_items_of_an_enum_are_different(schema: dict[str, Any]) -> None:
    structure = Structure.described_json(schema)
    assert structure.left_out == ()
    for count in range(4):
        for items in itertools.product(COLOURS["enum"], repeat=count):
            accepted = takes(constraint(schema), json.dumps(items, separators=(",", ":")))
            assert accepted == (len(set(items)) == count)


def test_many_different_items_come_in_the_order_of_the_enum() -> None:
    letters = {"enum": list("abcdefgh")}
    schema = {"type": "array", "items": letters, "uniqueItems": True, "minItems": 2, "maxItems": 3}
    state = constraint(schema)
    assert takes(state, '["a","c","h"]')
    assert not takes(state, '["c","a"]')
    assert not takes(state, '["a"]')


@pytest.mark.parametrize(
    "array",
    [
        {"type": ["array", "null"], "items": COLOURS},
        {"type": "array", "items": {**COLOURS, "maxLength": 3}},
        {"type": "array", "items": {"enum": [1, "1"]}},
        {"type": "array", "items": {"enum": [str(i) for i in range(50_000)]}},
        {"type": "array", "items": {"enum": ["x" * 20_000 + str(i) for i in range(8)]}},
    ],
    ids=["or null", "longest", "numbers", "many", "long"],
)
def test_arrays_that_cannot_be_written_out_are_checked_afterwards(array: dict[str, Any]) -> None:
    structure = Structure.described_json({**array, "uniqueItems": True})
    assert structure.left_out == (("", "uniqueItems"),)
    assert len(structure.text) < 1_000_000


UNENFORCED = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}},
    "required": ["a"],
    "if": {"properties": {"a": {"minItems": 2}}},
    "then": {"properties": {"a": {"contains": {"const": 7}}}},
}


def test_what_no_grammar_holds_is_named_and_found_in_the_whole_text() -> None:
    structure = Structure.described_json(UNENFORCED)
    assert {keyword for _, keyword in structure.left_out} == {"if", "then", "uniqueItems"}
    assert ("/properties/a", "uniqueItems") in structure.left_out
    assert structure.problem('{"a":[1]}') == ""
    assert "uniqueItems at /a" in structure.problem('{"a":[7,7]}')
    assert "contains at /a" in structure.problem('{"a":[1,2]}')
    assert "whole JSON" in structure.problem('{"a":[1,')


@pytest.mark.parametrize("keyword", ["uniqueItems", "if"])
def test_what_no_grammar_holds_is_refused_if_strict(keyword: str) -> None:
    part = {keyword: UNENFORCED.get(keyword, True)}
    with pytest.raises(RequestError, match=f"'{keyword}' at its root is not supported"):
        Structure.described_json({"type": "array", **part}, strict=True)


@pytest.mark.parametrize(
    "schema",
    [
        # Time that doubles with each letter; twice as many schemas at each level; an outside reference.
        {"type": "string", "pattern": "^(?!b)(a|a)*$"},
        {
            "$ref": "#/$defs/0",
            "$defs": {
                **{
                    str(i): {"not": {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2}}
                    for i in range(40)
                },
                "40": {"not": {}},
            },
        },
        {"$ref": "http://127.0.0.1:9/schema.json", "not": {}},
    ],
)
def test_a_check_that_would_take_for_ever_is_given_up(schema: dict[str, Any]) -> None:
    structure = Structure.described_json(schema)
    assert structure.whole
    assert "can't be checked" in structure.problem(json.dumps("a" * 40 + "!"))


_SCHEMAS = st.recursive(
    st.sampled_from(
        [_TEXT, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"enum": ["x", 1, None]},
         {"type": "number", "minimum": -2, "maximum": 2}, {"type": ["string", "null"]}, {}]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).flatmap(
            lambda p: st.sets(st.sampled_from(sorted(p) or ["a"])).map(
                lambda names: {"type": "object", "properties": p, "required": sorted(names & p.keys())}
            )
        ),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"anyOf": parts}),
    ),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=40)
@given(_SCHEMAS, st.randoms(use_true_random=False))
def test_every_text_that_is_let_through_is_one_of_the_schema(schema: Any, random: Any) -> None:
    state = constraint(schema)
    text = bytearray()
    for _ in range(400):
        choices = [i for i in range(256) if state.allows(i)]
        if state.may_end and (state.finished or not choices or random.random() < 0.3):
            jsonschema.validate(json.loads(text.decode()), schema)
            return
        # Closing characters are preferred, so that texts end.
        closing = [i for i in choices if i in b'"]}']
        text.append(random.choice(closing if closing and random.random() < 0.5 else choices))
        state.accept(text[-1])


def test_the_structure_of_any_object_is_one_of_a_schema() -> None:
    assert isinstance(Structure.json_object(), DescribedJson)
    assert takes(_COMPILER.constraint(Structure.json_object()), '{"a":[1,{"b":null}]}')
