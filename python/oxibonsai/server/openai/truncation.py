"""Truncates conversations that are longer than the context: drops as few messages as possible."""

from __future__ import annotations

from collections.abc import Callable

from oxibonsai.chat import PreparedPrompt
from oxibonsai.server.inputs import TooLongError


def fitting_prompt(
    prepare: Callable[[int], PreparedPrompt], most_left_out: int, most_tokens: int
) -> PreparedPrompt:
    """Return the prompt of a conversation from which messages may be dropped.

    Args:
        prepare: Makes the prompt without the given number of messages; it shrinks with that number.
        most_left_out: How many messages may be dropped.
        most_tokens: Maximum length of the prompt.

    Returns:
        The prompt with the fewest messages dropped that is short enough; if none is, the shortest.

    Raises:
        RequestError, TooLongError: Raised by ``prepare`` for the shortest prompt.
    """

    def fitting(left_out: int) -> PreparedPrompt | None:
        try:
            tried = prepare(left_out)
        except TooLongError:
            return None
        return tried if len(tried.ids) <= most_tokens else None

    if most_left_out < 1:
        return prepare(0)
    if (whole := fitting(0)) is not None:
        return whole
    low, fits, best = 1, most_left_out, prepare(most_left_out)
    while low < fits:
        middle = (low + fits) // 2
        if (tried := fitting(middle)) is not None:
            fits, best = middle, tried
        else:
            low = middle + 1
    return best
