"""From a conversation to a prompt, and what is known about the text that will follow it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from oxibonsai.chat.generic_tools import tool_format_of, with_generic_tools
from oxibonsai.chat.reasoning_constraint import ReasoningConstraint
from oxibonsai.chat.request import ChatRequest
from oxibonsai.chat.template import model_template
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.engine import Constrain, Engine, Options
from oxibonsai.errors import RequestError
from oxibonsai.output import (
    ImageParts,
    OutputParser,
    ReasoningTags,
    ThinkingBudget,
    find_reasoning_tags,
    starts_inside,
    template_messages,
)
from oxibonsai.output.grammar import tool_structure
from oxibonsai.output.tools import (
    CallIds,
    GenericFormat,
    Tool,
    ToolChoice,
    ToolFormat,
    read_tool_choice,
    read_tools,
)
from oxibonsai.structured import Structure
from oxibonsai.structured.bridge import special_texts
from oxibonsai.tokenizer import Tokenizer, Watch
from oxibonsai.vision.image import PlacedImage
from oxibonsai.vision.prompt_images import place_images

_NO_LIMIT = 1 << 62
_SYSTEM_TOOLS = "message['tools']"  # in templates that look for tools there (Phi-4)
_FIELDS_OF_REQUEST = ("self", "messages", "tools", "add_generation_prompt")


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt, and how its answer is made and read.

    Attributes:
        prompt: Text of the prompt, with a marker for each image.
        ids: Its tokens, a placeholder for each row of an image among them.
        options: For the engine.
        parser: Makes what sorts the answer's text; takes what gives ids to its calls.
        structure: What the answer must match where it is no call.
        thinks: Whether the model is told to reason first; None: its template's own default.
    """

    prompt: str
    ids: list[int]
    options: Options
    parser: Callable[[CallIds], OutputParser]
    structure: Structure | None = None
    thinks: bool | None = None


def prepare(
    engine: Engine,
    request: ChatRequest,
    options: Options | None = None,
    *,
    template: ChatTemplate | None = None,
    watch: Watch | None = None,
    check: Callable[[str], None] | None = None,
) -> PreparedPrompt:
    """Render a conversation and determine the form of its answer.

    Args:
        engine: Its tokenizer encodes the prompt.
        request: The conversation.
        options: Of the engine, beside what the request asks for.
        template: The chat template; None: the model's own.
        watch: Called some times in a second with the number of tokens so far; what it raises ends
            the work.
        check: Called with the text of the prompt before it is tokenized; may refuse it.

    Raises:
        RequestError: The model has no chat template, or a field of the request makes no sense for it.
    """
    template = _required(template or model_template(engine))
    tool_format = tool_format_of(template)
    tools = read_tools(request.tools)
    choice = read_tool_choice(request.tool_choice, tools)
    if choice.mode == "none":
        tools = ()
    if tools and tool_format is None:
        raise RequestError(
            "tools: this model writes calls in a format that is not read here; with --chat-template "
            "chatml, or another template that knows no tools, they are described to it in plain text"
        )
    tags = find_reasoning_tags(template.source)
    if request.thinking_budget is not None and tags is None:
        raise RequestError("thinking_budget: this model's chat template knows no reasoning")
    request = request.in_words_of(engine.recommended)
    images = _image_parts(engine, template)
    prompt, inside = _render(
        template, request, tool_format, tags, images, with_tools=bool(tools), watch=watch
    )
    if check is not None:
        check(prompt)
    shown_tags = tags if request.split_reasoning else None
    if tags is not None and prompt.rstrip().endswith((tags.close, tags.answer or tags.close)):
        tags = None  # reasoning is switched off
    calls = None
    if tool_format is not None:
        calls = tool_structure(
            tool_format,
            tools,
            choice,
            parallel=request.parallel_tool_calls,
            reasoning=tags,
            inside_reasoning=inside,
            special_tokens={t: i for i, t in special_texts(engine.tokenizer).items()},
            answer=request.structure,
        )
    placed: tuple[PlacedImage, ...] = ()
    if images is not None and images.found:
        assert engine.image_reader is not None
        ids, placed = place_images(
            prompt, images.found, engine.image_reader, engine.tokenizer, watch
        )
    else:
        ids = engine.tokenizer.encode(prompt, add_special=False, parse_special=True, watch=watch)
    snapshots = engine.cache.takes_snapshots
    options = replace(
        options or Options(),
        structure=calls or request.structure,
        constrain=_reasoning_constraint(
            engine.tokenizer,
            tags,
            inside,
            request,
            answer_only=calls is None and request.structure is not None,
        ),
        visible=_visible(engine.tokenizer, tool_format, tags),
        images=placed,
        borders=_borders(engine.tokenizer, template, request, ids) if snapshots else (),
    )
    return PreparedPrompt(
        prompt,
        ids,
        options,
        partial(_parser, request, tool_format, tools, choice, shown_tags, inside),
        request.structure,
        request.thinks,
    )


