"""Schemas as whoever describes an answer means them, and so that a text comes to its end.

By the letter ``{"properties": ...}`` lets any number through, since keywords restrict values of their
own type only, and an object takes keys that nobody named. Who describes a document that a model shall
write means the object, and these keys. And what the letter leaves without a bound (digits, values of
any kind) a small model may never end.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from oxibonsai.structured.json_schema import (
    Schema,
    check_keywords,
    check_size,
    json_copy,
    subschemas,
)
from oxibonsai.structured.loosened import Note, loosened

_KEYWORDS = {
    "object": {
        "properties", "required", "additionalProperties", "patternProperties", "minProperties",
        "maxProperties",
    },
    "array": {"items", "prefixItems", "additionalItems", "minItems", "maxItems"},
}  # fmt: skip

# Beside these the type may be said elsewhere, and another one here would let nothing through.
_SAYS_MORE = {"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf"}

_INTEGER_DIGITS = 15  # a double keeps them
_NUMBER_DIGITS, _WHOLE_DIGITS = 16, 10  # in all, and before the point where nothing says how many
_MOST_PLACES = 9  # behind the point: llguidance reads no smaller multipleOf
_MOST_ORDERS = 300  # lists of different values that are written out
_MOST_WRITTEN = 64 << 10  # characters of all that are written out of one schema

# Where the schema for a value of any kind lies.
_ANY_NAME = "oxibonsai-any-value"
_ANY = {"$ref": f"#/$defs/{_ANY_NAME}"}


def with_implied_types(schema: Any) -> Any:
    """Return the schema with ``type`` where only one type's keywords stand, and tuples at their length.

    Accepts the same documents or fewer. Looks at the root and at the properties and items below
    it. What is no schema stays as it is, for the checks that name the fault.
    """
    if not isinstance(schema, dict):
        return schema
    typed = dict(schema)
    meant = [name for name, keywords in _KEYWORDS.items() if keywords & schema.keys()]
    if len(meant) == 1 and not _SAYS_MORE & schema.keys():
        typed["type"] = meant[0]
    if isinstance(properties := schema.get("properties"), dict):
        typed["properties"] = {k: with_implied_types(v) for k, v in properties.items()}
    if isinstance(items := schema.get("items"), dict):
        typed["items"] = with_implied_types(items)
    for keyword in ("items", "prefixItems"):
        if isinstance(places := schema.get(keyword), list):
            typed[keyword] = [with_implied_types(v) for v in places]
            if _KEYWORDS["array"] & schema.keys() == {keyword}:
                typed["minItems"] = typed["maxItems"] = len(places)
    return typed


def described(
    schema: Any,
    *,
    strict: bool = False,
    open_objects: bool = False,
    note: Note = lambda place, keyword: None,
) -> Schema:
    """Return a schema of an answer, as its author means it, of keywords that are enforced.

    Args:
        schema: As it was given; stays as it is.
        strict: Refuse keywords that are not enforced; else they are left out.
        open_objects: Objects may have more keys than are named.
        note: As for :func:`loosened`.

    Raises:
        RequestError: It is no JSON, too large, malformed or, if strict, not enforced.
    """
    schema = json_copy(schema)
    check_size(schema)
    _write_out_unique_items(schema)
    if strict:
        for _ in subschemas(schema, check_keywords):
            pass
    else:
        schema = loosened(schema, note)
    return _as_meant(with_implied_types(schema), open_objects=open_objects)


def _as_meant(schema: Schema, *, open_objects: bool) -> Schema:
    """Return a well-formed schema as it is meant: it accepts the same documents or fewer.

    Objects have no keys but those that are named, unless ``additionalProperties`` says otherwise or
    several schemas describe one object together; those that are required come first. Integers have up
    to 15 digits, other numbers 16 and no exponent.

    Args:
        schema: Is changed.
        open_objects: Objects may have more keys than are named.
    """
    if _says_nothing(schema):
        schema |= _ANY
    places = _places(schema)
    composed = _composed(places)
    for place, part in places.items():
        if not open_objects and place not in composed:
            _close(part)
        _put_required_first(part)
    open_values = [_bound_open_values(part, place in composed) for place, part in places.items()]
    if any(open_values) or schema.get("$ref") == _ANY["$ref"]:
        definitions = schema.setdefault("$defs", {})
        definitions[_ANY_NAME] = _any_value()
    for part in _places(schema).values():
        _bound_numbers(part)
    return schema


def _write_out_unique_items(schema: Schema) -> None:
    """Replace arrays of different values of an ``enum`` by the list of all such arrays.

    In any order where these are few, else in the order of the ``enum``. Where they are too many or too
    long, or anything else is said of array or items, the array stays as it is.
    """
    places = _places(schema)
    room = _MOST_WRITTEN
    for part in places.values():
        items = part.get("items")
        if isinstance(items, dict) and items.keys() == {"$ref"}:
            items = places.get(unquote(str(items["$ref"])[1:]))
        values = _values_of_enum(items)
        if (
            part.get("uniqueItems") is not True
            or part.get("type", "array") != "array"
            or not values
        ):
            continue
        least, most = part.get("minItems", 0), part.get("maxItems", len(values))
        if not isinstance(least, int) or not isinstance(most, int):
            continue  # malformed, as the checks will say, or whole floats
        orders = _orders(values, range(max(least, 0), min(most, len(values)) + 1))
        size = sum(len(json.dumps(order)) for order in orders)
        if orders and size <= room:
            room -= size
            for keyword in ("type", "items", "minItems", "maxItems", "uniqueItems"):
                part.pop(keyword, None)
            part["enum"] = orders


def _values_of_enum(items: Any) -> list[Any]:
    """Return the different values of a schema that has an ``enum`` and nothing else to say."""
    if not isinstance(items, dict) or not isinstance(items.get("enum"), list):
        return []
    if items.keys() - {"enum", "title", "description", "type"} or len(items["enum"]) > _MOST_ORDERS:
        return []
    if items.get("type", "string") != "string" or not all(
        isinstance(v, str) for v in items["enum"]
    ):
        return []
    return list(dict.fromkeys(items["enum"]))


def _places(schema: Schema) -> dict[str, Schema]:
    """Return all schemas inside a schema but true and false, by their JSON pointers."""
    found = subschemas(schema, lambda place, part: None)
    return {place: part for place, part in found if isinstance(part, dict)}


def _composed(places: Mapping[str, Schema]) -> set[str]:
    """Return where schemas lie that describe one value together with others."""
    anchors = {part["$anchor"]: place for place, part in places.items() if "$anchor" in part}
    found: set[str] = set()

    def components(place: str) -> list[str]:
        part = places[place]
        inner = [
            f"{place}/{keyword}/{i}"
            for keyword in ("allOf", "anyOf", "oneOf")
            for i in range(len(part.get(keyword, ())))
        ]
        target = unquote(part["$ref"][1:]) if "$ref" in part else None
        named = [] if target is None else [anchors.get(target, target)]
        return [p for p in [*inner, *named] if p in places]

    def mark(place: str) -> None:
        if place not in found:
            found.add(place)
            for inner in components(place):
                mark(inner)

    for place, part in places.items():
        count = bool(_KEYWORDS["object"] & part.keys()) + len(part.get("allOf", ()))
        if count + len({"anyOf", "oneOf", "$ref"} & part.keys()) > 1:
            mark(place)
    return found


def _close(part: Schema) -> None:
    names = part.get("properties")
    if names is None or {"additionalProperties", "patternProperties"} & part.keys():
        return
    if set(part.get("required", ())) <= names.keys() and part.get("minProperties", 0) <= len(names):
        part["additionalProperties"] = False


def _put_required_first(part: Schema) -> None:
    required = set(part.get("required", ()))
    if required and "properties" in part:
        names = sorted(part["properties"], key=lambda name: name not in required)
        part["properties"] = {name: part["properties"][name] for name in names}


def _bound_open_values(part: Schema, composed: bool) -> bool:
    """Have values of any kind be described by one schema; return whether there are any."""
    kinds = part.get("type")
    said = {"enum", "const"} & part.keys()
    if not said and not composed:
        if kinds == "object" and not {"properties", "patternProperties"} & part.keys():
            part.setdefault("additionalProperties", True)
        if kinds == "array" and "prefixItems" not in part:
            part.setdefault("items", True)
    found = False
    for keyword in ("items", "additionalProperties"):
        if part.get(keyword) in (True, {}):
            part[keyword] = dict(_ANY)
            found = True
    for name, value in part.get("properties", {}).items():
        if value is True or _says_nothing(value):
            text = value if isinstance(value, dict) else {}
            part["properties"][name] = {**text, **_ANY}
            found = True
    return found


def _says_nothing(schema: Any) -> bool:
    return isinstance(schema, dict) and not schema.keys() - {"title", "description", "default"}


def _any_value() -> Schema:
    return {
        "anyOf": [
            {"type": ["null", "boolean", "string", "number"]},
            {"type": "array", "items": dict(_ANY)},
            {"type": "object", "additionalProperties": dict(_ANY)},
        ]
    }


def _bound_numbers(part: Schema) -> None:
    kinds = part.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if {"enum", "const"} & part.keys() or not {"integer", "number"} & set(kinds):
        return
    lower = {"minimum", "exclusiveMinimum"} & part.keys()
    upper = {"maximum", "exclusiveMaximum"} & part.keys()
    if "number" not in kinds or "multipleOf" in part:
        _add_bounds(part, not lower, not upper, _INTEGER_DIGITS)
    elif lower or upper:
        largest = max(abs(part[keyword]) for keyword in lower | upper)
        whole = len(str(int(largest)))
        if not (lower and upper):
            whole = min(max(whole + 1, _WHOLE_DIGITS), _INTEGER_DIGITS)
            _add_bounds(part, not lower, not upper, whole)
        part["multipleOf"] = _multiple(_NUMBER_DIGITS - whole)
    else:
        others = [kind for kind in kinds if kind not in ("integer", "number")]
        branches: list[Schema] = [{"type": [*others, "integer"]}, {"type": "number"}]
        _add_bounds(branches[0], True, True, _INTEGER_DIGITS)
        _add_bounds(branches[1], True, True, _WHOLE_DIGITS)
        branches[1]["multipleOf"] = _multiple(_NUMBER_DIGITS - _WHOLE_DIGITS)
        part["allOf"] = [*part.get("allOf", ()), {"anyOf": branches}]


def _multiple(places: int) -> float:
    """Return what numbers are multiples of that have so many digits behind the point."""
    return float(f"1e-{min(max(places, 1), _MOST_PLACES)}")


def _add_bounds(part: Schema, lower: bool, upper: bool, digits: int) -> None:
    if lower:
        part["minimum"] = 1 - 10**digits
    if upper:
        part["maximum"] = 10**digits - 1


def _orders(values: list[Any], lengths: range) -> list[list[Any]]:
    """Return lists of different values, in any order if these are few; empty: they are too many."""
    for make in (itertools.permutations, itertools.combinations):
        every = itertools.chain.from_iterable(make(values, n) for n in lengths)
        orders = list(itertools.islice(every, _MOST_ORDERS + 1))
        if len(orders) <= _MOST_ORDERS:
            return [list(order) for order in orders]
    return []
