"""Text of a growing list of tokens, piece by piece."""

from __future__ import annotations

import codecs

from oxibonsai.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Turns ids into text as they come, never cutting a character.

    The pieces that ``feed`` and ``flush`` return, joined, are ``tokenizer.decode`` of all ids.

    Args:
        tokenizer: Of the ids.
        skip_special: Leave control tokens out.
        continues: The ids go on after a prompt, so a leading space is part of the text.
        visible: Control tokens that are not left out.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        continues: bool = False,
        visible: frozenset[int] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids - visible if skip_special else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip_space = tokenizer.strips_leading_space and not continues

    def feed(self, token: int) -> str:
        """Return the text that is complete with this token; often empty in the middle of a character."""
        if token in self._skipped:
            return ""
        piece = self._tokenizer.token_bytes(token)
        if self._strip_space and piece:
            piece = piece.removeprefix(b" ")
            self._strip_space = False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Return the rest of the text: a replacement character where the last one is incomplete."""
        return self._decoder.decode(b"", final=True)
