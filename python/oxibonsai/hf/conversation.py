"""Prepare a caller's messages for a chat template as transformers 5 does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from oxibonsai.chat_template import ChatTemplate, Message, Span
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.tokenizer.offsets import Offset

Conversation = Sequence[Message]
Tool = Mapping[str, Any] | Callable[..., Any]

# Names that a message's reasoning has; templates read the first, that of gpt-oss the second.
_REASONING = ("reasoning_content", "thinking", "reasoning")
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def as_conversations(given: Sequence[Any]) -> tuple[list[Conversation], bool]:
    """Return the conversations, and whether they are a batch."""
    if not given:
        raise RequestError("the conversation is empty: it needs a message")
    is_batch = isinstance(given[0], list | tuple)
    return (list(given) if is_batch else [given]), is_batch


def prepare_messages(conversation: Conversation) -> list[dict[str, Any]]:
    """Copy without keys that are None, the reasoning under every name that templates know."""
    messages = []
    for i, message in enumerate(conversation):
        if not isinstance(message, Mapping):
            raise RequestError(
                f"message {i} is {message!r}; it must be a dict with role and content"
            )
        kept = {key: value for key, value in message.items() if value is not None}
        reasoning = next((kept[name] for name in _REASONING if name in kept), None)
        if reasoning is not None:
            kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
        messages.append(kept)
    return messages


def as_schemas(tools: Sequence[Tool] | None) -> list[Mapping[str, Any]] | None:
    """Return JSON schemas of tools; those of functions come from their signature and docstring."""
    if tools is None:
        return None
    return [tool if isinstance(tool, Mapping) else _schema_of(tool) for tool in tools]


def _schema_of(tool: Any) -> Mapping[str, Any]:
    if not callable(tool):
        raise RequestError(f"the tool {tool!r} is neither a JSON schema nor a function")
    try:
        from transformers.utils.chat_template_utils import get_json_schema
    except ImportError as e:
        raise UnsupportedError(
            "a function as a tool needs transformers (pip install transformers), or give its schema"
        ) from e
    schema: Mapping[str, Any] = get_json_schema(tool)
    return schema


def check_variables(template: ChatTemplate, names: set[str], arguments: set[str]) -> None:
    """Raise TypeError for a name that is no variable of the template.

    Args:
        template: What is going to be rendered.
        names: Of the further keywords of a call.
        arguments: Of the call itself, which a misspelt name may mean.
    """
    for name in sorted(names - template.variables):
        known = arguments | template.variables
        likely = get_close_matches(name, sorted(known), n=1)
        hint = f"; did you mean {likely[0]!r}?" if likely else ""
        raise TypeError(
            f"apply_chat_template() got {name!r}, which is no argument of it, and the chat template "
            f"reads no such variable{hint}"
        )


def render_open(
    template: ChatTemplate, messages: list[dict[str, Any]], field: str, options: dict[str, Any]
) -> str:
    """Return the prompt up to where a field of the last message ends, for the model to go on there.

    Args:
        template: The chat format.
        messages: The caller's own copy.
        field: ``content``, or that of the reasoning.
        options: Of :meth:`ChatTemplate.render_marked`.

    Raises:
        RequestError: The last message has no such text, or the template leaves it out.
    """
    last = messages[-1]
    value = last.get(field)
    if value is None:
        raise RequestError(
            f"continue_final_message: the last message has no {field!r} to be continued"
        )
    # The reasoning is there under several names: any of them may be the one that is read.
    names = [n for n in _REASONING if last.get(n) == value] if field in _REASONING else [field]
    if not any(name in template.source for name in names):
        raise RequestError(f"continue_final_message: the chat template does not read {field!r}")
    if isinstance(value, list | tuple):
        text, last[field] = _tag_last_text(value)
    else:
        text = str(value)
        last.update(dict.fromkeys(names, text + _TAG))
    rendered = template.render_marked(messages, **options)[0]
    at = rendered.rfind(_TAG.strip())
    if at < 0 or text.strip() not in rendered:
        raise RequestError(
            "continue_final_message: the chat template leaves out parts of the last message"
        )
    before = rendered[:at]
    # A template that strips the message strips the tag's own space, too.
    return before if rendered.startswith(_TAG, at) else before.rstrip()


def _tag_last_text(parts: Sequence[Mapping[str, Any]]) -> tuple[str, list[Mapping[str, Any]]]:
    """Return the last text of a message in parts, and the parts with a tag behind that text."""
    for i in range(len(parts) - 1, -1, -1):
        if "text" in parts[i]:
            text = str(parts[i]["text"])
            tagged = {**parts[i], "text": text + _TAG}
            return text, [*parts[:i], tagged, *parts[i + 1 :]]
    raise RequestError("continue_final_message: the last message has no text to be continued")


def token_mask(offsets: Iterable[Offset], spans: Sequence[Span]) -> list[int]:
    """Return 1 for each token that a span of the text touches, else 0.

    Args:
        offsets: Where the tokens stand in the text.
        spans: First character and the one after the last, in order.
    """
    return [int(any(a < last and first < b for first, last in spans)) for a, b in offsets]
