"""One proposal in the making: the sequence's own sampler over the logits of whoever guesses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.sequence import Sequence
from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.sampling import Sampler, token_logprobs

Row = npt.NDArray[np.float32]


class Guess:
    """Draws with the sequence's parameters and random numbers.

    Where the guesser's logits and the model's agree, so do their draws.

    Args:
        sequence: Whose next tokens are guessed; it is not changed.
        most: Tokens of the proposal.
        log_threshold: The proposal ends before a token of a smaller log probability.

    Attributes:
        tokens: The proposal so far.
    """

    def __init__(self, sequence: Sequence, most: int, log_threshold: float) -> None:
        self.tokens: list[int] = []
        self._most = most
        self._log_threshold = log_threshold
        same = sequence.sampler
        self._sampler = Sampler(sequence.params, same.breakers, same.bad_words)
        self._sampler.restore(same.state())
        constraint = sequence.constraint
        self._constraint = None if constraint is None else constraint.fork()
        self._history, self._step = list(sequence.history), sequence.num_generated

    def wants_more(self) -> bool:
        """Whether one more token is to be proposed."""
        c = self._constraint
        if len(self.tokens) >= self._most:
            return False
        with self._dropped_on_error():
            return c is None or not (c.finished or c.forced())
        return False

    def end(self) -> None:
        """Proposes nothing more."""
        self._most = 0

    def extend(self, logits: Row) -> int | None:
        """Add the token that the logits give; None, and the end, where it is too unlikely."""
        c = self._constraint
        with self._dropped_on_error():
            token = self._sampler.choose(
                logits,
                self._history,
                self._step + len(self.tokens),
                mask=None if c is None else c.mask(),
                banned=() if c is None else c.banned(),
            )
            if token_logprobs(logits, token, 0).logprob < self._log_threshold:
                self.end()
                return None
            self.tokens.append(token)
            self._history.append(token)
            if c is not None:
                c.accept(token)
            return token
        return None

    @contextmanager
    def _dropped_on_error(self) -> Iterator[None]:
        """There may be no way on behind what is proposed; the text may never get there."""
        try:
            yield
        except OxiBonsaiError:
            self.end()
            self.tokens.clear()


def check_threshold(threshold: float) -> float:
    """Its logarithm; RequestError where it is no probability."""
    if not 0.0 <= threshold <= 1.0:
        raise RequestError(f"the draft threshold is {threshold}; it must be from 0 to 1")
    return math.log(threshold) if threshold > 0.0 else -math.inf
