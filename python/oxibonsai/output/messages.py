"""Messages of OpenAI's chat API as chat templates take them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.call_parser import ToolFormat
from oxibonsai.output.tools.call_writer import call_ids

# Kinds of parts that are images, in the three APIs.
IMAGES = ("image", "image_url", "image_file", "input_image")
NO_IMAGES = (
    "image input is not supported: the model reads text only (one that sees has a vision tower beside "
    "it: --mmproj FILE)"
)
_SEEING_ROLES = ("user", "tool")

# Key of arguments that are no JSON object, as Anthropic tells its clients to send them back.
INVALID_JSON = "INVALID_JSON"

_KNOWS_CALLS = re.compile(r"[.'\"]tool_calls\b")
_INSTEAD_OF_CONTENT = ("tool_calls", "reasoning_content", "reasoning", "refusal")
_ROLES = ("system", "developer", "user", "assistant", "tool")


class MessageError(RequestError):
    """A message whose field is missing or wrong.

    Args:
        param: The field, such as ``messages[0].content``.
        reason: Goes on after its name.
    """

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(f"{param} {reason}", param=param)


@dataclass
class ImageParts:
    """The images of a conversation.

    Attributes:
        marker: Text that stands for each where the template takes only text; None: the template takes
            lists of parts, ``{"type": "image"}`` among them, and writes what stands for them.
        found: The parts that are images, in order.
    """

    marker: str | None
    found: list[Mapping[str, Any]] = field(default_factory=list)


def template_messages(
    messages: Sequence[Mapping[str, Any]],
    *,
    tool_format: ToolFormat | None = None,
    template_source: str = "",
    images: ImageParts | None = None,
) -> list[dict[str, Any]]:
    """Check messages and give them the form that chat templates expect.

    Content is one text: the text parts of a list, joined by new lines. With images, it is a list of
    parts where the template takes that. Arguments of calls are
    objects (what is none is text in one), ``reasoning`` is called ``reasoning_content``, a result
    knows the name of its function, ``developer`` is ``system`` where the template does not know it.
    Where it knows no calls, they are part of the content, as the model writes them.

    Args:
        messages: As the request has them; they stay as they are.
        tool_format: Of the model: it may want short ids, or one call to a message.
        template_source: Of the chat template.
        images: Takes the images; None: the model reads text only.

    Raises:
        RequestError: Names the message and the field that is wrong.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise RequestError("messages is not a list")
    developer = "developer" if "developer" in template_source else "system"
    id_length = tool_format.id_length if tool_format else None
    knows_calls = _KNOWS_CALLS.search(template_source) is not None
    names: dict[str, str] = {}
    taken: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if not isinstance(message, Mapping):
            raise RequestError(f"{place} is not an object")
        fields = _fields(message, place, images)
        if fields["role"] == "developer":
            fields["role"] = developer
        calls = _calls(message.get("tool_calls"), f"{place}.tool_calls", id_length)
        names.update({c["id"]: c["function"]["name"] for c in calls if "id" in c})
        if fields["role"] == "tool":
            _complete_result(fields, names, place, id_length)
        written = None
        if calls and tool_format is not None and template_source and not knows_calls:
            written = tool_format.spell([_named(c) for c in calls])
        if written is not None:
            fields["content"], calls = f"{fields['content']}{written}", []
        taken.extend(_with_calls(fields, calls, tool_format))
    return taken


def _fields(message: Mapping[str, Any], place: str, images: ImageParts | None) -> dict[str, Any]:
    role = message.get("role")
    if role not in _ROLES:
        raise RequestError(f"{place}.role is {role!r}, none of {', '.join(_ROLES)}")
    fields = {k: v for k, v in message.items() if k not in ("tool_calls", "reasoning")}
    content = message.get("content")
    if content is None:
        _check_other_content(message, role, f"{place}.content")
    fields["content"] = _content(content, f"{place}.content", role, images)
    reasoning = message.get("reasoning_content", message.get("reasoning"))
    if reasoning is not None and not isinstance(reasoning, str):
        raise RequestError(f"{place}.reasoning_content is not a string")
    fields.pop("reasoning_content", None)
    if reasoning is not None:
        # The second name is that of the templates of gpt-oss and LFM.
        fields |= {"reasoning_content": reasoning, "thinking": reasoning}
    return fields


def _check_other_content(message: Mapping[str, Any], role: str, place: str) -> None:
    """Check that an answer has content, unless it has called, thought or refused."""
    if role != "assistant":
        raise MessageError(place, f"is missing: a message of {role} has a text or a list of parts")
    if all(message.get(name) in (None, []) for name in _INSTEAD_OF_CONTENT):
        raise MessageError(place, "is missing, and the message has no tool_calls either")


