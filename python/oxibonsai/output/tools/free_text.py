"""Any text up to an end that is fixed, as a grammar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.lark import Lark, pattern
from oxibonsai.structured.loosened import loosened

_OF_STRINGS = ("minLength", "maxLength", "pattern")


def free_text(lark: Lark, name: str, schema: Mapping[str, Any], end: str, *, strict: bool) -> str:
    """Return a text as long as the schema wants it, and its end.

    Args:
        lark: Takes a rule of that name.
        name: Of the rule.
        schema: Of a string.
        end: Behind the text.
        strict: To the letter; else as far as it can be enforced.

    Raises:
        RequestError: The schema is malformed.
    """
    if not strict:
        schema = loosened({k: schema[k] for k in _OF_STRINGS if k in schema})
    least, most = _length(schema, "minLength", "0"), _length(schema, "maxLength", "")
    length = f"(?s:.{{{least},{most}}})"
    if not lark.holds_special(end):
        tail = pattern(end)
        # The first end ends the text, whatever else is asked of it.
        kinds = [f"/{length}{tail}/", f"~/(?s:.*){pattern(end.lstrip(chr(10)))}(?s:.+)/"]
        if "pattern" in schema:
            kinds.append(_matching(schema["pattern"], tail))
        lark.rule(f"{name}[lazy]", " & ".join(kinds))
        return name
    # No text holds a special token: what comes before the first of them belongs to the text.
    special = lark.from_special(end)
    tail = pattern(end[: len(end) - len(special)])
    kinds = [f"/{length}{tail}/", "/(?s:.+)/"]
    if "pattern" in schema:
        kinds.append(_matching(schema["pattern"], tail))
    terminal = name.upper()
    lark.rule(terminal, " & ".join(kinds))
    may_be_empty = least == "0" and "pattern" not in schema and not tail
    return f"{terminal}{'?' if may_be_empty else ''} {lark.mark(special)}"


def _length(schema: Mapping[str, Any], keyword: str, default: str) -> str:
    value = schema.get(keyword)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(f"{keyword} is {value!r} in a tool's parameters: it is a whole number")
    return str(value)


def _matching(expression: Any, end: str) -> str:
    """Return a text in which the expression is found, and what ends it."""
    import llguidance

    if not isinstance(expression, str):
        raise RequestError(f"pattern is {expression!r} in a tool's parameters: it is a string")
    before, after = "(?s:.*)", "(?s:.*)"
    if expression.startswith("^"):
        before, expression = "", expression[1:]
    if expression.endswith("$") and not expression.endswith("\\$"):
        after, expression = "", expression[:-1]
    inner = llguidance.regex_to_lark(expression, "") if expression else ""
    return f"/{before}({inner}){after}{end}/"
