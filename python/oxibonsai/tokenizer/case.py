"""Small letters for capital ones, one character for one."""

from __future__ import annotations


class _Lower(dict[int, str]):
    def __missing__(self, code: int) -> str:
        small = chr(code).lower()
        # The one character whose small letter has two is U+0130.
        self[code] = small = small if len(small) == 1 else small[0]
        return small


_LOWER = _Lower()


def lower(text: str) -> str:
    """Return the text in small letters; what stands around a letter makes no difference."""
    return text.translate(_LOWER)
