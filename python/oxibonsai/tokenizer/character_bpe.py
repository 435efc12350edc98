"""BPE of characters with byte fallback: Gemma 4, Sarvam, and the ``whitespace`` tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.composition import shrinkage
from oxibonsai.tokenizer.merges import merge, merging_tokenizer
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.pre_tokenizers import PreTokenizer
from oxibonsai.tokenizer.vocabulary import Metadata, Vocabulary, flag

_SPACE = "\u2581"
_LINES = re.compile(r"\n+|[^\n]+")
WHITE_SPACE = re.compile(r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


class _Lower(dict[int, str]):
    def __missing__(self, code: int) -> str:
        small = chr(code).lower()
        # The one character whose small letter has two is U+0130.
        self[code] = small = small if len(small) == 1 else small[0]
        return small


_LOWER = _Lower()


def _lower(text: str) -> str:
    """Return the text in small letters, one for one; what stands around a letter makes no difference."""
    return text.translate(_LOWER)


class CharacterBpe:
    """Splits, then merges characters by rank.

    Args:
        vocabulary: The tokens.
        metadata: Of the file.
        kind: The pre-tokenizer.
        drops_spaces: White space is no part of a text, and capital letters become small ones where
            the file says so (``tokenizer.ggml.model`` = ``whitespace``).
    """

    add_space_prefix = False

    def __init__(
        self,
        vocabulary: Vocabulary,
        metadata: Metadata,
        kind: PreTokenizer,
        *,
        drops_spaces: bool = False,
    ) -> None:
        known = {t: i for i, t in enumerate(vocabulary.texts)}
        found = sum(f"<0x{b:02X}>" in known for b in range(256))
        if found not in (0, 256):
            raise FormatError(
                f"tokenizer.ggml.tokens has {found} of the 256 byte tokens like <0x0A>"
            )
        self._kind = kind
        self._known = known
        self._fast = merging_tokenizer(
            vocabulary,
            metadata,
            splits=kind.splits,
            ignore_merges=kind.ignore_merges,
            byte_fallback=True,
            composes=kind.composes,
        )
        self.composes = kind.composes
        self._drops_spaces = drops_spaces
        self._lowers = drops_spaces and flag(metadata, "tokenizer.ggml.normalizer.lowercase", False)
        longest = max(len(t.encode("utf-8", "surrogateescape")) for t in known)
        self.longest_piece = longest * shrinkage(kind.composes)
        self.lost_bytes: bytes | None = b"" if found and not drops_spaces else None
        self._numbers = list(range(len(vocabulary.texts)))

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        for piece in pieces(text, lambda: self._kind.border, bounded=bounded):
            if self._kind.escapes_spaces:
                piece = piece.replace(" ", _SPACE)
            if self._drops_spaces:
                words = filter(None, WHITE_SPACE.split(_lower(piece) if self._lowers else piece))
                for word in words:
                    yield merge(self._fast, word, self._numbers)
            elif self._kind.whole_newlines:
                for line in _LINES.findall(piece):
                    whole = self._known.get(line) if line[0] == "\n" else None
                    yield merge(self._fast, line, self._numbers) if whole is None else [whole]
            else:
                yield merge(self._fast, piece, self._numbers)

    def piece_bytes(self, text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
        if self._kind.escapes_spaces:
            text = text.replace(_SPACE, " ")
        return text.encode("utf-8", "surrogateescape")
