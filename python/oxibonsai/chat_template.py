"""Chat templates: Jinja from the model file, rendered in a sandbox with bounds on size and time.

A template comes with a downloaded file, so it is hostile until proven otherwise: it may not reach
Python's internals, build huge texts or loop for long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from oxibonsai.errors import FormatError, RequestError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]

MAX_SOURCE = 1 << 20  # characters of a template
MAX_TEXT = 4 << 20  # characters of a rendered prompt, and of any text on the way
MAX_STEPS = 500_000  # turns of loops and calls of macros
MAX_SECONDS = 1.0
MAX_INDENT = 16
_MAX_LIST = 100_000  # elements of a range or a list

_RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "raise_exception",
     "strftime_now", "range", "dict", "namespace", "cycler", "joiner", "lipsum", "_tick", "_steps"}
)  # fmt: skip

_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class _Refused(Exception):
    """A template went past a bound."""


class _Budget:
    """Steps and time of one rendering."""

    def __init__(self) -> None:
        self.steps = 0
        self.deadline = time.monotonic() + MAX_SECONDS

    def charge(self, steps: int) -> None:
        before = self.steps
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise _Refused(f"it takes more than {MAX_STEPS} steps")
        if self.steps // 256 != before // 256 and time.monotonic() > self.deadline:
            raise _Refused(f"it takes more than {MAX_SECONDS:g} s")

    def tick(self) -> str:
        self.charge(1)
        return ""

    def count(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.tick()
            yield item


# Of the rendering that runs in this thread: filters have no other way to it.
_budget: ContextVar[_Budget] = ContextVar("_budget")


def _check_length(length: int) -> None:
    """Refuses a huge text or list before it is built, and charges for a large one."""
    if length > MAX_TEXT:
        raise _Refused(f"it builds a text or list of {length} elements")
    _budget.get().charge(length // 256)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 1


def _raise_exception(message: str) -> None:
    raise RequestError(f"the chat template refuses these messages: {message}")


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and indent > MAX_INDENT:
        raise _Refused(f"it indents by {indent}")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class ChatTemplate:
    """A model's chat format.

    Args:
        source: Jinja source, as ``tokenizer.chat_template`` holds it.
        bos_token: Text of the bos token, for templates that write it.
        eos_token: Text of the eos token.

    Raises:
        FormatError: The source is too long or is no Jinja.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise FormatError(
                f"the chat template has {len(source)} characters, more than {MAX_SOURCE}"
            )
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    @classmethod
    def chatml(cls) -> ChatTemplate:
        """The format of models that know ``<|im_start|>`` and bring no template."""
        return cls(_CHATML)

    @cached_property
    def _template(self) -> Template:
        import jinja2

        try:
            return _environment().from_string(self.source)
        except (jinja2.TemplateSyntaxError, RecursionError) as e:
            raise FormatError(f"the chat template is no valid Jinja: {e}") from e

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        variables: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> str:
        """The prompt for a conversation.

        Args:
            messages: ``{"role": ..., "content": ...}`` and what else the template knows.
            tools: Function schemas in OpenAI's form.
            add_generation_prompt: End with the head of the assistant's turn.
            enable_thinking: For templates that can switch a thinking phase off; None: their default.
            variables: Further variables of the template, as a request has them: they can replace
                none of the others.
            **extra: The same, such as ``documents``.

        Raises:
            RequestError: The template refuses the messages, or goes past a bound.
        """
        import jinja2

        for name, value in (variables or {}).items():
            if name in extra or (name == "enable_thinking" and enable_thinking is not None):
                raise RequestError(f"the chat template variable {name} is there twice")
            extra[name] = value
        forbidden = _RESERVED.intersection(extra)
        if forbidden:
            raise RequestError(f"a chat template variable may not be called {min(forbidden)}")
        if enable_thinking is not None:
            extra["enable_thinking"] = enable_thinking
        budget = _Budget()
        _budget.set(budget)
        variables = {
            **extra,
            **self._tokens,
            "messages": [dict(m) for m in messages],
            "tools": None if tools is None else [dict(t) for t in tools],
            "add_generation_prompt": add_generation_prompt,
            "_tick": budget.tick,
            "_steps": budget.count,
        }
        try:
            return self._collect(self._template.generate(**variables), budget)
        except RequestError:
            raise
        except (_Refused, jinja2.TemplateError, RecursionError, MemoryError) as e:
            raise RequestError(f"the chat template can't be rendered: {e}") from e
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError) as e:
            raise RequestError(f"the chat template fails on these messages: {e}") from e

    @staticmethod
    def _collect(pieces: Iterator[str], budget: _Budget) -> str:
        kept: list[str] = []
        length = 0
        for piece in pieces:
            budget.tick()
            length += len(piece)
            _check_length(length)
            kept.append(piece)
        return "".join(kept)


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as Hugging Face sets it up, with every loop, macro and growing operator bounded."""
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.visitor import NodeTransformer

    class Bounds(NodeTransformer):
        """Counts turns of loops and calls of macros; makes ``~`` an operator that can be checked."""

        def visit_For(self, node: nodes.For) -> nodes.Node:
            self.generic_visit(node)
            if not node.recursive:
                node.iter = nodes.Call(nodes.Name("_steps", "load"), [node.iter], [], None, None)
            node.body.insert(0, _tick_node())
            return node

        def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
            self.generic_visit(node)
            node.body.insert(0, _tick_node())
            return node

        def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
            self.generic_visit(node)
            joined: nodes.Expr = nodes.Filter(node.nodes[0], "string", [], [], None, None)
            for part in node.nodes[1:]:
                text = nodes.Filter(part, "string", [], [], None, None)
                joined = nodes.Add(joined, text)
            return joined

    def _tick_node() -> nodes.Output:
        return nodes.Output([nodes.Call(nodes.Name("_tick", "load"), [], [], None, None)])

    class Generation(Extension):
        """``{% generation %}``, which marks the assistant's tokens for training: passed through."""

        tags = {"generation"}  # noqa: RUF012 - jinja2's declaration

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(
                ("name:endgeneration",), drop_needle=True
            )
            return body

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**", "+", "%"})

        def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
            tree = super()._parse(source, name, filename)
            Bounds().visit(tree)
            tree.set_environment(self)
            return tree

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "+":
                _check_length(_length(left) + _length(right))
            elif operator == "*":
                if isinstance(left, str | list | tuple) and isinstance(right, int):
                    _check_length(len(left) * right)
                elif isinstance(right, str | list | tuple) and isinstance(left, int):
                    _check_length(len(right) * left)
            elif operator == "**":
                if abs(left) > 1 << 64 or abs(right) > 64:
                    raise _Refused("it raises a number to a huge power")
            elif isinstance(left, str):
                raise _Refused("it formats with %, which can build texts of any width")
            return super().call_binop(context, operator, left, right)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            if isinstance(obj, str) and attr in _GROWING_METHODS:
                return False
            return super().is_safe_attribute(obj, attr, value)

        def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
            owner = getattr(obj, "__self__", None)
            if isinstance(owner, str) and obj.__name__ == "replace" and len(args) > 1:
                _check_replace(owner, *args[:2])
            if isinstance(owner, str) and obj.__name__ == "join" and args:
                args = (_bounded_join(owner, args[0]), *args[1:])
            return super().call(context, obj, *args, **kwargs)

    environment = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, Generation],
        undefined=jinja2.Undefined,
    )
    replace = environment.filters["replace"]

    def safe_replace(eval_ctx: Any, s: str, old: str, new: str, count: int | None = None) -> str:
        _check_replace(str(s), old, new)
        return str(replace(eval_ctx, s, old, new, count))

    def safe_join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
        items = list(value)
        if attribute is not None:
            items = [environment.getitem(i, attribute) for i in items]
        return str(d).join(_bounded_join(str(d), items))

    environment.filters["replace"] = jinja2.pass_eval_context(safe_replace)
    environment.filters["join"] = safe_join
    environment.filters["list"] = _bounded_list
    environment.filters["tojson"] = _tojson
    for name in ("center", "format", "indent", "wordwrap", "batch", "slice", "xmlattr", "urlize"):
        environment.filters.pop(name, None)
    environment.filters["indent"] = _indent
    environment.globals.pop("lipsum", None)
    environment.globals["range"] = _bounded_range
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


_GROWING_METHODS = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate"}
)


def _check_replace(text: str, old: str, new: str) -> None:
    _check_length(len(text) + (text.count(old) * len(new) if len(new) > len(old) else 0))


def _bounded_join(separator: str, items: Iterable[Any]) -> list[str]:
    texts = [str(i) for i in items]
    _check_length(sum(map(len, texts)) + len(separator) * len(texts))
    return texts


def _bounded_list(value: Iterable[Any]) -> list[Any]:
    items = list(islice(value, _MAX_LIST + 1))
    if len(items) > _MAX_LIST:
        raise _Refused(f"it makes a list of more than {_MAX_LIST} elements")
    return items


def _bounded_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > _MAX_LIST:
        raise _Refused(f"it counts over a range of {len(numbers)}")
    return numbers


def _indent(text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja's ``indent`` filter for widths that a prompt needs."""
    if not isinstance(width, int) or not 0 <= width <= MAX_INDENT:
        raise _Refused(f"it indents by {width}")
    margin = " " * width
    lines = str(text).split("\n")
    indented = [margin + line if line or blank else line for line in lines[1:]]
    return "\n".join([(margin if first else "") + lines[0], *indented])
