"""Breaks the lines of a text between words while it comes in pieces."""

from __future__ import annotations


class WordWrap:
    """Puts line breaks in place of spaces, so that the terminal's edge cuts no word.

    A word is held back until it is complete, at most a line.

    Args:
        width: Columns of the terminal.
    """

    def __init__(self, width: int) -> None:
        self._width = max(width, 1)
        self._column = 0  # behind what has been given back
        self._word = ""
        self._word_width = 0
        self._spaces = 0  # before the word

    def feed(self, piece: str) -> str:
        """Return the text that can be printed now."""
        from prompt_toolkit.utils import get_cwidth

        out = []
        for character in piece:
            width = get_cwidth(character)
            if character == " ":
                out.append(self._give())
                self._spaces += 1
                continue
            if character == "\n":
                out.append(self._give() + "\n")
                self._column = self._spaces = 0
                continue
            self._word += character
            self._word_width += width
            # Scripts with wide characters have no spaces: a line may break behind any of them.
            if width > 1 or self._word_width >= self._width:
                out.append(self._give())
        return "".join(out)

    def finish(self) -> str:
        """Return the last word."""
        return self._give()

    def _give(self) -> str:
        if not self._word:
            return ""
        gap = " " * self._spaces
        if self._column and self._column + self._spaces + self._word_width > self._width:
            gap, self._column = "\n", 0
        else:
            self._column += self._spaces
        text = gap + self._word
        self._column += self._word_width
        self._word, self._word_width, self._spaces = "", 0, 0
        return text
