"""JSON texts that are whole before their limit of tokens is reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.sequence import TokenConstraint
from oxibonsai.tokenizer import Tokenizer

Mask = npt.NDArray[np.uint32]

_BRACKETS, _OPENING = frozenset(b"]}"), frozenset(b"[{")
# An end is measured with the longest tokens; the model may write it with shorter ones.
_SHARE, _SPARE = 2, 8
_LONGEST_END = 256  # tokens; no longer end is prepared for
_MOST_STEPS = 1_024  # that the measurements of one text take: each is a mask


@dataclass(frozen=True)
class ClosingTokens:
    """The tokens of a vocabulary by their part in JSON texts.

    Attributes:
        brackets: Tokens of closing brackets alone, and ends of the text; a bit each.
        quotes: Tokens of a quotation mark and closing brackets; a bit each.
        both: Bits of the tokens ``]`` and ``}``; only inside of a string may either come next.
        opening: Ids of tokens with an opening bracket.
        lengths: int32 [vocabulary rows], of each token in bytes.
    """

    brackets: Mask
    quotes: Mask
    both: tuple[Mask, Mask]
    opening: frozenset[int]
    lengths: npt.NDArray[np.int32]

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int) -> ClosingTokens:
        """Return those of a tokenizer.

        Args:
            tokenizer: The model's.
            vocab_size: Rows of the model's logits.
        """
        rows = -(-vocab_size // 32) * 32
        texts = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]

        def bits(ids: Iterable[int]) -> Mask:
            chosen = np.zeros(rows, dtype=np.uint8)
            chosen[list(ids)] = 1
            return np.packbits(chosen, bitorder="little").view(np.uint32)

        brackets = [i for i, text in enumerate(texts) if text and _BRACKETS.issuperset(text)]
        quotes = [i for i, t in enumerate(texts) if t[:1] == b'"' and _BRACKETS.issuperset(t[1:])]
        lengths = np.zeros(rows, dtype=np.int32)
        lengths[: len(texts)] = [len(text) for text in texts]
        return cls(
            bits([*brackets, *tokenizer.eos_ids]),
            bits(quotes),
            (
                bits(i for i in brackets if texts[i] == b"]"),
                bits(i for i in brackets if texts[i] == b"}"),
            ),
            frozenset(i for i, text in enumerate(texts) if not _OPENING.isdisjoint(text)),
            lengths,
        )

    def closing(self, mask: Mask) -> Mask:
        """Return those of some tokens that close a string or bracket; all of them if none does."""
        inside_string = all((mask & bit).any() for bit in self.both)
        for tokens in (self.quotes,) if inside_string else (self.brackets, self.quotes):
            closing = mask & tokens
            if closing.any():
                closing.flags.writeable = False
                return closing
        return mask


class ClosingConstraint:
    """A constraint that has a JSON text come to its end within a number of tokens.

    Once no more tokens are left than the end needs, strings and brackets are closed wherever the
    structure allows it. A text that needs more tokens than there are is cut all the same.

    Args:
        inner: The structure of the text, and whatever else it is constrained by.
        limit: Tokens of the text, those of its reasoning among them.
        tokens: Of the model's vocabulary.
    """

    def __init__(self, inner: TokenConstraint, limit: int, tokens: ClosingTokens) -> None:
        self._inner = inner
        self._left = limit
        self._tokens = tokens
        self._end = 0  # tokens, when it was last measured
        self._growth = 0  # the most that one opening bracket has added to it
        self._opened = True  # since the end was measured
        self._steps = _MOST_STEPS
        self._closing: bool | None = None  # None: not known for the next token

    def mask(self) -> Mask | None:
        """Return the tokens that may come next; near the limit those that close, if there are any."""
        mask = self._inner.mask()
        if self._closing is None:
            self._closing = mask is not None and self._is_closing()
        if mask is None or not self._closing:
            return mask
        return self._tokens.closing(mask)

    def mask_beside(self, banned: frozenset[int]) -> Mask | None:
        """Return :meth:`mask`, or all that may come next where nothing of it is left beside bans."""
        mask = self.mask()
        if mask is None:
            return None
        left = mask.copy()
        for token in banned:
            left[token // 32] &= ~np.uint32(1 << token % 32)
        return mask if left.any() else self._inner.mask()

    def banned(self) -> frozenset[int]:
        """Return what the constraint inside bans."""
        return self._inner.banned()

    def forced(self) -> list[int]:
        """Return what the constraint inside forces."""
        return self._inner.forced()

    def accept(self, token: int) -> None:
        """Move on by a token."""
        self._inner.accept(token)
        self._left -= 1
        self._opened = self._opened or token in self._tokens.opening
        if not self._closing:  # once it closes, it goes on to
            self._closing = None

    @property
    def decides_end(self) -> bool:
        """Whether there is a structure that does."""
        return self._inner.decides_end

    @property
    def may_end(self) -> bool:
        """Whether the text so far may be the whole."""
        return self._inner.may_end

    @property
    def finished(self) -> bool:
        """Whether nothing but the end of the text may follow."""
        return self._inner.finished

    def fork(self) -> ClosingConstraint:
        """Return a second text that goes on from here on its own."""
        copy = ClosingConstraint(self._inner.fork(), self._left, self._tokens)
        copy._end, copy._growth, copy._opened = self._end, self._growth, self._opened
        copy._steps, copy._closing = self._steps, self._closing
        return copy

    def _is_closing(self) -> bool:
        """Return whether the tokens that are left are needed for the end.

        What is opened must be closed, so the end is measured again behind each opening bracket, and a
        further item of an array may need as much as the largest so far. The measure is in steps, not in
        time, so that a text has the same bytes on any machine.
        """
        if self._left > _SHARE * 2 * _LONGEST_END + _SPARE:
            return False
        if self._opened:
            before, self._end = self._end, self._measured_end()
            self._growth = max(self._growth, self._end - before) if before else 0
            self._opened = False
        if self._left > self._needed:
            return False
        self._end = self._measured_end()  # less may be left than behind the last bracket
        return self._left <= self._needed

    @property
    def _needed(self) -> int:
        return _SHARE * (self._end + self._growth) + _SPARE

    def _measured_end(self) -> int:
        """Return how many tokens bring the text to its end: those that close, else the longest."""
        end = self._inner.fork()
        for count in range(_LONGEST_END):
            if self._steps == 0:
                return self._end
            self._steps -= 1
            if forced := end.forced():
                end.accept(forced[0])
                continue
            mask = end.mask()
            if end.finished or mask is None:
                return count
            allowed = self._tokens.closing(mask)
            ids = np.flatnonzero(np.unpackbits(allowed.view(np.uint8), bitorder="little"))
            if len(ids) == 0:
                return count
            token = int(ids[np.argmax(self._tokens.lengths[ids])])
            if end.may_end and self._tokens.lengths[token] == 0:
                return count
            end.accept(token)
        return _LONGEST_END
