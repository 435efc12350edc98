"""Schemas that are to help and not to refuse: what no grammar of ours holds is left out of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from oxibonsai.errors import RequestError
from oxibonsai.structured.json_schema import (
    BOUNDS,
    COUNT,
    DIALECTS,
    KEYWORDS,
    MAX_LEAST,
    UNSUPPORTED,
    UNWRITABLE,
    Schema,
    check_bounds,
    check_keywords,
    check_size,
    is_exact,
    json_copy,
    leaves,
    subschemas,
    texts,
)
from oxibonsai.structured.patterns import FORMAT_PATTERNS, NATIVE_FORMATS, translated

_BESIDE_REFERENCE = ("$schema", "$id", "$ref", "definitions")
# Without these a schema accepts the same.
_SAY_NOTHING = {"$schema", "$id", "contentEncoding", "contentMediaType"}


Note = Callable[[str, str], None]


def loosened(schema: Mapping[str, Any], note: Note = lambda place, keyword: None) -> Schema:
    """Return a schema that accepts all that the given one does, of enforceable keywords only.

    What is left out: unsupported keywords, unknown formats, patterns that no automaton can follow,
    numbers of too many digits, counts of properties, references to elsewhere; of ``oneOf``, that no
    second one fits.

    Args:
        schema: The given one.
        note: Called with the place, a JSON pointer, and the name of each keyword that is left out.

    Raises:
        RequestError: It is no JSON, too large, or malformed: a keyword has a value of the wrong type.
    """
    whole: Schema = json_copy(schema)
    check_size(whole)
    legacy = "draft-0" in str(whole.get("$schema", ""))
    places = dict(subschemas(whole, partial(_loosen, legacy=legacy, note=note)))
    parts = {place: part for place, part in places.items() if isinstance(part, dict)}
    try:
        check_bounds(places)
    except RequestError:
        for place, part in parts.items():
            _include_bounds(place, part, note)
    targets = places.keys() | {part["$anchor"] for part in parts.values() if "$anchor" in part}
    for place, part in parts.items():
        reference = part.get("$ref", "#")
        if reference[:1] != "#" or unquote(reference[1:]) not in targets:
            note(place, "$ref")
            del part["$ref"]
    return whole


def _loosen(place: str, part: Schema, *, legacy: bool, note: Note) -> None:
    """Leave out what is not enforced; refuse what is malformed."""
    dropped = {keyword for keyword in part if keyword in UNSUPPORTED}
    dropped |= {keyword for keyword in part if not _is_enforced(keyword, part[keyword])}
    if "patternProperties" in dropped:
        dropped.add("additionalProperties")  # it would be about the keys of those patterns, too
    if not _counts_are_enforced(part):
        dropped |= {"minProperties", "maxProperties"}
    if place:
        dropped.add("$id")
    ignored = _SAY_NOTHING | ({"uniqueItems"} if part.get("uniqueItems") is False else set())
    if legacy:
        dropped |= {"contentEncoding", "contentMediaType"}
        if "$ref" in part:  # what stands beside it is ignored in these drafts
            beside = part.keys() - set(_BESIDE_REFERENCE)
            ignored |= beside
            dropped |= beside
    for keyword in sorted(dropped & part.keys()):
        if keyword not in ignored:
            note(place, keyword)
        del part[keyword]
    check_keywords(place, part)
    if "oneOf" in part:
        # llguidance takes it only where it can tell that no two of its schemas overlap.
        note(place, "oneOf")
        branches = part.pop("oneOf")
        if "anyOf" in part:
            part["allOf"] = [*part.get("allOf", ()), {"anyOf": branches}]
        else:
            part["anyOf"] = branches


def _is_enforced(keyword: str, value: Any) -> bool:
    """Return whether a keyword with this value is enforced; a malformed one is none of ours."""
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        return False  # draft 4 and OpenAPI 3.0: the bound itself is another keyword
    known = KEYWORDS.get(keyword)
    if keyword == "$schema":
        return not isinstance(value, str) or DIALECTS.fullmatch(value) is not None
    if known is not None and not known[0](value):
        return True
    if known is COUNT and keyword.startswith("min") and value > MAX_LEAST:
        return False
    if keyword in ("const", "enum", *BOUNDS, "multipleOf"):
        return all(map(is_exact, leaves(value))) and not any(map(UNWRITABLE.search, texts(value)))
    if keyword == "format":
        return value in FORMAT_PATTERNS or value in NATIVE_FORMATS
    if keyword == "pattern":
        return _is_translated(value)
    return keyword != "patternProperties" or (len(value) == 1 and all(map(_is_translated, value)))


def _is_translated(pattern: str) -> bool:
    try:
        translated(pattern)
    except ValueError:
        return False
    return True


def _counts_are_enforced(part: Schema) -> bool:
    required, least = part.get("required"), part.get("minProperties", 0)
    required = required if isinstance(required, list) else []
    if "maxProperties" in part and not all(k in required for k in part.get("properties", ())):
        return False
    return not isinstance(least, (int, float)) or least <= len(required) + 1


def _include_bounds(place: str, part: Schema, note: Note) -> None:
    """Make exclusive bounds inclusive ones."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in part:
            note(place, exclusive)
            part.setdefault(inclusive, part.pop(exclusive))
