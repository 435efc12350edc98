"""How many tokens to propose: as many as make decoding fastest, by what steps cost and what is accepted."""

from __future__ import annotations

import logging
from collections import deque
from statistics import median

from oxibonsai.errors import RequestError

_log = logging.getLogger(__name__)

LONGEST = 64
_MOST = 12  # tokens of an adapted proposal
_NEWEST = 7  # measured times of which the median counts: a single delayed step does not
_FORGET = 1024  # measurements after which what was not measured again is forgotten
_ENOUGH = 3  # steps without proposals before the first one
_REFRESH = (
    64  # steps with proposals before one without: its time rises with the length of the texts
)
_DECAY = 0.9  # of earlier proposals, by proposal
_PAUSES = 32, 1024  # steps until proposals are tried again, the first time and at most


class Curve:
    """Seconds as a function of a count, from measurements: linear between them and behind them."""

    def __init__(self) -> None:
        self._measured: dict[int, deque[float]] = {}
        self._newest: dict[int, int] = {}  # which measurement is the newest of a count
        self._total = 0

    def observe(self, count: int, seconds: float) -> None:
        """Add a measurement; forget those of counts that have not been measured for long."""
        self._total += 1
        self._measured.setdefault(count, deque(maxlen=_NEWEST)).append(seconds)
        self._newest[count] = self._total
        for old in [n for n, at in self._newest.items() if self._total - at > _FORGET]:
            del self._measured[old], self._newest[old]

    def times(self, count: int) -> int:
        """Return how many measurements of a count are kept."""
        return len(self._measured.get(count, ()))

    @property
    def largest(self) -> int:
        """The largest count that has been measured; 0: none has."""
        return max(self._measured, default=0)

    def at(self, count: int) -> float:
        """Return the seconds of a count; 0 before any measurement."""
        known = sorted((n, median(times)) for n, times in self._measured.items())
        if not known:
            return 0.0
        if len(known) == 1 or count <= known[0][0]:
            return known[0][1]
        right = next((i for i, (n, _) in enumerate(known) if n >= count), len(known) - 1)
        (a, low), (b, high) = known[right - 1], known[right]
        return max(low + (high - low) * (count - a) / (b - a), 0.0)


class StepCosts:
    """The cost of an engine's steps in which all sequences decode.

    Texts don't depend on the number of proposed tokens, so this may follow the clock.
    """

    def __init__(self) -> None:
        self._steps = Curve()  # by rows
        self._drafts = Curve()  # the making of proposals, by their tokens
        self._since_plain = 0
        self._told = False  # that drafts don't pay, once

    def observe(self, rows: int, drafted: int, asked: int, drafting: float, step: float) -> None:
        """Learn from a step.

        Args:
            rows: Of the model's pass, proposed tokens among them.
            drafted: How many of them were proposed.
            asked: Tokens that the longest proposal might have had; 0: none was asked for.
            drafting: Seconds of the making of proposals.
            step: Seconds of the rest of the step.
        """
        if asked > 0:
            self._drafts.observe(asked, drafting)
        self._steps.observe(rows, step)
        self._since_plain = 0 if drafted == 0 else self._since_plain + 1

    def knows_plain(self, sequences: int) -> bool:
        """Return whether enough is known of steps without proposals, or what is known is new enough."""
        return self._steps.times(sequences) >= _ENOUGH and self._since_plain < _REFRESH

    def seconds(self, sequences: int, length: int) -> float:
        """Return the time of a step in which so many sequences have proposals of so many tokens."""
        step = self._steps.at(sequences * (1 + length))
        return step + self._drafts.at(length) if length > 0 else step

    def best_length(self, sequences: int, probability: float) -> int:
        """Return how long proposals are best; 0: none is faster.

        Args:
            sequences: That have proposals in the step.
            probability: That a proposed token is accepted, if those before it are.
        """
        best, fastest, tokens = 0, 1.0 / max(self.seconds(sequences, 0), 1e-9), 1.0
        for length in range(1, _MOST + 1):
            # Steps of many more rows than any so far are not tried at once.
            if sequences * (1 + length) > 2 * self._steps.largest:
                break
            tokens += probability**length
            speed = tokens / max(self.seconds(sequences, length), 1e-9)
            if speed > fastest:
                best, fastest = length, speed
        if best == 0 and not self._told:
            self._told = True
            plain = max(self.seconds(sequences, 0), 1e-9)
            _log.info(
                "speculation pauses for a text, and tries again later: with drafts of one token a step "
                "takes %.2f times as long, and %.0f %% of proposed tokens are right",
                self.seconds(sequences, 1) / plain,
                100 * probability,
            )
        return best


class Lookahead:
    """Length of the next proposal for one sequence.

    Args:
        fixed: Always this many, 1 to 64; None: as long as is fastest, up to 12, or nothing for a while
            where plain decoding is faster.
        least: Shorter proposals are dropped.

    Attributes:
        length: Tokens to propose next.
        least: As given.
        proposed: Tokens of all proposals so far.
        accepted: Those that became part of the text.
    """

    def __init__(self, fixed: int | None = None, least: int = 0) -> None:
        if fixed is not None and not 1 <= fixed <= LONGEST:
            raise RequestError(f"the draft length is {fixed}; it must be from 1 to {LONGEST}")
        if least > (LONGEST if fixed is None else fixed):
            raise RequestError(
                f"no draft can have {least} tokens: its length is at most {fixed or LONGEST}"
            )
        self._fixed = fixed
        self.length = fixed or 1
        self.least = least
        self.proposed = 0
        self.accepted = 0
        self._tried, self._right = 4.0, 3.0  # tokens whose acceptance was decided, decayed
        self._paused, self._pause = 0, _PAUSES[0]

    @property
    def probability(self) -> float:
        """The probability that a proposed token is accepted, if those before it are."""
        return self._right / self._tried

    def plan(self, costs: StepCosts, sequences: int) -> int:
        """Return and set the length of the next proposal; 0: none.

        Args:
            costs: Of the engine's steps.
            sequences: That decode in the step.
        """
        if self._fixed is None:
            self.length = self._best(costs, sequences)
        return self.length

    def _best(self, costs: StepCosts, sequences: int) -> int:
        if not costs.knows_plain(sequences):
            return 0
        length = costs.best_length(sequences, self.probability)
        if length > 0:
            self._paused, self._pause = 0, _PAUSES[0]
            return length
        self._paused += 1
        if self._paused < self._pause:
            return 0
        self._paused, self._pause = 0, min(2 * self._pause, _PAUSES[1])
        return 1

    def observe(self, proposed: int, accepted: int, asked: int | None = None) -> None:
        """Learn that ``accepted`` of ``proposed`` tokens were right.

        Args:
            proposed: Tokens of the proposal.
            accepted: Those that the model gave too.
            asked: What the proposal could have had; None: what it had. A proposer that takes its time
                and gives less has been of as little use as one that is wrong.
        """
        self.proposed += proposed
        self.accepted += accepted
        decided = min(accepted + 1, proposed if asked is None else asked)
        self._tried = _DECAY * self._tried + decided
        self._right = _DECAY * self._right + accepted
