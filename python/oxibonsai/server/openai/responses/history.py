"""The conversation history: a stored conversation or a chain of responses, and its compaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import PromptLimit, TooLongError
from oxibonsai.server.openai.responses.run import ENDED
from oxibonsai.server.openai.schemas.responses import (
    InputTokensRequest,
    MessageItem,
    ReasoningField,
    TextField,
    TextPart,
    packed,
)
from oxibonsai.server.paging import all_of, json_size
from oxibonsai.server.stores import Collection, NoSuchObjectError, Object, Store
from oxibonsai.server.stores.collection import new_id

_LONGEST = 2000
# Texts of these are in every prompt; a chat template may leave out earlier thoughts and answers.
_ALWAYS_SHOWN = ("user", "system", "developer")


@dataclass(frozen=True)
class HistoryLimit:
    """How much of a history is read.

    Attributes:
        most_bytes: The JSON of its items.
        prompt_limit: The context that it must fit into; None: any.
        least_tokens: How many tokens a text has at least.
        is_cut: Leave out the oldest items where there are too many, instead of raising an error.
    """

    most_bytes: int
    prompt_limit: PromptLimit | None
    least_tokens: Callable[[str], int]
    is_cut: bool


def history(
    store: Store, owner: str, request: InputTokensRequest, limit: HistoryLimit
) -> list[Object]:
    """Return what the request continues, the oldest first; read from the newest, up to the limit.

    Raises:
        NoSuchObjectError: There is no such conversation.
        ApiError: See :func:`_chain`; 400 if the history is too long.
    """
    if request.conversation is not None:
        name, conversation = "conversation", request.conversation.id
        newest = all_of(store.conversation_items, owner, conversation, order="desc")
    else:
        name = "previous_response_id"
        newest = _chain(store.responses, owner, request.previous_response_id)
    found: list[Object] = []
    try:
        for item in _within(newest, name, limit):
            found.append(item)
    except TooLongError:
        if not limit.is_cut:
            raise
    return found[::-1]


def _within(newest: Iterator[Object], name: str, limit: HistoryLimit) -> Iterator[Object]:
    """Yield the items as long as they are within the limit; TooLongError where they are not."""
    size = shown = tokens = 0
    for item in newest:
        size += json_size(item)
        if size > limit.most_bytes:
            raise TooLongError(
                400,
                f"{name}: what it holds takes more than {limit.most_bytes} bytes; send truncation: "
                "auto to leave out the oldest items, begin anew, or raise --max-body-mb",
                param=name,
                code="conversation_too_large",
            )
        text = _shown_text(item)
        shown += len(text.encode())
        # A token may reach into the next text.
        tokens += max(0, limit.least_tokens(text) - 1)
        if limit.prompt_limit is not None:
            limit.prompt_limit.check_least(tokens, f"the conversation has {shown} bytes or more")
        yield item


def _shown_text(item: Object) -> str:
    if item["type"] != "message" or item["role"] not in _ALWAYS_SHOWN:
        return ""
    content = item["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _chain(store: Collection, owner: str, response_id: str | None) -> Iterator[Object]:
    """Yield inputs and outputs of a chain of responses, the newest first.

    Raises:
        ApiError: 404 if a response of the chain is unknown or deleted; 400 if the last one has not
            ended, or the chain is longer than 2,000.
    """
    length = 0
    while response_id is not None:
        if length >= _LONGEST:
            raise _refusal(400, f"The chain has more than {_LONGEST} responses.")
        length += 1
        try:
            record = store.get(owner, response_id)
        except NoSuchObjectError:
            message = f"Previous response with id '{response_id[:80]}' not found."
            raise _refusal(404, message, "previous_response_not_found") from None
        response = record["response"]
        if response["status"] not in ENDED:
            raise _refusal(400, f"The response '{response_id}' is not complete yet.")
        yield from reversed([*record["input"], *response["output"]])
        response_id = response["previous_response_id"]


def _refusal(status: int, message: str, code: str | None = None) -> ApiError:
    return ApiError(status, message, param="previous_response_id", code=code)


_ASKED = (
    "Summarize our conversation so far, so that it can go on from your summary alone: what is "
    "wanted, what was found and decided, names and numbers that matter, and what is still open. "
    "Answer with the summary only."
)
_MOST_TOKENS = 1024


def summary_request(
    request: InputTokensRequest, items: Sequence[Object]
) -> tuple[InputTokensRequest, list[Object]]:
    """Return the request for a summary, and the conversation with the instruction appended."""
    part = TextPart(type="input_text", text=_ASKED)
    asked = MessageItem(type="message", role="user", content=[part])
    plain = {
        "truncation": "auto",
        "tools": [],
        "tool_choice": "auto",
        "text": TextField(),
        "reasoning": ReasoningField(effort="none"),
    }
    return request.model_copy(update=plain), [*items, asked.model_dump()]


def summary_tokens(ctx_size: int) -> int:
    """Return the maximum length of a summary in tokens, which is reserved in the context."""
    return max(1, min(_MOST_TOKENS, ctx_size // 4))


def compacted(items: Sequence[Object], response: Object) -> Object:
    """Return the response body of ``/v1/responses/compact``.

    Args:
        items: The conversation.
        response: The model's response to :func:`summary_request`.
    """
    messages = [item for item in response["output"] if item["type"] == "message"]
    summary = "".join(part["text"] for message in messages for part in message["content"])
    item = {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": packed(summary)}
    said = [i for i in items if i["type"] == "message" and i["role"] == "user"]
    return {
        "id": new_id("resp_"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*said, item],
        "usage": response["usage"],
    }
