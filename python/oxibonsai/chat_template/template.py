"""A model's chat format.

A template comes with a downloaded file, so it is hostile until proven otherwise: it may not reach
Python's internals, build huge texts or loop for long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from oxibonsai.chat_template.builtin import builtin_template
from oxibonsai.chat_template.sandbox import Marks, Span, marks
from oxibonsai.errors import RequestError, TemplateError

if TYPE_CHECKING:
    from jinja2 import Template

    from oxibonsai.chat_template.bounds import Budget

Message = Mapping[str, Any]

MAX_SOURCE = 1 << 16  # characters of a template; the longest known has a quarter of that
_MAX_MESSAGE = 500  # characters of its own errors
_MAX_PATTERN = 256  # characters of a date's; each makes some dozens at most

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_TOOL_CALLS = re.compile(r"[.'\"]tool_calls\b")
_IMAGE = re.compile(r"['\"]image['\"]")
_WIDTH = re.compile(r"%[^A-Za-z%]*\d")  # in a date's pattern: glibc's %250Y
_PROBE = "what is seen"
_RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "raise_exception",
     "strftime_now", "range", "dict", "namespace", "cycler", "joiner", "lipsum"}
)  # fmt: skip


def _raise_exception(message: str) -> None:
    raise RequestError(f"the chat template refuses these messages: {_short(message)}")


def _short(message: object) -> str:
    """Return a template's message, cut to a short length."""
    return str(message)[:_MAX_MESSAGE]


def _strftime_now(pattern: str) -> str:
    from oxibonsai.chat_template.bounds import Refused

    if len(pattern) > _MAX_PATTERN or _WIDTH.search(pattern.replace("%%", "")):
        raise Refused(
            f"it formats a date with a width, or with more than {_MAX_PATTERN} characters"
        )
    return datetime.now().strftime(pattern)


# Compiling takes longer than rendering a short conversation.
@lru_cache(maxsize=16)
def compiled_template(source: str, bos_token: str, eos_token: str) -> ChatTemplate:
    """Return a template that is compiled once for all conversations; arguments as of ``ChatTemplate``."""
    return ChatTemplate(source, bos_token=bos_token, eos_token=eos_token)


class TooCostlyError(RequestError):
    """A rendering went past a bound of its size, its steps or its time."""


