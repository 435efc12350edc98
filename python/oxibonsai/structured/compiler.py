"""Compiles structures for one tokenizer and keeps the latest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from oxibonsai.errors import RequestError
from oxibonsai.structured.bridge import ll_tokenizer, special_texts
from oxibonsai.structured.constraint import Constraint
from oxibonsai.structured.grammar import OPTIONS, to_lark
from oxibonsai.structured.structure import Structure
from oxibonsai.structured.trial import COSTS, compile_elsewhere, readable
from oxibonsai.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

# A compiled grammar holds up to this many bytes for each byte of its text (measured on lists of
# literals, the worst), and this many to begin with.
_BYTES_PER_BYTE, _BYTES_TO_BEGIN = 128, 1 << 16

# One terminal each: their cost is in proportion to their text, which has a limit.
_NEED_NO_TRIAL = ("regex", "choice")


class StructureCompiler:
    """Makes constraints from structures; safe to call from several threads.

    Args:
        tokenizer: Of the model.
        vocab_size: Rows of the model's logits; at least the tokenizer's own.
        max_kept: Compiled structures that are kept.
        max_kept_bytes: Bytes that they may take, by an estimate from the length of their texts.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        *,
        max_kept: int = 64,
        max_kept_bytes: int = 256 << 20,
    ) -> None:
        if vocab_size < tokenizer.vocab_size:
            raise RequestError(
                f"vocab_size is {vocab_size}, less than the tokenizer's {tokenizer.vocab_size}"
            )
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_kept = max_kept
        self._max_kept_bytes = max_kept_bytes
        self._kept: OrderedDict[Structure, tuple[LLMatcher, int]] = OrderedDict()
        self._lock = threading.Lock()

    def constraint(self, structure: Structure) -> Constraint:
        """A constraint at the beginning of a text.

        A structure that is not kept takes from 2 ms (a regular expression) to 2 s (the largest
        schema that is taken); the first one also waits for the tokenizer (about a second).

        Raises:
            RequestError: The structure is wrong, not supported, or too costly; the message names
                the keyword or the place.
            UnsupportedError: The tokenizer names no token that ends a text.
        """
        with self._lock:
            kept = self._kept.get(structure)
            if kept is not None:
                self._kept.move_to_end(structure)
        if kept is None:
            kept = self._compile(structure)
            self._keep(structure, kept)
        matcher = kept[0].deep_copy()
        return Constraint(matcher, self._vocab_size, self._tokenizer.eos_ids)

    @property
    def kept(self) -> tuple[int, int]:
        """Structures that are kept, and the estimate of their bytes."""
        with self._lock:
            return len(self._kept), sum(size for _, size in self._kept.values())

    def _compile(self, structure: Structure) -> tuple[LLMatcher, int]:
        import llguidance

        tokenizer = ll_tokenizer(self._tokenizer, self._vocab_size)
        lark = to_lark(structure)
        if structure.kind not in _NEED_NO_TRIAL:
            lark = compile_elsewhere(
                structure.kind,
                lark,
                options=OPTIONS,
                special=special_texts(self._tokenizer),
                ends=self._tokenizer.eos_ids,
                vocab_size=self._vocab_size,
            )
        matcher = llguidance.LLMatcher(
            tokenizer,
            llguidance.LLMatcher.grammar_from_lark(lark + OPTIONS),
            log_level=0,
            limits=llguidance.LLParserLimits(**COSTS),
        )
        if matcher.is_error():
            error = readable(matcher.get_error())
            raise RequestError(f"{structure.kind} can't be compiled: {error}")
        return matcher, len(lark) * _BYTES_PER_BYTE + _BYTES_TO_BEGIN

    def _keep(self, structure: Structure, compiled: tuple[LLMatcher, int]) -> None:
        with self._lock:
            self._kept[structure] = compiled
            size = sum(size for _, size in self._kept.values())
            while len(self._kept) > self._max_kept or size > self._max_kept_bytes:
                _, (_, freed) = self._kept.popitem(last=False)
                size -= freed
