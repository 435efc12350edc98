"""Conversations that are longer than the context: as little as need be is left out."""

from __future__ import annotations

from collections.abc import Callable

from oxibonsai.chat import ChatTurn
from oxibonsai.server.inputs import TooLongError


def fitting_turn(turn: Callable[[int], ChatTurn], most_left_out: int, most_tokens: int) -> ChatTurn:
    """The prompt of a conversation of which messages may be left out.

    Args:
        turn: Makes the prompt without so many messages; the more, the shorter it is.
        most_left_out: How many can be missing.
        most_tokens: How long the prompt may be.

    Returns:
        The prompt without the fewest messages that is short enough; where none is, the shortest.

    Raises:
        RequestError, TooLongError: As ``turn``, of the shortest.
    """

    def fitting(left_out: int) -> ChatTurn | None:
        try:
            tried = turn(left_out)
        except TooLongError:
            return None
        return tried if len(tried.ids) <= most_tokens else None

    if most_left_out < 1:
        return turn(0)
    if (whole := fitting(0)) is not None:
        return whole
    low, fits, best = 1, most_left_out, turn(most_left_out)
    while low < fits:
        middle = (low + fits) // 2
        if (tried := fitting(middle)) is not None:
            fits, best = middle, tried
        else:
            low = middle + 1
    return best
