"""Conversations that are longer than the context: as little as need be is left out."""

from __future__ import annotations

from collections.abc import Callable

from oxibonsai.chat import ChatTurn


def fitting_turn(turn: Callable[[int], ChatTurn], most_left_out: int, most_tokens: int) -> ChatTurn:
    """The prompt of a conversation of which messages may be left out.

    Args:
        turn: Makes the prompt without so many messages; the more, the shorter it is.
        most_left_out: How many can be missing.
        most_tokens: How long the prompt may be.

    Returns:
        The prompt without the fewest messages that is short enough; where none is, the shortest.

    Raises:
        RequestError: As ``turn``.
    """
    whole = turn(0)
    if len(whole.ids) <= most_tokens or most_left_out < 1:
        return whole
    low, fits, best = 1, most_left_out, turn(most_left_out)
    while low < fits:
        middle = (low + fits) // 2
        tried = turn(middle)
        if len(tried.ids) <= most_tokens:
            fits, best = middle, tried
        else:
            low = middle + 1
    return best
