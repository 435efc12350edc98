"""Compiles structures for one tokenizer, one costly one at a time, and keeps the latest."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from oxibonsai.errors import RequestError
from oxibonsai.serial_queue import SerialQueue
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
# For how long a structure is refused that a text could not follow to its end.
_GIVEN_UP_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class Compiled:
    """A structure that texts can follow; it is found again as long as somebody holds it.

    Attributes:
        matcher: At the beginning of a text; to be copied.
        size: Bytes that it takes, by an estimate.
    """

    matcher: LLMatcher
    size: int


@dataclass(frozen=True, eq=False)
class _Refused:
    """A structure that can't be compiled; kept, so that a second try costs nothing."""

    reason: str
    size: int


class StructureCompiler:
    """Makes constraints from structures; safe to call from several threads.

    Args:
        tokenizer: Of the model.
        vocab_size: Rows of the model's logits; at least the tokenizer's own.
        max_kept: Compiled structures that are kept.
        max_kept_bytes: Bytes that they may take, by an estimate from the length of their texts.
        max_waiting: How many structures may wait to be compiled; more are refused.

    Attributes:
        queue: Where they wait for each other.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        *,
        max_kept: int = 64,
        max_kept_bytes: int = 256 << 20,
        max_waiting: int = 64,
    ) -> None:
        if vocab_size < tokenizer.vocab_size:
            raise RequestError(
                f"vocab_size is {vocab_size}, less than the tokenizer's {tokenizer.vocab_size}"
            )
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_kept = max_kept
        self._max_kept_bytes = max_kept_bytes
        self._kept: OrderedDict[Structure, Compiled | _Refused] = OrderedDict()
        # What a text of a tenant could not follow: nobody else's are refused for it.
        self._given_up: OrderedDict[tuple[str, Structure], tuple[float, str]] = OrderedDict()
        self._held: WeakValueDictionary[Structure, Compiled] = WeakValueDictionary()
        self.queue = SerialQueue("new structures", max_waiting)
        self._lock = threading.Lock()

    def constraint(
        self, structure: Structure, look: Callable[[], None] | None = None, tenant: str = ""
    ) -> Constraint:
        """Return a constraint at the beginning of a text; see :meth:`compiled`."""
        compiled = self.compiled(structure, look, tenant)
        return self._follow(compiled, partial(self._give_up, structure, tenant))

    def compiled(
        self, structure: Structure, look: Callable[[], None] | None = None, tenant: str = ""
    ) -> Compiled:
        """Return a structure, ready to be followed.

        One that is not kept takes from 2 ms (a regular expression) to 2 s (the largest schema that
        is taken), and schemas and grammars wait for those before them; the first one also waits for
        the tokenizer (about a second).

        Args:
            structure: What a text has to look like.
            look: Called some times in a second meanwhile; what it raises ends the work.
            tenant: Whose it is.

        Raises:
            RequestError: The structure is wrong, not supported, or too costly, or an earlier text of
                the tenant could not follow it to its end; the message names the keyword or the place.
            UnsupportedError: The tokenizer names no token that ends a text.
            CapacityError: Too many structures wait, or the machine is too busy.
        """
        with self._lock:
            given_up = self._given_up.get((tenant, structure))
        if given_up is not None and time.monotonic() < given_up[0]:
            raise RequestError(given_up[1])
        found = self._find(structure)
        if found is None and not _needs_trial(structure):
            found = self._try(structure, look)
        elif found is None:
            with self.queue.turn(look):
                # An earlier request in the queue may have compiled the same.
                found = self._find(structure) or self._try(structure, look)
        if isinstance(found, _Refused):
            raise RequestError(found.reason)
        return found

    @property
    def kept(self) -> tuple[int, int]:
        """Return the structures that are kept, and the estimate of their bytes."""
        with self._lock:
            return len(self._kept), sum(kept.size for kept in self._kept.values())

    def _find(self, structure: Structure) -> Compiled | _Refused | None:
        with self._lock:
            kept = self._kept.get(structure)
            if kept is not None:
                self._kept.move_to_end(structure)
            return kept or self._held.get(structure)

    def _try(self, structure: Structure, look: Callable[[], None] | None) -> Compiled | _Refused:
        found: Compiled | _Refused
        try:
            found = self._compile(structure, look)
        except RequestError as e:
            found = _Refused(str(e), len(structure.text) + _BYTES_TO_BEGIN)
        self._keep(structure, found)
        return found

    def _compile(self, structure: Structure, look: Callable[[], None] | None) -> Compiled:
        import llguidance

        tokenizer = ll_tokenizer(self._tokenizer, self._vocab_size)
        lark = to_lark(structure)
        if _needs_trial(structure):
            lark = compile_elsewhere(
                structure.kind,
                lark,
                options=OPTIONS,
                special=special_texts(self._tokenizer),
                ends=self._tokenizer.eos_ids,
                vocab_size=self._vocab_size,
                look=look,
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
        compiled = Compiled(matcher, len(lark) * _BYTES_PER_BYTE + _BYTES_TO_BEGIN)
        try:
            self._follow(compiled, lambda _: None).mask()
        except RequestError as e:
            # No text can begin with it, so trying again would not help.
            raise RequestError(f"{structure.kind} is too complex for this model: {e}") from e
        return compiled

    def _follow(self, compiled: Compiled, give_up: Callable[[str], None]) -> Constraint:
        matcher = compiled.matcher.deep_copy()
        return Constraint(matcher, self._vocab_size, self._tokenizer.eos_ids, give_up)

    def _give_up(self, structure: Structure, tenant: str, reason: str) -> None:
        """Refuse a structure for a minute, so that asking again costs nothing.

        Another text may be able to follow it, so it is not refused for ever.
        """
        with self._lock:
            self._given_up[tenant, structure] = time.monotonic() + _GIVEN_UP_SECONDS, reason
            while len(self._given_up) > self._max_kept:
                self._given_up.popitem(last=False)

    def _keep(self, structure: Structure, found: Compiled | _Refused) -> None:
        with self._lock:
            self._kept[structure] = found
            if isinstance(found, Compiled):
                self._held[structure] = found
            size = sum(kept.size for kept in self._kept.values())
            while len(self._kept) > self._max_kept or size > self._max_kept_bytes:
                _, freed = self._kept.popitem(last=False)
                size -= freed.size


def _needs_trial(structure: Structure) -> bool:
    return structure.kind not in _NEED_NO_TRIAL and structure != Structure.json_object()
