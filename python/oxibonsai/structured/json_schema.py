"""JSON schemas, checked and made ready: valid, within bounds, and enforced to the letter.

llguidance refuses most of what it can't enforce; this is the part that names the place, that holds
the whole schema to the types its keywords have by definition, and that refuses or replaces what
would be let through.
"""

from __future__ import annotations

import copy
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Set
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from oxibonsai.errors import RequestError
from oxibonsai.structured.patterns import FORMAT_PATTERNS, NATIVE_FORMATS, translated

Schema = dict[str, Any]

MAX_DEPTH = 100  # of nested JSON values; llguidance reads 127
MAX_NODES = 60_000  # JSON values; its grammars hold 65 thousand symbols
MAX_LEAST = 100_000  # of minItems, minLength, minProperties: more is longer than any context

DIALECTS = re.compile(
    r"https?://json-schema\.org/(draft-0[67]/schema|draft/20(19-09|20-12)/schema)#?"
)
_TYPES = {"null", "boolean", "integer", "number", "string", "array", "object"}

MAX_DIGITS = 15  # before and after the point: what a double, as llguidance reads it, surely keeps

# Characters that JSON can write as \\uXXXX only, which our grammars do without.
UNWRITABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")

# Keywords that restrict a document and that no grammar of ours holds.
UNSUPPORTED = {
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems",
    "dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
    "$vocabulary", "divisibleBy", "disallow", "extends",
}  # fmt: skip


