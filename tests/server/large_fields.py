"""Every field that is a list or a text, of every route with a body, as large as a body may be.

The fields come from the schemas of ``/openapi.json``, so that a new one is among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from valid_bodies import VALID_BODIES

from oxibonsai.server.admin.openapi import Operation

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]

_MARK = "@@HERE@@"
_DEEPEST = 8  # parts of a path: no schema of a body is nested so deep
_WORDS = "hello, world "


@dataclass(frozen=True)
class LargeField:
    """A field of a body, and what fills it.

    Attributes:
        endpoint: As ``blueprint.view``.
        path: Where it is; numbers are places in lists.
        fill: ``text``; ``list`` of what it takes; ``empty lists``; ``keys`` of an object; ``part`` of a
            form.
        before, after: What is around the field's value.
        item: JSON of an item of a list, or of a value of an object.
        content_type: Of the body.
    """

    endpoint: str
    path: Path
    fill: str
    before: str
    after: str
    item: str = ""
    content_type: str = "application/json"

    @property
    def name(self) -> str:
        """Where it is and what fills it, in words."""
        return f"{self.endpoint} {'.'.join(map(str, self.path))} ({self.fill})"

    def body(self, size: int) -> bytes:
        """A body of about ``size`` bytes."""
        left = size - len(self.before) - len(self.after)
        words = _WORDS * (left // len(_WORDS))
        if self.fill == "part":
            value = words
        elif self.fill == "text":
            value = f'"{words}"'
        elif self.fill == "keys":
            width = len(self.item) + 11
            pairs = (f'"{i:07}":{self.item}' for i in range(left // width))
            value = "{" + ",".join(pairs) + "}"
        else:
            item = "[]" if self.fill == "empty lists" else self.item
            value = "[" + ",".join([item] * (left // (len(item) + 1))) + "]"
        return f"{self.before}{value}{self.after}".encode()


def large_fields(operations: Mapping[str, Operation]) -> list[LargeField]:
    """The fields of all operations that read JSON or a form."""
    found: list[LargeField] = []
    for endpoint, operation in operations.items():
        if operation.body is not None:
            schema = operation.body.model_json_schema()
            found += fields_of(endpoint, schema, VALID_BODIES[endpoint])
        elif operation.form is not None:
            found += _parts_of(endpoint, operation.form)
    return found


def one_of_each(fields: list[LargeField], names: int = _DEEPEST) -> list[LargeField]:
    """One of those that several routes have in common.

    Args:
        fields: All of them.
        names: How many of the last names of a path make a field another one.
    """
    found: dict[tuple[Path, str, str], LargeField] = {}
    for field in fields:
        words = tuple(part for part in field.path if isinstance(part, str))
        found.setdefault((words[-names:], field.fill, field.item), field)
    return list(found.values())


def _parts_of(endpoint: str, form: Schema) -> Iterator[LargeField]:
    def head(name: str) -> str:
        binary = form["properties"][name].get("format") == "binary"
        file = '; filename="a"' if binary else ""
        return f'--x\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'

    for name in form["properties"]:
        others = [other for other in form["required"] if other != name]
        before = "".join(f"{head(other)}a\r\n" for other in others) + head(name)
        kind = "multipart/form-data; boundary=x"
        yield LargeField(endpoint, (name,), "part", before, "\r\n--x--\r\n", content_type=kind)


def fields_of(endpoint: str, schema: Schema, valid: Mapping[str, Any]) -> Iterator[LargeField]:
    """The fields of one schema, in a valid body."""
    seen = set()
    for path, fill, item, body in _places(schema, schema.get("$defs", {}), valid):
        if (path, fill) not in seen:
            seen.add((path, fill))
            before, after = json.dumps(body).split(f'"{_MARK}"')
            yield LargeField(endpoint, path, fill, before, after, item)


def _places(
    schema: Schema, definitions: Schema, given: Any, depth: int = 0
) -> Iterator[tuple[Path, str, str, Any]]:
    """Path, fill and item of every list and text that a schema allows, and a value with a mark there."""
    if depth > _DEEPEST:
        return
    for option in _options(schema, definitions):
        kind = option.get("type")
        if kind in ("string", None):
            yield (), "text", "", _MARK
        if kind in ("array", None):
            yield (), "empty lists", "", _MARK
        if kind == "array":
            items = option.get("items", {})
            first = given[0] if isinstance(given, list) and given else None
            yield (), "list", json.dumps(_example(items, definitions)), _MARK
            for path, fill, item, value in _places(items, definitions, first, depth + 1):
                yield (0, *path), fill, item, [value]
        if kind == "object":
            yield from _members(option, definitions, given, depth)


def _members(
    option: Schema, definitions: Schema, given: Any, depth: int
) -> Iterator[tuple[Path, str, str, Any]]:
    """As :func:`_places`, of an object."""
    rest = _example(option, definitions)
    if isinstance(given, Mapping) and all(given.get(n, v) == v for n, v in _constants(option)):
        rest = {**rest, **given}
    for name, member in option.get("properties", {}).items():
        for path, fill, item, value in _places(member, definitions, rest.get(name), depth + 1):
            yield (name, *path), fill, item, {**rest, name: value}
    more = option.get("additionalProperties", False)
    if more is not False:
        values = {} if more is True else more
        yield (), "keys", json.dumps(_example(values, definitions)), _MARK
        for path, fill, item, value in _places(values, definitions, None, depth + 1):
            yield ("a", *path), fill, item, {**rest, "a": value}


def _options(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """The schemas of which one has to hold, references followed; none that lists its values."""
    if "$ref" in schema:
        yield from _options(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    elif members := schema.get("anyOf") or schema.get("oneOf"):
        for member in members:
            yield from _options(member, definitions)
    elif "enum" not in schema and "const" not in schema:
        yield schema


def _constants(option: Schema) -> Iterator[tuple[str, Any]]:
    for name, member in option.get("properties", {}).items():
        if "const" in member:
            yield name, member["const"]


def _example(schema: Schema, definitions: Schema) -> Any:
    """The smallest value that a schema allows."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    option = next(_options(schema, definitions), {})
    if option.get("type") == "object":
        required = option.get("required", ())
        return {name: _example(option["properties"][name], definitions) for name in required}
    if option.get("type") == "array":
        return [_example(option.get("items", {}), definitions)] * option.get("minItems", 0)
    return {"integer": 1, "number": 1, "boolean": True, "null": None}.get(option.get("type"), "a")