class ChatTemplate:
    """A model's chat format.

    Args:
        source: Jinja source, as ``tokenizer.chat_template`` holds it.
        bos_token: Text of the bos token, for templates that write it.
        eos_token: Text of the eos token.

    Attributes:
        source: As given.
        tokens: The texts of the two tokens, by their names.

    Raises:
        TemplateError: The source is too long; see also :meth:`check`.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateError(
                f"the chat template has {len(source)} characters, more than {MAX_SOURCE}"
            )
        self.source = source
        self.tokens = {"bos_token": bos_token, "eos_token": eos_token}

    @classmethod
    def chatml(cls) -> ChatTemplate:
        """Return the format of models that know ``<|im_start|>`` and bring no template."""
        return cls(builtin_template("chatml"))

    def check(self) -> None:
        """Raise TemplateError where the source is no Jinja; otherwise the first use finds out."""
        _ = self._template

    @property
    def marks_generation(self) -> bool:
        """Whether it says what the assistant wrote: ``{% generation %}``."""
        return _GENERATION.search(self.source) is not None

    @property
    def knows_images(self) -> bool:
        """Whether it writes something for a part ``{"type": "image"}`` of a message."""
        return _IMAGE.search(self.source) is not None

    @cached_property
    def needs_parts(self) -> bool:
        """Whether it reads a message's text only where that is a list of parts."""

        def shows(content: Any) -> bool:
            try:
                return _PROBE in self.render([{"role": "user", "content": content}])
            except RequestError:
                return False

        return not shows(_PROBE) and shows([{"type": "text", "text": _PROBE}])

    @cached_property
    def takes_system(self) -> bool:
        """Whether it writes a message of the system."""
        said: list[dict[str, Any]] = [
            {"role": "system", "content": _PROBE}, {"role": "user", "content": "."},
        ]  # fmt: skip
        if self.needs_parts:
            said = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in said]
        try:
            return _PROBE in self.render(said)
        except RequestError:
            return False

    @property
    def knows_tools(self) -> bool:
        """Whether it reads the tools of a request, or the calls of a message."""
        return "tools" in self.variables or _TOOL_CALLS.search(self.source) is not None

    @cached_property
    def variables(self) -> frozenset[str]:
        """Return the names that the template reads and does not set itself."""
        from jinja2.meta import find_undeclared_variables

        environment = self._template.environment
        return frozenset(find_undeclared_variables(environment.parse(self.source)))

    @cached_property
    def _template(self) -> Template:
        from oxibonsai.chat_template.bounds import Budget, budget
        from oxibonsai.chat_template.sandbox import Sandbox

        functions = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        budget.set(Budget())
        try:
            return Sandbox(functions).from_string(self.source)
        # Jinja's parser raises its own errors; Python's compiler behind it has many more.
        except Exception as e:
            raise TemplateError(f"the chat template is no valid Jinja: {_short(e)}") from e

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        variables: Mapping[str, Any] | None = None,
        look: Callable[[], None] | None = None,
        **extra: Any,
    ) -> str:
        """Return the prompt for a conversation.

        Args:
            messages: ``{"role": ..., "content": ...}`` and what else the template knows.
            tools: Function schemas in OpenAI's form.
            add_generation_prompt: End with the head of the assistant's turn.
            enable_thinking: For templates that can switch a thinking phase off; None: their default.
            variables: Further variables of the template, as a request has them: they can replace
                none of the others.
            look: Called some times in a second; what it raises ends the rendering.
            **extra: The same, such as ``documents``.

        Raises:
            RequestError: The template refuses the messages.
            TooCostlyError: It goes past a bound.
        """
        for name, value in (variables or {}).items():
            if name in extra or (name == "enable_thinking" and enable_thinking is not None):
                raise RequestError(f"the chat template variable {name} is there twice")
            extra[name] = value
        if enable_thinking is not None:
            extra["enable_thinking"] = enable_thinking
        return self.render_marked(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            variables=extra,
            look=look,
        )[0]

    def render_marked(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any],
        look: Callable[[], None] | None = None,
    ) -> tuple[str, list[Span]]:
        """Return the prompt as of :meth:`render`, and the spans of it within ``{% generation %}``."""
        forbidden = _RESERVED.intersection(variables)
        if forbidden:
            raise RequestError(f"a chat template variable may not be called {min(forbidden)}")
        values = {
            **variables,
            **self.tokens,
            "messages": [dict(m) for m in messages],
            "tools": None if tools is None else [dict(t) for t in tools],
            "add_generation_prompt": add_generation_prompt,
        }
        from oxibonsai.chat_template.bounds import Budget, Refused

        template = self._template
        costs = Budget(look)
        try:
            return _collect(template.generate(**values), costs)
        except RequestError:
            raise
        except Refused as e:
            if costs.stopped is not None:
                raise costs.stopped from None
            raise TooCostlyError(f"the chat template fails on these messages: {_short(e)}") from e
        # It is foreign code: whatever it raises is a failure of its own.
        except Exception as e:
            raise RequestError(f"the chat template fails on these messages: {_short(e)}") from e


def _collect(pieces: Iterator[str], costs: Budget) -> tuple[str, list[Span]]:
    from oxibonsai.chat_template.bounds import MAX_TEXT, Refused, budget

    budget.set(costs)
    found = Marks()
    marks.set(found)
    kept: list[str] = []
    for piece in pieces:
        found.written += len(piece)
        if found.written > MAX_TEXT:
            raise Refused(f"they make a text of more than {MAX_TEXT} characters")
        kept.append(piece)
    return "".join(kept), found.spans
