"""Jinja as Hugging Face sets it up, but every loop, call, operator and filter is bounded.

Only the filters and methods that chat templates need are there: one that is not known to be
harmless is no part of the language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from oxibonsai.chat_template import bounds, filters
from oxibonsai.chat_template.bounds import Refused, check_length, checked

Span = tuple[int, int]  # the first character and the one after the last


class Marks:
    """The spans of one rendering.

    Attributes:
        written: Characters of the text so far.
        spans: Of the blocks that have ended.
    """

    def __init__(self) -> None:
        self.written = 0
        self.spans: list[Span] = []
        self._begun: list[int] = []

    def begin(self) -> None:
        """Record that a block begins here."""
        self._begun.append(self.written)

    def end(self) -> None:
        """Record that the last open block ends here."""
        self.spans.append((self._begun.pop(), self.written))


marks: ContextVar[Marks] = ContextVar("marks")  # of the rendering that runs in this thread


def begin() -> None:
    """Record the beginning of a block; the template calls this."""
    marks.get().begin()


def end() -> None:
    """Record the end of a block; the template calls this."""
    marks.get().end()


_TEXT_METHODS = frozenset(
    {
        "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum",
        "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric",
        "isprintable", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition",
        "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit",
        "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
    }
)  # fmt: skip
# Of builtin types: the first that fits counts.
_METHODS: tuple[tuple[type | tuple[type, ...], frozenset[str]], ...] = (
    (str, _TEXT_METHODS),
    ((list, tuple, range), frozenset({"index", "count"})),
    (dict, frozenset({"get", "items", "keys", "values"})),
    ((int, float, bytes), frozenset()),
)
_PLAIN = (nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair)
_OURS = (bounds.tick, bounds.counted, bounds.checked, bounds.plain_text, begin, end)


def _call(function: Callable[..., Any], *arguments: Any) -> nodes.Call:
    """Return a call that no variable of the template can stand in front of."""
    name = nodes.ImportedName(f"{function.__module__}.{function.__name__}")
    return nodes.Call(name, list(arguments), [], None, None)


class _Bounds(NodeTransformer):
    """Counts turns of loops and calls of macros; checks what list displays and ``~`` make."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        if not node.recursive:
            node.iter = _call(bounds.counted, node.iter)
        node.body.insert(0, nodes.ExprStmt(_call(bounds.tick)))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call(bounds.tick)))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        joined: nodes.Expr = _call(bounds.plain_text, node.nodes[0])
        for part in node.nodes[1:]:
            joined = nodes.Add(joined, _call(bounds.plain_text, part))
        return joined

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._display(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._display(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._display(node) if node.ctx == "load" else node

    def _display(self, node: nodes.Expr) -> nodes.Node:
        # What the source spells out is as small as the source.
        is_plain = all(isinstance(part, _PLAIN) for part in node.find_all(nodes.Node))
        self.generic_visit(node)
        return node if is_plain else _call(checked, node)


class _Generation(Extension):
    """``{% generation %}``, which marks the assistant's tokens for training."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's declaration

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.ExprStmt(_call(begin)), *body, nodes.ExprStmt(_call(end))]


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment; its templates run within :data:`oxibonsai.chat_template.bounds.budget`.

    Args:
        functions: What templates can call besides Jinja's own.
    """

    intercepted_binops = frozenset({"*", "**", "+", "-", "%"})

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            undefined=jinja2.Undefined,
            finalize=checked,
        )
        self.filters = filters.bounded(self.filters)
        self.tests = {name: _ticking(test) for name, test in self.tests.items()}
        self.globals.update(range=_range, **functions)
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Bounds().visit(tree)
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return an operator whose result is checked, before it is computed where it can be large."""
        if operator == "+":
            check_length(_length(left) + _length(right))
        elif operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(text, str | list | tuple) and isinstance(times, int):
                    check_length(len(text) * times)
        elif operator == "**":
            if abs(left) > 1 << 64 or abs(right) > 64:
                raise Refused("it raises a number to a huge power")
        elif isinstance(left, str):
            raise Refused("it formats with %, which can build texts of any width")
        return checked(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may see it."""
        for kind, names in _METHODS:
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Bound ``str.format`` before the fields are looked up."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text: str = value.__self__

        def bounded(*args: Any, **kwargs: Any) -> str:
            filters.check_format(text, args, kwargs)
            return str(wrapped(*args, **kwargs))

        return bounded

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a call whose result is checked."""
        if any(obj is function for function in _OURS):
            return obj(*args)
        bounds.tick()
        text = getattr(obj, "__self__", None)
        if isinstance(text, str) and obj.__name__ == "replace" and len(args) > 1:
            filters.check_replace(text, *args[:2])
        if isinstance(text, str) and obj.__name__ == "join" and args:
            args = (filters.bounded_join(text, args[0]), *args[1:])
        return checked(super().call(context, obj, *args, **kwargs))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 1


def _range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > bounds.MAX_ITEMS:
        raise Refused(f"it counts over a range of {len(numbers)}")
    return numbers


def _ticking(test: Any) -> Callable[..., Any]:
    @wraps(test)
    def tested(*args: Any, **kwargs: Any) -> Any:
        bounds.tick()
        return test(*args, **kwargs)

    return tested