def _is_count(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_exact(value: Any) -> bool:
    """Return whether a number keeps all of its digits; anything else does."""
    if not _is_number(value):
        return True
    number = Decimal(repr(value)).normalize()
    _, digits, exponent = number.as_tuple()
    places = len(digits) + max(int(exponent), 0)
    return places <= MAX_DIGITS and -int(exponent) <= MAX_DIGITS


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    known = all(isinstance(n, str) and n in _TYPES for n in names)
    return known and bool(names) and len(set(names)) == len(names)


def _is_texts(value: Any) -> bool:
    texts = isinstance(value, list) and all(isinstance(v, str) for v in value)
    return texts and len(set(value)) == len(value)


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_schema_map(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


COUNT = (_is_count, "a whole number of at least 0")
_NUMBER = (_is_number, "a number")
_TEXT = (_of(str), "a string")
_FLAG = (_of(bool), "true or false")
_LIST = (_of(list), "an array")
_SCHEMA = (_is_schema, "a schema")
_SCHEMAS = (_is_schemas, "an array of one or more schemas")
_SCHEMA_MAP = (_is_schema_map, "an object of schemas")

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

# What the value of a keyword has to be, by the definition of JSON schema.
KEYWORDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "$schema": (
        lambda v: isinstance(v, str) and DIALECTS.fullmatch(v) is not None,
        "the address of draft-06, draft-07, 2019-09 or 2020-12",
    ),
    "$id": _TEXT, "$ref": _TEXT, "$anchor": _TEXT, "$comment": _TEXT, "title": _TEXT,
    "description": _TEXT, "format": _TEXT, "pattern": _TEXT, "contentEncoding": _TEXT,
    "contentMediaType": _TEXT, "readOnly": _FLAG, "writeOnly": _FLAG, "deprecated": _FLAG,
    "examples": _LIST, "enum": _LIST,
    "$defs": _SCHEMA_MAP, "definitions": _SCHEMA_MAP, "properties": _SCHEMA_MAP,
    "patternProperties": _SCHEMA_MAP, "additionalProperties": _SCHEMA, "contentSchema": _SCHEMA,
    "allOf": _SCHEMAS, "anyOf": _SCHEMAS, "oneOf": _SCHEMAS, "prefixItems": _SCHEMAS,
    "items": (lambda v: _is_schema(v) or _is_schemas(v), "a schema or an array of schemas"),
    "additionalItems": _SCHEMA,
    "minItems": COUNT, "maxItems": COUNT, "minLength": COUNT, "maxLength": COUNT,
    "minProperties": COUNT, "maxProperties": COUNT,
    "minimum": _NUMBER, "maximum": _NUMBER, "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": (lambda v: _is_number(v) and v > 0, "a number above 0"),
    "type": (_is_type, "the name of a type or an array of different ones"),
    "required": (_is_texts, "an array of different strings"),
}  # fmt: skip


def prepared(schema: Schema | bool) -> Schema | bool:
    """Return the schema as llguidance is to see it: the same documents, patterns in its own dialect.

    Raises:
        RequestError: It is no schema, too large, or uses what is not enforced; names the keyword
            and the place, as a JSON pointer.
    """
    check_size(schema)
    if not _is_schema(schema):
        raise RequestError("json_schema is neither an object nor true nor false")
    schema = copy.deepcopy(schema)
    places = dict(subschemas(schema, check_keywords))
    check_bounds(places)
    legacy = isinstance(schema, dict) and "draft-0" in schema.get("$schema", "")
    anchors = {p["$anchor"] for p in places.values() if isinstance(p, dict) and "$anchor" in p}
    targets = places.keys() | anchors
    for place, part in places.items():
        if isinstance(part, dict):
            _check_reference(place, part, targets, legacy=legacy)
            for keyword in ("contentEncoding", "contentMediaType"):
                if legacy and keyword in part:
                    raise _refusal(place, keyword, "is not supported")
            _replace(place, part)
    return schema


def json_copy(schema: Any) -> Any:
    """Return a schema as JSON would give it back.

    Raises:
        RequestError: It is no JSON.
    """
    try:
        return json.loads(json.dumps(schema, allow_nan=False))
    except RecursionError as e:
        raise RequestError("json_schema is nested too deep") from e
    except (TypeError, ValueError) as e:
        raise RequestError(f"json_schema is no JSON: {e}") from e


def check_size(schema: Any) -> None:
    """Refuse what is nested too deep or holds too many values."""
    nodes, level = 0, [schema]
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        if nodes > MAX_NODES:
            raise RequestError(f"json_schema has more than {MAX_NODES} values: too large")
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise RequestError(f"json_schema is nested more than {MAX_DEPTH} deep")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def subschemas(
    schema: Schema | bool, visit: Callable[[str, Schema], None]
) -> Iterator[tuple[str, Schema | bool]]:
    """Yield every schema inside a schema with its JSON pointer, the outer ones first.

    Args:
        schema: The outermost.
        visit: Called with each before those inside of it are looked for; refuses a malformed one.
    """
    pending: list[tuple[str, Schema | bool]] = [("", schema)]
    while pending:
        place, part = pending.pop()
        if isinstance(part, dict):
            visit(place, part)
            pending += _inside(place, part)
        yield place, part


def _inside(place: str, part: Schema) -> Iterator[tuple[str, Schema | bool]]:
    for keyword, value in part.items():
        wanted = KEYWORDS.get(keyword, _TEXT)[1]
        here = f"{place}/{_escaped(keyword)}"
        if wanted == _SCHEMA_MAP[1] and isinstance(value, dict):
            yield from ((f"{here}/{_escaped(k)}", v) for k, v in value.items())
        elif "schema" in wanted and isinstance(value, list):
            yield from ((f"{here}/{i}", v) for i, v in enumerate(value))
        elif "schema" in wanted:
            yield here, value


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def check_keywords(place: str, part: Schema) -> None:
    """Refuse keywords that are malformed, and most of those that are not enforced."""
    for keyword, value in part.items():
        if keyword in UNSUPPORTED:
            raise _refusal(place, keyword, "is not supported")
        known = KEYWORDS.get(keyword)
        if known is not None and not known[0](value):
            raise _refusal(place, keyword, f"is not {known[1]}")
        if known is COUNT and keyword.startswith("min") and value > MAX_LEAST:
            raise _refusal(place, keyword, f"is more than the {MAX_LEAST} that are taken")
    for keyword in ("const", "enum", "properties", "required"):
        value = part.get(keyword)
        # What the schemas of properties hold is their own affair.
        written = texts(list(value) if keyword == "properties" and value else value)
        if any(map(UNWRITABLE.search, written)):
            raise _refusal(place, keyword, "holds a control character, which is not supported")
    for keyword in ("const", "enum", *BOUNDS, "multipleOf"):
        if not all(map(is_exact, leaves(part.get(keyword)))):
            raise _refusal(place, keyword, f"holds a number of more than {MAX_DIGITS} digits")
    if place and "$id" in part:
        raise _refusal(place, "$id", "is not supported below the root")
    # A grammar can't keep a free key from coming twice, and a key that comes twice counts once.
    if part.get("minProperties", 0) > len(part.get("required", ())) + 1:
        raise _refusal(place, "minProperties", "is more than the required properties and one")


def check_bounds(places: dict[str, Schema | bool]) -> None:
    """Refuse an exclusive bound less than 1 from its opposite.

    llguidance takes the bound itself in then, if it is whole. References and ``allOf`` join the
    bounds of any two places, so they are all compared.
    """
    found = {
        keyword: [
            (part[keyword], place)
            for place, part in places.items()
            if isinstance(part, dict) and keyword in part
        ]
        for keyword in BOUNDS
    }
    lower = sorted(v for k in ("minimum", "exclusiveMinimum") for v, _ in found[k])
    upper = sorted(v for k in ("maximum", "exclusiveMaximum") for v, _ in found[k])
    for keyword, opposite, reach in (
        ("exclusiveMinimum", upper, 1),
        ("exclusiveMaximum", lower, -1),
    ):
        for value, place in found[keyword]:
            low, high = sorted((value, value + reach))
            if bisect_left(opposite, high) > bisect_right(opposite, low):
                raise _refusal(place, keyword, "is less than 1 from an opposite bound")


def leaves(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all values inside of it."""
    pending = [value]
    while pending:
        value = pending.pop()
        yield value
        pending += _children(value)


def texts(value: Any) -> Iterator[str]:
    """Yield strings and keys in a JSON value."""
    for leaf in leaves(value):
        if isinstance(leaf, str):
            yield leaf
        elif isinstance(leaf, dict):
            yield from leaf


def _check_reference(place: str, part: Schema, targets: Set[str], *, legacy: bool) -> None:
    reference = part.get("$ref")
    if reference is None:
        return
    if not reference.startswith("#"):
        raise _refusal(place, "$ref", f"is {reference!r}: only references inside the schema work")
    if legacy and len(part.keys() - {"$schema", "$id", "definitions"}) > 1:
        raise _refusal(place, "$ref", "has keywords beside it, which its draft ignores")
    if unquote(reference[1:]) not in targets:
        raise _refusal(place, "$ref", f"is {reference!r}, which is no place of a schema in here")


def _replace(place: str, part: Schema) -> None:
    """Write whole numbers as such, patterns in llguidance's dialect, dates as patterns."""
    for keyword, value in part.items():
        if KEYWORDS.get(keyword) is COUNT:
            part[keyword] = int(value)
    if "pattern" in part:
        part["pattern"] = _translated(place, "pattern", part["pattern"])
    if "patternProperties" in part:
        part["patternProperties"] = {
            _translated(place, "patternProperties", k): v
            for k, v in part["patternProperties"].items()
        }
    name = part.get("format")
    if name in FORMAT_PATTERNS:
        del part["format"]
        if "pattern" in part:
            part["allOf"] = [*part.get("allOf", ()), {"pattern": FORMAT_PATTERNS[name]}]
        else:
            part["pattern"] = FORMAT_PATTERNS[name]
    elif name is not None and name not in NATIVE_FORMATS:
        raise _refusal(place, "format", f"is {name!r}, which is not supported")


def _translated(place: str, keyword: str, pattern: str) -> str:
    try:
        return translated(pattern)
    except ValueError as e:
        raise _refusal(place, keyword, f"is {pattern[:80]!r}: {e}") from e


def _refusal(place: str, keyword: str, why: str) -> RequestError:
    return RequestError(f"json_schema: {keyword!r} at {place or 'its root'} {why}")
