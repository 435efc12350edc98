"""Unicode's composed form (NFC) of a text, and which characters it is made of."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

# A character, and the index of the one in the text that it stands for.
Spelled = tuple[str, int]

_FIRST_CHANGED = "\u0300"  # characters before it are their own composed form


def shrinkage(composes: bool) -> int:
    """Return how many bytes of a text become one at most: three, as in a Hangul syllable of jamo."""
    return 3 if composes else 1


def composed(text: str) -> Iterator[Spelled]:
    """Yield the characters of a text's composed form."""
    start = 0
    while start < len(text):
        end = _end_of_cluster(text, start)
        form = unicodedata.normalize("NFC", text[start:end])
        yield form[0], start
        # What is left of the marks stands at the end.
        shift = end - len(form)
        for i in range(1, len(form)):
            yield form[i], max(start, shift + i)
        start = end


def _end_of_cluster(text: str, start: int) -> int:
    """Return where what composes with the character at ``start`` ends."""
    end = start + 1
    while end < len(text) and text[end] >= _FIRST_CHANGED:
        if unicodedata.combining(unicodedata.normalize("NFD", text[end])[0]) == 0:
            apart = unicodedata.normalize("NFC", text[start:end]), text[end]
            together = unicodedata.normalize("NFC", "".join(apart))
            if together == apart[0] + unicodedata.normalize("NFC", apart[1]):
                break
        end += 1
    return end
