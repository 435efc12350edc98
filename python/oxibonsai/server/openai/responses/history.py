"""The conversation history: a stored conversation, or a chain of stored responses."""

from __future__ import annotations

from oxibonsai.server.errors import ApiError
from oxibonsai.server.openai.responses.run import ENDED
from oxibonsai.server.openai.schemas.responses import InputTokensRequest
from oxibonsai.server.paging import all_of
from oxibonsai.server.stores import Collection, NoSuchObjectError, Object, Store

_LONGEST = 2000


def history(store: Store, owner: str, request: InputTokensRequest) -> list[Object]:
    """What the request continues, the oldest first.

    Raises:
        NoSuchObjectError: There is no such conversation.
        ApiError: See :func:`_chain`.
    """
    if request.conversation is not None:
        return all_of(store.conversation_items, owner, request.conversation.id)
    return _chain(store.responses, owner, request.previous_response_id)


def _chain(store: Collection, owner: str, response_id: str | None) -> list[Object]:
    """Inputs and outputs of a chain of responses, the oldest first.

    Raises:
        ApiError: 404 if a response of the chain is unknown or deleted; 400 if the last one has not
            ended, or the chain is longer than 2,000.
    """
    links: list[list[Object]] = []
    while response_id is not None:
        if len(links) >= _LONGEST:
            raise _refusal(400, f"The chain has more than {_LONGEST} responses.")
        try:
            record = store.get(owner, response_id)
        except NoSuchObjectError:
            message = f"Previous response with id '{response_id[:80]}' not found."
            raise _refusal(404, message, "previous_response_not_found") from None
        response = record["response"]
        if response["status"] not in ENDED:
            raise _refusal(400, f"The response '{response_id}' is not complete yet.")
        links.append([*record["input"], *response["output"]])
        response_id = response["previous_response_id"]
    return [item for link in reversed(links) for item in link]


def _refusal(status: int, message: str, code: str | None = None) -> ApiError:
    return ApiError(status, message, param="previous_response_id", code=code)
