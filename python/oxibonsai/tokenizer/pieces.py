"""Long texts in pieces, each with the tokens that it has inside of the whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from oxibonsai.errors import RequestError

# Told between two pieces how many tokens there are so far; what it raises ends the work.
Watch = Callable[[int], None]

PIECE = 1 << 13  # characters that a piece has at least, where the text is longer
# Characters of a piece at most, where somebody watches: no tokenizer stops in the middle of one.
LONGEST_RUN = 1 << 17


def pieces(text: str, border: Callable[[], re.Pattern[str]], *, bounded: bool) -> Iterator[str]:
    """Yield the text, cut at some of its borders.

    Args:
        text: Any text.
        border: Makes what matches the empty text where no token reaches over and nothing on one
            side depends on the other.
        bounded: Refuse a text whose borders are too far apart.

    Raises:
        RequestError: A piece would be longer than ``LONGEST_RUN``.
    """
    start = 0
    while len(text) - start > PIECE:
        found = border().search(text, start + PIECE, start + LONGEST_RUN)
        if found is None and len(text) - start > LONGEST_RUN:
            if bounded:
                raise RequestError(
                    f"the text has more than {LONGEST_RUN} characters from index {start} on without "
                    "a place where its tokens can be told apart, such as a space after a word: put "
                    "some in"
                )
            found = border().search(text, start + LONGEST_RUN - 1)
        if found is None:
            break
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]