def _content(content: Any, place: str, role: str, images: ImageParts | None) -> Any:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise MessageError(place, "is neither a string nor a list of parts")
    parts: list[dict[str, Any]] = []
    seen = False
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in IMAGES:
            parts.append(_image(part, f"{place}[{i}]", role, images))
            seen = True
            continue
        if kind != "text" and not (kind == "refusal" and role == "assistant"):
            also = "" if images is None else " and pictures"
            raise RequestError(
                f"{place}[{i}].type is {kind!r}: only parts of type text{also} are taken"
            )
        if not isinstance(part.get(kind), str):
            raise RequestError(f"{place}[{i}].{kind} is not a string")
        parts.append({"type": "text", "text": part[kind]})
    if seen and images is not None and images.marker is None:
        return parts
    return "\n".join(part["text"] for part in parts)


def _image(
    part: Mapping[str, Any], place: str, role: str, images: ImageParts | None
) -> dict[str, Any]:
    if images is None:
        raise RequestError(f"{place}: {NO_IMAGES}")
    if role not in _SEEING_ROLES:
        raise RequestError(f"{place}: a picture stands in a message of the user, not of {role}")
    images.found.append(part)
    return {"type": "image"} if images.marker is None else {"type": "text", "text": images.marker}


def _calls(calls: Any, place: str, id_length: int | None) -> list[dict[str, Any]]:
    if calls is None:
        return []
    if isinstance(calls, str) or not isinstance(calls, Sequence):
        raise RequestError(f"{place} is not a list")
    taken = []
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise RequestError(f"{place}[{i}].function is not an object")
        if not isinstance(function.get("name"), str):
            raise RequestError(f"{place}[{i}].function.name is not a string")
        arguments = _arguments(function.get("arguments"), f"{place}[{i}].function.arguments")
        one = {"type": "function", "function": {**function, "arguments": arguments}}
        if call.get("id") is not None:
            one["id"] = _id(call["id"], f"{place}[{i}].id", id_length)
        taken.append(one)
    return taken


def _arguments(arguments: Any, place: str) -> dict[str, Any]:
    if arguments is None or arguments == "":
        return {}
    value = _object(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(value, Mapping):
        raise RequestError(f"{place} is neither an object nor a string")
    return dict(value)


def _object(text: str) -> dict[str, Any]:
    """Return the object that a text stands for; the text itself in one where it is none.

    A limit of tokens cuts calls off, and models write what is no JSON: the conversation goes on
    behind such a call, and templates want an object.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (RecursionError, ValueError):
        return {INVALID_JSON: text}
    return value if isinstance(value, dict) else {INVALID_JSON: text}


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _id(value: Any, place: str, length: int | None) -> str:
    """Return an id, or one of a fixed length that depends on it alone."""
    if not isinstance(value, str):
        raise RequestError(f"{place} is not a string")
    if length is None or (len(value) == length and value.isalnum() and value.isascii()):
        return value
    seed = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return call_ids(seed, prefix="", length=length)(0)


def _complete_result(
    fields: dict[str, Any], names: Mapping[str, str], place: str, id_length: int | None
) -> None:
    if fields.get("tool_call_id") is None:
        return
    fields["tool_call_id"] = _id(fields["tool_call_id"], f"{place}.tool_call_id", id_length)
    name = names.get(fields["tool_call_id"])
    if name is not None:
        fields.setdefault("name", name)


def _named(call: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    return call["function"]["name"], call["function"]["arguments"]


def _with_calls(
    fields: dict[str, Any], calls: list[dict[str, Any]], tool_format: ToolFormat | None
) -> list[dict[str, Any]]:
    if not calls or tool_format is None:
        return [{**fields, "tool_calls": calls}] if calls else [fields]
    if tool_format.arguments_as_text:
        for call in calls:
            function = call["function"]
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    if tool_format.joins_reasoning and fields["content"] and fields.get("reasoning_content"):
        joined = f"{fields['reasoning_content']}\n\n{fields['content']}"
        fields |= {"reasoning_content": joined, "thinking": joined, "content": ""}
    if tool_format.no_content_beside_calls:
        before = [{**fields}] if fields["content"] else []
        return [*before, {"role": "assistant", "content": None, "tool_calls": calls}]
    if not tool_format.one_call_a_message:
        return [{**fields, "tool_calls": calls}]
    first = {**fields, "tool_calls": calls[:1]}
    return [first, *({"role": "assistant", "content": "", "tool_calls": [c]} for c in calls[1:])]
