"""The filters of chat templates, and what is checked before a text is built from others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import islice
from string import Formatter
from typing import Any

from jinja2 import pass_eval_context

from oxibonsai.chat_template.bounds import MAX_ITEMS, Refused, check_length, checked, tick

Filter = Callable[..., Any]

_MAX_INDENT = 16
_MAX_PLACES = 15  # of a rounded number
_THREE_DIGITS = re.compile(r"\d{3}")

# What Jinja has: their results are at most a few times as large as what goes in.
_KEPT = (
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "forceescape", "groupby", "int", "items", "last", "length", "lower", "map", "max",
    "min", "reject", "rejectattr", "reverse", "safe", "select", "selectattr", "sort", "title",
    "trim", "truncate", "unique", "upper", "urlencode", "wordcount",
)  # fmt: skip


def bounded(jinjas: Mapping[str, Filter]) -> dict[str, Filter]:
    """Return the filters that templates have; each is a step, and its result is checked."""
    kept = {name: jinjas[name] for name in _KEPT}
    kept |= {
        "indent": _indent,
        "join": _join,
        "list": _list,
        "replace": _replace_with(jinjas["replace"]),
        "round": _round_with(jinjas["round"]),
        "string": _string_with(jinjas["string"]),
        "sum": _sum,
        "tojson": _tojson,
    }
    return {name: _checking(function) for name, function in kept.items()}


def _checking(function: Filter) -> Filter:
    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        tick()
        return checked(function(*args, **kwargs))

    return filtered


def check_replace(text: str, old: str, new: str) -> None:
    """Refuse a replacement that makes a huge text."""
    check_length(len(text) + (text.count(old) * len(new) if len(new) > len(old) else 0))


def check_format(text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse fields of great width, and many of long values."""
    fields = [spec for _, name, spec, _ in Formatter().parse(text) if name is not None]
    for spec in fields:
        if spec and ("{" in spec or _THREE_DIGITS.search(spec)):
            raise Refused("it formats a text of any width")
    values = checked([*args, *kwargs.values()])
    check_length(len(text) + len(fields) * (100 + sum(len(str(v)) for v in values)))


def bounded_join(separator: str, items: Iterable[Any]) -> list[str]:
    """Return the texts to join, if what they make is not huge."""
    texts = [str(item) for item in checked(_list(items))]
    check_length(sum(map(len, texts)) + len(separator) * len(texts))
    return texts


def _list(value: Iterable[Any]) -> list[Any]:
    items = list(islice(value, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise Refused(f"it makes a list of more than {MAX_ITEMS} elements")
    return items


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    items = _list(value)
    if attribute is not None:
        items = [item[attribute] for item in items]
    return str(d).join(bounded_join(str(d), items))


def _replace_with(replace: Filter) -> Filter:
    @pass_eval_context
    def checked_replace(context: Any, s: str, old: str, new: str, count: int | None = None) -> str:
        check_replace(str(s), old, new)
        return str(replace(context, s, old, new, count))

    return checked_replace


def _round_with(rounding: Filter) -> Filter:
    def checked_round(value: float, precision: int = 0, method: str = "common") -> float:
        if abs(precision) > _MAX_PLACES:
            raise Refused(f"it rounds to {precision} places")
        return float(rounding(value, precision, method))

    return checked_round


def _string_with(string: Filter) -> Filter:
    # Namespaces can be put into each other without a check: here they would be written.
    return lambda value: string(checked(value))


def _sum(value: Iterable[Any], attribute: str | None = None, start: float = 0) -> float:
    if not isinstance(start, int | float):
        raise Refused("it adds up what is no number")
    items = _list(value)
    return sum((item if attribute is None else item[attribute] for item in items), start)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise Refused(f"it indents by {indent}")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _indent(text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    """Indent a text as Jinja's ``indent`` does, for widths that a prompt needs."""
    if not isinstance(width, int) or not 0 <= width <= _MAX_INDENT:
        raise Refused(f"it indents by {width}")
    text = str(text)
    check_length(len(text) + width * (text.count("\n") + 1))
    margin = " " * width
    lines = text.split("\n")
    indented = [margin + line if line or blank else line for line in lines[1:]]
    return "\n".join([(margin if first else "") + lines[0], *indented])
