"""Proposals for the sequences of a step, and the making of one from the logits of whoever guesses."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.sequence import Proposer, Sequence, Speculator, Wanted
from oxibonsai.engine.speculation.first_of import FirstOf
from oxibonsai.engine.speculation.lookahead import Lookahead
from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.sampling.sampler import Sampler, token_logprobs

Row = npt.NDArray[np.float32]


class Guess:
    """One proposal in the making, drawn with the sequence's parameters and random numbers.

    Where the guesser's logits and the model's agree, so do their draws.

    Args:
        sequence: Whose next tokens are guessed; it is not changed.
        most: Tokens of the proposal.
        log_threshold: The proposal ends before a token of a smaller log probability.

    Attributes:
        tokens: The proposal so far.
        most: As given; no more than it has where it has ended.
    """

    def __init__(self, sequence: Sequence, most: int, log_threshold: float) -> None:
        self.tokens: list[int] = []
        self.most = most
        self._log_threshold = log_threshold
        same = sequence.sampler
        self._sampler = Sampler(sequence.params, same.breakers, same.bad_words)
        self._sampler.restore(same.state())
        constraint = sequence.constraint
        self._constraint = None if constraint is None else constraint.fork()
        self._history, self._step = list(sequence.counted_tokens), sequence.num_generated

    def wants_more(self) -> bool:
        """Return whether one more token is to be proposed."""
        c = self._constraint
        if len(self.tokens) >= self.most:
            return False
        with self._dropped_on_error():
            return c is None or not (c.finished or c.forced())
        return False

    def end(self) -> None:
        """Propose nothing more."""
        self.most = 0

    def extend(self, logits: Row, probability: float | None = None) -> int | None:
        """Add the token that the logits give; None, and the end, where it is too unlikely.

        Args:
            logits: float32 [vocabulary].
            probability: How likely it is that the token is right; None: as the logits say.
        """
        c = self._constraint
        with self._dropped_on_error():
            token = self._sampler.choose(
                logits,
                self._history,
                self._step + len(self.tokens),
                mask=None if c is None else c.mask(),
                banned=() if c is None else c.banned(),
            )
            if self._log_likelihood(logits, token, probability) < self._log_threshold:
                self.end()
                return None
            self.tokens.append(token)
            self._history.append(token)
            if c is not None:
                c.accept(token)
            return token
        return None

    def _log_likelihood(self, logits: Row, token: int, probability: float | None) -> float:
        if probability is None:
            return token_logprobs(logits, token, 0).logprob
        return math.log(probability) if probability > 0.0 else -math.inf

    @contextmanager
    def _dropped_on_error(self) -> Iterator[None]:
        """End the proposals at an error: the text may have no way on behind them."""
        try:
            yield
        except OxiBonsaiError:
            self.end()
            self.tokens.clear()


@dataclass(frozen=True)
class Limits:
    """How long proposals may be, and how sure their maker.

    Attributes:
        length: Tokens of a proposal; None: as many as make decoding fastest.
        least: Shorter ones are dropped.
        threshold: A proposal ends before a token to which its maker gives less probability.

    Raises:
        RequestError: One of them is out of range.
    """

    length: int | None = None
    least: int = 0
    threshold: float = 0.5

    def __post_init__(self) -> None:
        self.lookahead()
        if not 0.0 <= self.threshold <= 1.0:
            raise RequestError(f"the draft threshold is {self.threshold}; it must be from 0 to 1")

    def of_request(self, length: int | None, threshold: float | None) -> Limits:
        """Return the limits of a request, which states what it wants otherwise."""
        return Limits(
            self.length if length is None else length,
            min(self.least, length or self.least),
            self.threshold if threshold is None else threshold,
        )

    def lookahead(self) -> Lookahead:
        """Return what chooses the lengths for one sequence."""
        return Lookahead(self.length, self.least)

    @property
    def log_threshold(self) -> float:
        """The threshold's logarithm."""
        return math.log(self.threshold) if self.threshold > 0.0 else -math.inf


def propose(wanted: list[tuple[Sequence, int]]) -> None:
    """Set the drafts of the sequences of a step; those of one proposer share its passes.

    A draft is empty where a speculator has no good guess, or fails.

    Args:
        wanted: Sequences with speculators, and how many tokens each may get.
    """
    turns = [(s, most, deque(_parts(s))) for s, most in wanted]
    while turns := [turn for turn in turns if not turn[0].draft and turn[2]]:
        shared: defaultdict[Proposer, list[Wanted]] = defaultdict(list)
        for sequence, most, parts in turns:
            one = Wanted(sequence, most, parts.popleft())
            if one.speculator.shared is not None:
                sequence.asked = most
                shared[one.speculator.shared].append(one)
                continue
            with suppress(OxiBonsaiError):
                _set_draft(one, one.speculator.propose(sequence, most))
        for proposer, group in shared.items():
            with suppress(OxiBonsaiError):
                for one, draft in zip(group, proposer.propose(group), strict=True):
                    _set_draft(one, draft)


def _parts(sequence: Sequence) -> list[Speculator]:
    """Return what is asked for proposals in turn."""
    speculator = sequence.speculator
    if speculator is None:
        return []
    return speculator.parts if isinstance(speculator, FirstOf) else [speculator]


def _set_draft(wanted: Wanted, draft: list[int]) -> None:
    sequence = wanted.sequence
    if len(draft) >= wanted.speculator.lookahead.least:
        sequence.draft = draft
        sequence.asked = max(sequence.asked, len(draft))
