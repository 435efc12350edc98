"""PLaMo 2's tokenizer (``tokenizer.ggml.model`` = ``plamo2``).

Of all ways to cut a text into tokens the one with the best sum of scores is taken; a character that no
token has costs much and becomes bytes. The work is done from the end of the text, and of equal ways the
one with the longer first token counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.spm import byte_tokens, token_border
from oxibonsai.tokenizer.vocabulary import BYTE, CONTROL, Metadata, Vocabulary

_UNKNOWN_COST = 10_000_000  # ten thousandths of a score, as all costs
_WORST_COST = 20_000_000  # from here on a token is not used
_MARK = "\ufeff"
_STEPS = 1024  # characters between two signs of life


class Plamo2:
    """Finds the best cut."""

    add_space_prefix = False
    composes = False

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        del metadata
        if len(vocabulary.scores) != len(vocabulary.texts):
            raise FormatError("tokenizer.ggml.scores is missing: PLaMo 2 needs one for each token")
        self._bytes = byte_tokens(vocabulary)
        missing = next((b for b in range(256) if b not in self._bytes), None)
        if missing is not None:
            raise FormatError(f"tokenizer.ggml.tokens has no byte token <0x{missing:02X}>")
        self._tokens: dict[str, tuple[int, int]] = {}  # id and cost
        table = zip(vocabulary.texts, vocabulary.types, vocabulary.scores, strict=True)
        for i, (text, kind, score) in enumerate(table):
            cost = -_rounded(score)
            if kind not in (BYTE, CONTROL) and text and cost < _WORST_COST:
                self._tokens[text] = (i, cost)
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[:2], set()).add(len(text))
        # By the first two characters, the longest first.
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        self._border = cache(lambda: token_border(self._tokens))
        longest = max((len(t.encode("utf-8", "surrogateescape")) for t in self._tokens), default=1)
        self.longest_piece = longest
        self.lost_bytes: bytes | None = None  # a byte order mark in front is no part of the text

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, piece by piece; none now and then in a long one.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        for piece in pieces(text.removeprefix(_MARK), self._border, bounded=bounded):
            costs = [0] * (len(piece) + 1)
            sizes = [1] * len(piece)
            for at in range(len(piece) - 1, -1, -1):
                self._choose(piece, at, costs, sizes)
                if at % _STEPS == 0:
                    yield []
            yield self._ids(piece, sizes)

    def _choose(self, text: str, at: int, costs: list[int], sizes: list[int]) -> None:
        """Set the cost of the text from here on, and how long its first token is."""
        best, best_size = math.inf, 1
        left = len(text) - at
        ways = self._lengths.get(text[at : at + 2], ())
        for size in (*ways, 1):
            found = self._tokens.get(text[at : at + size]) if size <= left else None
            if found is not None and costs[at + size] + found[1] < best:
                best, best_size = costs[at + size] + found[1], size
        unknown = costs[at + 1] + _UNKNOWN_COST
        if unknown < best:
            best, best_size = unknown, 0
        costs[at], sizes[at] = int(best), best_size

    def _ids(self, text: str, sizes: list[int]) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(text):
            size = sizes[at]
            if size == 0:
                ids += [self._bytes[b] for b in text[at].encode()]
                size = 1
            else:
                ids.append(self._tokens[text[at : at + size]][0])
            at += size
        return ids

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
        return text.encode("utf-8", "surrogateescape")


def _rounded(score: float) -> int:
    """Round to ten thousandths, halves away from zero."""
    return int(math.copysign(math.floor(abs(score * 1e4) + 0.5), score))
