"""One sequence: its tokens, pages, sampler, and the protocols of its constraint and speculator."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.speculation.lookahead import Lookahead
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.sampling import SamplingParams
from oxibonsai.sampling.sampler import Sampler, TokenLogprobs

if TYPE_CHECKING:
    from oxibonsai.engine.context_shift import ContextShift, Shifted
    from oxibonsai.engine.text import TextOutput
    from oxibonsai.structured import Structure
    from oxibonsai.vision import PlacedImage
    from oxibonsai.vision.prompt_images import PromptImages


class TokenConstraint(Protocol):
    """Says, token by token, how one text may go on; one thread at a time uses it.

    A structured output, a limit on reasoning and any combination of such rules looks like this to
    the engine, which knows nothing else of them.
    """

    def mask(self) -> npt.NDArray[np.uint32] | None:
        """Return the tokens that may come next, uint32 [ceil(vocab / 32)], a bit each; None: all."""
        ...

    def banned(self) -> frozenset[int]:
        """Return the tokens that may not come next even if the mask has them."""
        ...

    def forced(self) -> list[int]:
        """Return the tokens that come next whatever the model says, in this order."""
        ...

    def accept(self, token: int) -> None:
        """Move on by a generated token that does not end the text."""
        ...

    @property
    def decides_end(self) -> bool:
        """Whether it says where the text ends.

        End-of-text tokens then count even if the parameters ignore them, and a text that was cut
        is incomplete.
        """
        ...

    @property
    def may_end(self) -> bool:
        """Whether the text so far may be the whole."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing but the end of the text may follow."""
        ...

    def fork(self) -> TokenConstraint:
        """Return a second text that goes on from here on its own."""
        ...


# Makes the constraint of a new sequence around that of its structure, if it has one.
Constrain = Callable[[TokenConstraint | None], TokenConstraint]


Speculate = Callable[[], "Speculator | None"]


class Wanted(NamedTuple):
    """A proposal that is asked for.

    Attributes:
        sequence: Whose next tokens are proposed.
        most: How many it may get.
        speculator: Proposes them.
    """

    sequence: Sequence
    most: int
    speculator: Speculator


class Proposer(Protocol):
    """Proposes the next tokens of several sequences, which share its passes."""

    def propose(self, wanted: list[Wanted]) -> list[list[int]]:
        """Return tokens for each of the sequences, at most as many as it may get."""
        ...


class StatesReader(Protocol):
    """Reads the hidden states that the model's steps give for one sequence."""

    @property
    def taps(self) -> tuple[int, ...]:
        """Return which hidden states it reads, see :meth:`Model.run_with_hidden_states`."""
        ...

    def follow(self, sequence: Sequence, first: int, states: npt.NDArray[np.float32]) -> None:
        """Take the hidden states of tokens that are part of the text.

        Args:
            sequence: Their sequence.
            first: The position of the first of them.
            states: float32 [rows, taps * hidden].
        """
        ...

    def keep(self, sequence: Sequence, position: int) -> None:
        """Keep what is known of the text up to a position, at which the prefix cache goes on."""
        ...


class Speculator(Protocol):
    """Proposes the next tokens of one sequence.

    Attributes:
        lookahead: How many to propose, and how many were right so far.
    """

    lookahead: Lookahead

    @property
    def shared(self) -> Proposer | None:
        """Proposes for this sequence together with others; None: :meth:`propose` does it alone."""
        ...

    @property
    def reader(self) -> StatesReader | None:
        """Return what wants the sequence's hidden states; None: nothing does."""
        ...

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """Return at most ``most`` tokens that may come next; none where there is no good guess."""
        ...

    def close(self) -> None:
        """Release what it holds: the sequence has ended."""
        ...


