"""The interface of tokenization algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Algorithm(Protocol):
    """Text without special tokens to ids, and a token's text to bytes.

    Attributes:
        add_space_prefix: Whether a text gets a space in front, which is no part of it.
        composes: Whether a text is brought to Unicode's composed form (NFC) first.
        longest_piece: Bytes of a text in one of its tokens at most.
        lost_bytes: Those that the vocabulary lacks, which get lost; None: there is no telling.
    """

    @property
    def add_space_prefix(self) -> bool: ...

    @property
    def composes(self) -> bool: ...

    @property
    def longest_piece(self) -> int: ...

    @property
    def lost_bytes(self) -> bytes | None: ...

    def encode_text(
        self, text: str, *, after_special: bool, bounded: bool
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text without special tokens, piece by piece; none now and then in a long one.

        Args:
            text: Any text.
            after_special: Whether it starts the input or follows a special token.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """

    def piece_bytes(self, text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
