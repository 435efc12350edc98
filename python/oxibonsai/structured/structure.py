"""The required form of a text, as it was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.structured.described import described
from oxibonsai.structured.trial import problem_elsewhere

# The longest text of each kind, in UTF-8 bytes: beyond these the cost of a compilation is no longer
# in proportion to what anyone writes by hand or generates from types.
LIMITS = {
    "json_schema": 1 << 20,
    "regex": 1 << 14,
    "choice": 1 << 18,
    "lark": 1 << 18,
    "gbnf": 1 << 16,
}


@dataclass(frozen=True)
class Structure:
    """The required form of a text; made by the class methods, equal where the request is equal.

    Attributes:
        kind: ``json_schema``, ``regex``, ``choice``, ``lark`` or ``gbnf``.
        text: The schema or the list of choices as JSON; the expression or grammar as it stands.
        closes: Whether a text that comes near its limit of tokens is brought to its end.
    """

    kind: str
    text: str
    closes: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in LIMITS:
            raise RequestError(f"structure kind {self.kind!r} is none of {', '.join(LIMITS)}")
        if not isinstance(self.text, str):
            raise RequestError(f"{self.kind} is {type(self.text).__name__}, not a text")
        try:
            size = len(self.text.encode())
        except UnicodeEncodeError as e:
            raise RequestError(f"{self.kind} holds half a surrogate pair at index {e.start}") from e
        if size > LIMITS[self.kind]:
            raise RequestError(
                f"{self.kind} has {size} bytes, more than the {LIMITS[self.kind]} that are taken"
            )

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool | str) -> Structure:
        """Return a JSON document that a schema accepts (drafts 6 to 2020-12; see docs/structured.md).

        By the letter: ``{"properties": ...}`` without ``type`` accepts every number, too.

        Args:
            schema: As Python values, or as the text of a JSON document. Properties come in the
                order in which the schema lists them.
        """
        return cls("json_schema", _dump(_schema(schema), "json_schema"))

    @classmethod
    def described_json(
        cls,
        schema: Mapping[str, Any] | bool | str,
        *,
        strict: bool = False,
        open_objects: bool = False,
    ) -> DescribedJson:
        """Return a JSON document as the author of a schema means it (see docs/structured.md).

        Who describes properties means an object that has these and no others. Numbers have up to 16
        digits. Servers and commands take their users' schemas so.

        Args:
            schema: As for :meth:`json_schema`.
            strict: Refuse keywords that are not enforced; else they are left out, and
                :meth:`DescribedJson.problem` finds what breaks them in the whole text.
            open_objects: Objects may have more keys than are named.
        """
        try:
            return _described(_schema(schema), strict, open_objects)
        except RecursionError as e:
            raise RequestError("json_schema is nested too deep") from e

    @classmethod
    def json_object(cls) -> DescribedJson:
        """Return any JSON object."""
        return _any_object()

    @classmethod
    def regex(cls, pattern: str) -> Structure:
        """Return a text that matches an expression from its beginning to its end."""
        return cls("regex", pattern)

    @classmethod
    def choice(cls, options: Sequence[str]) -> Structure:
        """Describe a choice of one of some texts."""
        listed = isinstance(options, Sequence) and not isinstance(options, str)
        if not listed or not options or not all(isinstance(o, str) for o in options):
            raise RequestError("choice is not a list of one or more texts")
        return cls("choice", _dump(list(dict.fromkeys(options)), "choice"))

    @classmethod
    def lark(cls, grammar: str) -> Structure:
        """Return a text of a grammar in llguidance's dialect of Lark; its first rule is ``start``."""
        return cls("lark", grammar)

    @classmethod
    def gbnf(cls, grammar: str) -> Structure:
        """Return a text of a grammar as llama.cpp writes them; its first rule is ``root``."""
        return cls("gbnf", grammar)

    def to_json(self) -> str:
        """Return a text from which :meth:`from_json` makes an equal structure."""
        return json.dumps({"kind": self.kind, "text": self.text, "closes": self.closes})

    @classmethod
    def from_json(cls, text: str) -> Structure:
        """Return the structure that :meth:`to_json` wrote; RequestError where it is no such text."""
        fields = _parse(text, "structure")
        if not isinstance(fields, dict) or set(fields) != {"kind", "text", "closes"}:
            raise RequestError("structure is not an object of the fields kind, text and closes")
        return cls(**fields)


@dataclass(frozen=True)
class DescribedJson(Structure):
    """A JSON document as the author of a schema means it; made by :meth:`Structure.described_json`.

    Attributes:
        whole: The schema as it was given, where ``text`` enforces less; empty: it enforces all.
        left_out: Keywords of the schema that are not enforced, with their places as JSON pointers.
    """

    whole: str = field(default="", compare=False)
    left_out: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def problem(self, text: str) -> str:
        """Return where a whole text breaks the schema as it was given; empty: nowhere."""
        return problem_elsewhere(json.loads(self.whole), text) if self.whole else ""


@cache  # every structure is compared with it before it is compiled
def _any_object() -> DescribedJson:
    return _described({"type": "object"}, strict=False, open_objects=False)


def _described(schema: Mapping[str, Any] | bool, strict: bool, open_objects: bool) -> DescribedJson:
    given = _dump(schema, "json_schema")
    if schema is False:
        return DescribedJson("json_schema", given, True)
    left_out: list[tuple[str, str]] = []
    meant = described(
        {} if schema is True else schema,
        strict=strict,
        open_objects=open_objects,
        note=lambda place, keyword: left_out.append((place, keyword)),
    )
    text = _dump(meant, "json_schema")
    return DescribedJson("json_schema", text, True, given if left_out else "", tuple(left_out))


def _schema(schema: Mapping[str, Any] | bool | str) -> Mapping[str, Any] | bool:
    if isinstance(schema, str):
        schema = _parse(schema, "json_schema")
    if not isinstance(schema, (Mapping, bool)):
        raise RequestError(f"json_schema is {_json_type(schema)}, not an object or a boolean")
    return schema


def _parse(text: str, name: str) -> Any:
    """Parse JSON without NaN, Infinity and repeated keys: readers disagree on those."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError as e:
        raise RequestError(f"{name} is nested too deep") from e
    except ValueError as e:
        raise RequestError(f"{name} is no JSON: {e}") from e


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is there twice in one object")
    return fields


def _dump(value: Any, name: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError as e:
        raise RequestError(f"{name} is nested too deep") from e
    except (TypeError, ValueError) as e:
        raise RequestError(f"{name} can't be written as JSON: {e}") from e


def _json_type(value: Any) -> str:
    names = {list: "an array", str: "a string", int: "a number", float: "a number"}
    return names.get(type(value), "null" if value is None else type(value).__name__)
