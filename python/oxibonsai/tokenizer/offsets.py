"""Where the tokens of a text stand in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from oxibonsai.errors import UnsupportedError
from oxibonsai.tokenizer.composition import Spelled

Offset = tuple[int, int]  # first character of a token in its text and the one after the last


def find_offsets(pieces: Iterable[bytes], spelling: Iterable[Spelled]) -> list[Offset]:
    """Return the characters of a text that each of its tokens touches.

    Args:
        pieces: The bytes that each token stands for.
        spelling: The characters of the text that was tokenized, as its tokens spell them.

    Raises:
        UnsupportedError: The tokens don't spell the text.
    """
    characters, places = [], []
    for character, place in spelling:
        characters.append(character)
        places.append(place)
    data = "".join(characters).encode()
    # First byte of each character, and the end.
    starts = [0, *accumulate(len(c.encode()) for c in characters)]
    places.append(places[-1] + 1 if places else 0)
    found, at = [], 0
    for piece in pieces:
        if not data.startswith(piece, at) and piece[:1] == b" ":
            piece = piece[1:]  # a space that SentencePiece puts before a text
        if not data.startswith(piece, at):
            raise UnsupportedError(
                "places of tokens in a text need a tokenizer whose tokens spell the text; this "
                "model's change it"
            )
        first = bisect_right(starts, at) - 1
        at += len(piece)
        last = bisect_right(starts, at - 1) if piece else first
        found.append((places[first], places[last - 1] + 1 if piece else places[first]))
    return found
