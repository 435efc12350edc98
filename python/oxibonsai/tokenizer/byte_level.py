"""Byte-level BPE (``tokenizer.ggml.model`` = ``gpt2``): a text is split, then its bytes are merged."""

from __future__ import annotations

from collections.abc import Iterator

from oxibonsai.tokenizer.composition import shrinkage
from oxibonsai.tokenizer.merges import merge, merging_tokenizer
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.pre_tokenizers import pre_tokenizer
from oxibonsai.tokenizer.vocabulary import Metadata, Vocabulary


def _byte_alphabet() -> dict[int, str]:
    """Return the printable character that stands for each byte (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    characters = {b: chr(b) for b in printable}
    return characters | {b: chr(256 + i) for i, b in enumerate(rest)}


BYTE_OF = {c: b for b, c in _byte_alphabet().items()}


class ByteLevelBpe:
    """Splits, then merges bytes by rank."""

    add_space_prefix = False

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        kind = pre_tokenizer(metadata)
        self._border = kind.border
        self._fast = merging_tokenizer(
            vocabulary,
            metadata,
            splits=kind.splits,
            ignore_merges=kind.ignore_merges,
            byte_fallback=False,
            composes=kind.composes,
        )
        known = set(vocabulary.texts)
        lost = bytes(b for c, b in BYTE_OF.items() if c not in known)
        self.composes = kind.composes
        self.longest_piece = max(map(len, vocabulary.texts)) * shrinkage(kind.composes)
        self.lost_bytes: bytes | None = None if lost and kind.composes else lost
        self._numbers = list(range(len(vocabulary.texts)))

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        for piece in pieces(text, lambda: self._border, bounded=bounded):
            yield merge(self._fast, piece, self._numbers)

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
        try:
            return bytes(BYTE_OF[c] for c in text)
        except KeyError:
            return text.encode("utf-8", "surrogateescape")
