"""Text with sequences of DNA in it (``tokenizer.ggml.model`` = ``hybriddna``).

Between ``<dna>`` and ``</dna>`` six letters are a token, whose text in the vocabulary ends with a mark
that tells it from a token of the same letters.
"""

from __future__ import annotations

from collections.abc import Iterator

from oxibonsai.tokenizer.byte_level import ByteLevelBpe
from oxibonsai.tokenizer.vocabulary import Metadata, Vocabulary

_OPEN, _CLOSE, _UNKNOWN = "<dna>", "</dna>", "<oov>"
_MARK = "\ue000"
_LETTERS = 6
_AT_ONCE = _LETTERS << 12


class HybridDna:
    """Byte-level BPE, and DNA by its letters."""

    add_space_prefix = False

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        self._text = ByteLevelBpe(vocabulary, metadata)
        ids = {t: i for i, t in enumerate(vocabulary.texts)}
        self._tags = (ids.get(_OPEN), ids.get(_CLOSE), ids.get(_UNKNOWN))
        self._sequences = {
            t.removesuffix(_MARK).encode("utf-8", "surrogateescape"): i
            for t, i in ids.items()
            if t.endswith(_MARK)
        }
        self.longest_piece = max(self._text.longest_piece, len(_CLOSE))
        self.lost_bytes = self._text.lost_bytes
        self.composes = self._text.composes

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        opened, closed, unknown = self._tags
        while text:
            if opened is None or closed is None or unknown is None:
                before, found, text = text, "", ""
            else:
                before, found, text = text.partition(_OPEN)
            if before:
                yield from self._text.encode_text(
                    before, after_special=after_special, bounded=bounded
                )
            if found and opened is not None and closed is not None and unknown is not None:
                yield [opened]
                sequence, end, text = text.partition(_CLOSE)
                yield from self._sequence_ids(sequence.encode(), unknown)
                if end:
                    yield [closed]

    def _sequence_ids(self, sequence: bytes, unknown: int) -> Iterator[list[int]]:
        for start in range(0, len(sequence), _AT_ONCE):
            part = sequence[start : start + _AT_ONCE].upper()
            letters = (part[i : i + _LETTERS] for i in range(0, len(part), _LETTERS))
            # The last token is filled up.
            yield [self._sequences.get(s.ljust(_LETTERS, b"A"), unknown) for s in letters]

    def piece_bytes(self, text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
        return self._text.piece_bytes(text.removesuffix(_MARK))