@dataclass(frozen=True)
class Options:
    """Options of a sequence beyond sampling.

    Attributes:
        structure: What the text must match.
        constrain: Makes the constraint of the text out of that of the structure; None: the structure
            is all that constrains it.
        shift: What to keep when the context is full; None: the text ends there.
        speculate: Makes what proposes tokens, which the model then checks; nothing does if that is None.
        adapter: A key of :meth:`Engine.adapter_key`; empty: the adapters that the model was loaded with.
            Part of what makes two prefixes equal.
        visible: Control tokens whose text is part of the output.
        tenant: Whose it is: engines divide their capacity between tenants.
        cache_salt: What a sequence must have too to share the keys and values that this one computes;
            empty: share with all that have none.
        images: Images, and the tokens of the prompt that stand for their rows, in order.
        borders: Positions of the prompt where turns of a conversation begin, from which a later prompt may
            go on in another way.
        uncounted: How many of the first tokens of the prompt no penalty counts: they stand for embeddings,
            or an encoder reads them.
    """

    structure: Structure | None = None
    constrain: Constrain | None = None
    shift: ContextShift | None = None
    speculate: Speculate | None = None
    adapter: str = ""
    visible: frozenset[int] = frozenset()
    tenant: str = ""
    cache_salt: str = ""
    images: tuple[PlacedImage, ...] = ()
    borders: tuple[int, ...] = ()
    uncounted: int = 0

    @property
    def cache_root(self) -> bytes:
        """Return the hash of what keys and values depend on beside the tokens; see :class:`KvCache`."""
        if not self.cache_salt:
            return self.adapter.encode()
        # Longer than the hash of a page, so that no salt can be made to look like one.
        parts = f"{len(self.adapter)}:{self.adapter}{self.cache_salt}"
        return hashlib.blake2b(parts.encode(), digest_size=32).digest()


@dataclass
class Times:
    """When things happened, in seconds of ``time.perf_counter``."""

    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None  # first step with a row of this sequence
    first_token: float | None = None
    finished: float | None = None