def render(
    engine: Engine,
    request: ChatRequest,
    *,
    template: ChatTemplate | None = None,
    watch: Watch | None = None,
) -> str:
    """Return the prompt of a conversation, to look at: tools are shown to any template.

    Args:
        engine: Of the model.
        request: The conversation.
        template: As for :func:`prepare`.
        watch: As for :func:`prepare`.

    Raises:
        RequestError: As for :func:`prepare`, unread tool calls apart.
    """
    template = _required(template or model_template(engine))
    tools = read_tools(request.tools)
    shown = bool(tools) and read_tool_choice(request.tool_choice, tools).mode != "none"
    tags = find_reasoning_tags(template.source)
    request = request.in_words_of(engine.recommended)
    tool_format = tool_format_of(template)
    images = _image_parts(engine, template)
    return _render(template, request, tool_format, tags, images, with_tools=shown, watch=watch)[0]


def _image_parts(engine: Engine, template: ChatTemplate) -> ImageParts | None:
    """Take the images of a conversation; None: the model reads text only."""
    if engine.image_reader is None:
        return None
    return ImageParts(None if template.knows_images else engine.image_reader.tower.written)


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}] if content else []}


def _required(template: ChatTemplate | None) -> ChatTemplate:
    if template is None:
        raise RequestError(
            "this model has no chat template: send it a plain prompt, or start with --chat-template "
            "chatml or another template"
        )
    return template


def _render(
    template: ChatTemplate,
    request: ChatRequest,
    tool_format: ToolFormat | None,
    tags: ReasoningTags | None,
    images: ImageParts | None,
    *,
    with_tools: bool,
    watch: Watch | None,
) -> tuple[str, bool]:
    """Return the prompt, and whether what follows it is reasoning."""
    messages = template_messages(
        request.messages,
        tool_format=tool_format,
        template_source=template.source,
        images=images,
    )
    if not messages:
        raise RequestError("messages is empty: there is nothing to answer")
    prefill = ""
    last = messages[-1]
    if request.continue_last and last["role"] == "assistant" and not last.get("tool_calls"):
        prefill = messages.pop()["content"]
        if not messages:
            raise RequestError("messages has nothing before the answer that is to be continued")
    for name in request.template_options:
        if not isinstance(name, str) or name in _FIELDS_OF_REQUEST:
            raise RequestError(f"template_options: {name!r} is no variable that can be set there")
    shown = [_shown(tool) for tool in request.tools] if with_tools else None
    if isinstance(tool_format, GenericFormat):
        messages, shown = with_generic_tools(messages, shown, template), None
    elif shown and _SYSTEM_TOOLS in template.source:
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        text = json.dumps([tool["function"] for tool in shown], ensure_ascii=False)
        messages[0] = {**messages[0], "tools": text}
    if template.needs_parts:
        messages = [_in_parts(message) for message in messages]
    prompt = template.render(
        messages,
        tools=shown,
        add_generation_prompt=request.add_generation_prompt or bool(prefill),
        enable_thinking=request.thinks,
        variables=request.template_variables,
        look=None if watch is None else partial(watch, 0),
    )
    if tags is not None:
        # A structure is that of the text alone: the head of the answer goes before it.
        plain = request.thinks is False or request.structure is not None
        prompt += tags.answer if prefill or (plain and not with_tools) else ""
    prompt += prefill
    if tags is None or not starts_inside(prompt, tags, prefill=prefill):
        return prompt, False
    if request.thinks is False and not prefill:
        return prompt + tags.close, False
    return prompt, True


