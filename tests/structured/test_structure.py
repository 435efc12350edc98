"""What can be asked for, and how a wrong request is answered."""

from __future__ import annotations

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
    schema = {"type": "object"}
    assert hash(Structure.json_object()) == hash(Structure.described_json(schema))


def test_properties_keep_their_order() -> None:
    schema = {"properties": {"z": True, "a": True}}
    assert Structure.json_schema(schema).text == '{"properties":{"z":true,"a":true}}'


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