class Sequence:
    """State of a request inside the engine.

    Attributes:
        tokens: The context: prompt and generated tokens, less what a context shift left out.
        images: The images that some tokens of the prompt stand for; None: there are none.
        encoded: How many of the first tokens go through an encoder, whole; 0: the model has none.
        history: Prompt and all generated tokens.
        num_prompt_tokens: How many of the history are the prompt.
        num_computed: How many of ``tokens`` have keys and values in the cache.
        num_cached: How many of the prompt were found in the cache.
        stops: Positions where its recurrent state is kept: see :meth:`KvCache.stops`.
        table: Pages, and the slot of recurrent state.
        constraint: How the text may go on; None: in any way.
        logprobs: Of each generated token, where the parameters ask for them.
        finish_reason: None while it runs; ``"stop"`` at the end of the text, ``"length"`` at a limit,
            ``"cancelled"``, ``"error"``.
        error: What went wrong with this sequence alone: its structure became too complex, or no
            page was left for it.
        matched_stop: The stop string or token id that ended it.
        shifts: What context shifts left out.
        draft: Proposed tokens that the next step checks.
        asked: How many a proposer that takes its time for them was asked for; else as many as it gave.
        changed: Set when the sequence has new tokens or has ended; whoever waits for it clears it.
        paused: Gives up its pages at the next step and waits until this is taken back; what it has
            computed may still be found in the cache then.
        parent: A sequence with the same prompt, whose pages are taken over once it is computed.
    """

    def __init__(
        self,
        prompt: list[int],
        params: SamplingParams,
        options: Options,
        text: TextOutput | None = None,
        constraint: TokenConstraint | None = None,
        breakers: frozenset[int] = frozenset(),
        bad_words: tuple[tuple[int, ...], ...] = (),
        images: PromptImages | None = None,
        encoded: int = 0,
        stops: tuple[int, ...] = (),
    ) -> None:
        self.tokens = list(prompt)
        self.encoded = encoded
        self.images = images
        self.history = self.tokens  # one list until a context shift
        self.num_prompt_tokens = len(prompt)
        self.num_computed = 0
        self.num_cached = 0
        self.stops = stops
        self.table = PageTable()
        self.params = params
        self.options = options
        self.sampler = Sampler(params, breakers, bad_words)
        self.text_output = text
        self.constraint = constraint
        self.speculator = None if options.speculate is None else options.speculate()
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: str | None = None
        self.error: OxiBonsaiError | None = None
        self.matched_stop: str | int | None = None
        self.shifts: list[Shifted] = []
        self.draft: list[int] = []
        self.asked = 0
        self.parent: Sequence | None = None
        self.cancelled = False
        self.paused = False
        self.times = Times()
        self.changed = threading.Event()

    @property
    def cache_ids(self) -> list[int]:
        """The context as the prefix cache knows it: images by their content."""
        if self.images is None:
            return self.tokens
        known = self.images.cache_ids
        known += self.tokens[len(known) :]
        return known

    @property
    def cache_root(self) -> bytes:
        """Return the hash of what keys and values depend on beside earlier tokens; see :class:`KvCache`.

        Behind an encoder, which sees its tokens from both sides, that is all that it has read.
        """
        root = self.options.cache_root
        if self.encoded == 0:
            return root
        parts = repr((root, self.tokens[: self.encoded]))
        return hashlib.blake2b(parts.encode(), digest_size=32).digest()

    @property
    def counted_tokens(self) -> list[int]:
        """Return what penalties count: prompt and generated tokens, less those that are left out."""
        first = self.options.uncounted
        return self.history[first:] if first else self.history

    @property
    def num_generated(self) -> int:
        """Return tokens after the prompt."""
        return len(self.history) - self.num_prompt_tokens

    @property
    def generated(self) -> list[int]:
        """Return tokens after the prompt."""
        return self.history[self.num_prompt_tokens :]

    @property
    def text(self) -> str:
        """Generated text that is safe to show: no cut character, no beginning of a stop string."""
        return "" if self.text_output is None else self.text_output.text

    @property
    def num_waiting(self) -> int:
        """Return the tokens that are not computed yet, a draft left aside."""
        return len(self.tokens) - self.num_computed

    @property
    def states_reader(self) -> StatesReader | None:
        """The reader of the sequence's hidden states; None where nothing reads them."""
        return None if self.speculator is None else self.speculator.reader

    @property
    def decodes(self) -> bool:
        """Whether the next step gives it a token, and is no part of a prompt."""
        return self.num_waiting == 1

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason is not None

    @property
    def complete(self) -> bool:
        """Whether the text is one that its constraint accepts; one cut by a stop string is not."""
        if self.constraint is None or not self.constraint.decides_end:
            return True
        return not isinstance(self.matched_stop, str) and self.constraint.may_end

    @property
    def mean_logprob(self) -> float:
        """Mean of the tokens' log-probabilities, where the parameters ask for them; 0 for no tokens."""
        return sum(t.logprob for t in self.logprobs) / max(len(self.logprobs), 1)

    def raise_error(self) -> None:
        """Raise what has ended it, where that was an error."""
        if self.error is not None:
            raise self.error

    def finish(self, reason: str, matched: str | int | None = None) -> None:
        """End the text. The reason is set last, so whoever reads it finds the text complete."""
        if self.text_output is not None:
            self.text_output.finish()
        self.matched_stop = matched
        self.finish_reason = reason

    def append(self, token: int) -> None:
        """Add a generated token."""
        self.tokens.append(token)
        if self.history is not self.tokens:
            self.history.append(token)

    def ends_with(self, token: int, eos_ids: frozenset[int]) -> bool:
        """Return whether a generated token ends the text."""
        ignore_eos = self.params.ignore_eos
        if self.constraint is not None and self.constraint.decides_end:
            ignore_eos = False
        return token in self.params.stop_token_ids or (not ignore_eos and token in eos_ids)

    def follow(self, token: int) -> None:
        """Tell everything that follows the text of its newest token; some of it may end the text."""
        text = self.text_output
        if text is not None:
            text.feed(token, may_stop=self.num_generated >= self.params.min_tokens)
        constraint = self.constraint
        if constraint is not None:
            constraint.accept(token)
        if text is not None and text.stopped_by is not None:
            self.finish("stop", text.stopped_by)
        elif constraint is not None and constraint.finished:
            self.finish("stop")