def _shown(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as the model sees it: without ``strict``, which only concerns decoding."""
    function = {k: v for k, v in tool["function"].items() if k != "strict"}
    return {**tool, "function": function}


def _reasoning_constraint(
    tokenizer: Tokenizer,
    tags: ReasoningTags | None,
    inside: bool,
    request: ChatRequest,
    *,
    answer_only: bool,
) -> Constrain | None:
    """Make what limits the reasoning of an answer; None: nothing depends on the reasoning."""
    budget = request.thinking_budget
    if tags is None or (budget is None and request.structure is None):
        return None
    opening = tokenizer.encode(tags.open, add_special=False, parse_special=True)
    closing = tokenizer.encode(f"{tags.close}{tags.after}", add_special=False, parse_special=True)
    make_budget = partial(
        ThinkingBudget,
        _NO_LIMIT if budget is None else budget,
        token_bytes=tokenizer.token_bytes,
        opening=opening[0] if len(opening) == 1 else None,
        closing=closing,
        tags=tags,
        inside=inside,
    )
    return lambda structure: ReasoningConstraint(
        make_budget(), structure, answer_only=answer_only, end_ids=tokenizer.eos_ids
    )


def _borders(
    tokenizer: Tokenizer, template: ChatTemplate, request: ChatRequest, ids: list[int]
) -> tuple[int, ...]:
    """Return the positions of a prompt where turns begin, as far as the template shows them.

    What stands before the assistant's turn stays as it is in the prompt of the next turn; the turn
    itself may not: templates leave reasoning out of earlier answers, or put an empty one there.
    """
    message: dict[str, Any] = {"role": "user", "content": "x"}
    told = [_in_parts(message) if template.needs_parts else message]
    try:
        texts = [
            template.render(
                told,
                add_generation_prompt=adds,
                enable_thinking=request.thinks,
                variables=request.template_variables,
            )
            for adds in (False, True)
        ]
    except RequestError:  # a template that wants another conversation
        return ()
    if not texts[1].startswith(texts[0]):
        return ()
    head = tokenizer.encode(texts[1][len(texts[0]) :], add_special=False, parse_special=True)
    if head and head[0] in tokenizer.special_ids:
        return tuple(i for i, token in enumerate(ids) if token == head[0] and i > 0)
    return (len(ids) - len(head),) if head and ids[-len(head) :] == head else ()


def _visible(
    tokenizer: Tokenizer, tool_format: ToolFormat | None, tags: ReasoningTags | None
) -> frozenset[int]:
    """Control tokens that are part of the text that the parser reads."""
    marks = set(() if tool_format is None else tool_format.marks)
    marks |= set() if tags is None else tags.marks
    texts = tokenizer.vocabulary.texts
    return frozenset(i for i in tokenizer.special_ids if texts[i] in marks)


def _parser(
    request: ChatRequest,
    tool_format: ToolFormat | None,
    tools: tuple[Tool, ...],
    choice: ToolChoice,
    tags: ReasoningTags | None,
    inside: bool,
    ids: CallIds,
) -> OutputParser:
    return OutputParser(
        tool_format,
        tools,
        ids=ids,
        parallel=request.parallel_tool_calls,
        reasoning=tags,
        inside_reasoning=inside,
        structured=request.structure is not None,
        forced=choice.mode in ("required", "named"),
    )
