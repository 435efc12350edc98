"""Schemas that help rather than refuse: enforceable, and never narrower than what was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from schema_suite import DRAFTS, cases

from oxibonsai.errors import RequestError
from oxibonsai.structured.json_schema import prepared
from oxibonsai.structured.loosened import loosened

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"type": "array", "items": TEXT, "uniqueItems": True}, {"type": "array", "items": TEXT}),
        ({"propertyNames": TEXT, "additionalProperties": {}}, {"additionalProperties": {}}),
        ({"anyOf": [{"not": {}}, TEXT]}, {"anyOf": [{}, TEXT]}),
        ({"type": "string", "format": "uri-reference"}, TEXT),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "integer", "format": "int32", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"minimum": -9007199254740991, "maximum": 5}, {"maximum": 5}),
        ({"exclusiveMinimum": True, "minimum": 0}, {"minimum": 0}),
        ({"exclusiveMinimum": 0, "maximum": 0.5}, {"minimum": 0, "maximum": 0.5}),
        ({"type": "string", "pattern": "^(?!a)"}, TEXT),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^a"}),
        ({"patternProperties": {"^(?!a)": TEXT}, "additionalProperties": False}, {}),
        ({"oneOf": [TEXT, {"format": "date"}]}, {"anyOf": [TEXT, {"format": "date"}]}),
        (
            {"oneOf": [TEXT], "anyOf": [{}]},
            {"anyOf": [{}], "allOf": [{"anyOf": [TEXT]}]},
        ),
        ({"required": ["a"], "minProperties": 2}, {"required": ["a"], "minProperties": 2}),
        ({"required": ["a"], "minProperties": 3}, {"required": ["a"]}),
        ({"properties": {"a": TEXT}, "maxProperties": 1}, {"properties": {"a": TEXT}}),
        ({"minLength": 200_000}, {}),
        ({"enum": ["a\x01"]}, {}),
        ({"$schema": "http://json-schema.org/draft-04/schema#", **TEXT}, TEXT),
        ({"properties": {"a": {"$id": "b", **TEXT}}}, {"properties": {"a": TEXT}}),
        ({"items": {"$ref": "https://example.com/a"}}, {"items": {}}),
        ({"items": {"$ref": "#/$defs/a"}}, {"items": {}}),
        (
            {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": TEXT}},
            {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": TEXT}},
        ),
    ],
    ids=str,
)
def test_what_is_not_enforced_is_left_out(given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert loosened(given) == kept
    prepared(kept)


def test_in_old_drafts_a_reference_stands_alone() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"$ref": "#/properties/b", "description": "A"}, "b": TEXT},
    }
    assert loosened(schema)["properties"]["a"] == {"$ref": "#/properties/b"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a": {"type": "text"}}}, "'type' at /properties/a is not the name"),
        ({"items": {"minLength": "1"}}, "'minLength' at /items is not a whole number"),
        ({"pattern": 5}, "'pattern' at its root is not a string"),
        ({"exclusiveMinimum": "1"}, "'exclusiveMinimum' at its root is not a number"),
        ({"oneOf": TEXT}, "'oneOf' at its root is not an array"),
        ({"patternProperties": [1]}, "'patternProperties' at its root is not an object"),
        ({"$ref": 1}, "'\\$ref' at its root is not a string"),
        ({"minimum": float("nan")}, "is no JSON"),
    ],
)
def test_what_is_malformed_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        loosened(schema)


# What jsonschema itself does not read as its drafts say.
_MISREAD = ("ecmascript-regex", "vocabulary")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["required", "optional", "format"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_schema_of_the_suite_is_taken_and_keeps_its_valid_instances(
    suite: Path, draft: str, part: str
) -> None:
    seen = 0
    for case in cases(suite, draft, part):
        if not isinstance(case.schema, dict) or case.name.startswith(_MISREAD):
            continue
        schema = loosened(case.schema)
        prepared(schema)
        validator = jsonschema.validators.validator_for(schema)(schema)
        for test in case.tests:
            assert not test["valid"] or validator.is_valid(test["data"]), (case.name, test)
        seen += 1
    assert seen > 10


def test_the_given_schema_stays_as_it_is() -> None:
    given = {"type": "array", "uniqueItems": True, "items": {"format": "int32"}}
    before = repr(given)
    loosened(given)
    assert repr(given) == before
