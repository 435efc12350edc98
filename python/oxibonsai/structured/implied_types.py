"""Make explicit what a schema implies: objects by their properties, arrays and tuples by their items.

By the letter ``{"properties": ...}`` lets any number through, since keywords restrict values of
their own type only, and ``{"prefixItems": [...]}`` the empty array. Who describes a document that a
model shall write means the object, and the whole tuple; llama.cpp reads it so, too.
"""

from __future__ import annotations

from typing import Any

_KEYWORDS = {
    "object": {
        "properties", "required", "additionalProperties", "patternProperties", "minProperties",
        "maxProperties",
    },
    "array": {"items", "prefixItems", "additionalItems", "minItems", "maxItems"},
}  # fmt: skip

# Beside these the type may be said elsewhere, and another one here would let nothing through.
_SAYS_MORE = {"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf"}


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
