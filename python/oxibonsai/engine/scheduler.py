"""Which sequences run in the next step, and with how many tokens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from oxibonsai.engine.sequence import Sequence


@dataclass(frozen=True)
class Chunk:
    """Tokens first .. first + count of one sequence, then proposed tokens to check."""

    sequence: Sequence
    first: int
    count: int
    draft: list[int] = field(default_factory=list)

    @property
    def reaches_end(self) -> bool:
        """Whether the step computes the sequence's last token, so that the next can be chosen."""
        return self.first + self.count == len(self.sequence.tokens)

    @property
    def rows(self) -> int:
        """Return the rows of the batch that it takes."""
        return self.count + len(self.draft)

    @property
    def encodes(self) -> bool:
        """Whether it goes through an encoder."""
        return self.first < self.sequence.encoded

    @property
    def outputs(self) -> int:
        """Return the rows whose logits are wanted."""
        return 1 + len(self.draft) if self.reaches_end else 0

    @property
    def reads_prompt(self) -> bool:
        """Whether it is a part of a prompt, and not the next token of a text."""
        return self.count > 1 or not self.reaches_end


# One decoding row takes about as long as so many rows of a prompt.
_DECODING_COST = 4
# Decay of a tenant's service per step: about the last hundred steps count.
_DECAY = 0.99
_NEGLIGIBLE = 0.5  # rows
# Rows of a step for prompts of tenants that have had less than those that decode.
_CATCH_UP_ROWS = 64


class ServiceCounts:
    """How much service each tenant has had lately, in rows of prompts.

    As the virtual counters of Sheng et al. 2024 ("Fairness in Serving Large Language Models"), but
    older service counts less and less: a tenant that returns after a while starts from 0.
    """

    def __init__(self) -> None:
        self._had: dict[str, float] = {}

    def of(self, tenant: str) -> float:
        """Return a tenant's service so far."""
        return self._had.get(tenant, 0.0)

    def observe(self, chunks: list[Chunk]) -> None:
        """Count one step."""
        had = {t: rows * _DECAY for t, rows in self._had.items() if rows > _NEGLIGIBLE}
        for c in chunks:
            cost = c.rows if c.reads_prompt else c.rows * _DECODING_COST
            tenant = c.sequence.options.tenant
            had[tenant] = had.get(tenant, 0.0) + cost
        self._had = had


def schedule(
    running: list[Sequence],
    max_rows: int,
    prompt_rows: int,
    served: ServiceCounts | None = None,
) -> list[Chunk]:
    """Give every sequence that decodes its next token, and prompts what is left.

    The tenant that has had least comes first, and of one tenant the earliest request. Where it has
    had less than those that decode, they wait for the first rows of its prompt, which would otherwise
    take twice as long as alone; the rest of the prompt runs at nearly full speed beside them.

    Args:
        running: Sequences in the order of their arrival.
        max_rows: Rows of a step at most (decoding sequences always run).
        prompt_rows: Rows of prompts at most, where a sequence decodes beside them.
        served: Service of the tenants so far; None: none.
    """
    had = (served or ServiceCounts()).of
    decoding = [s for s in running if s.decodes]
    prompts = [s for s in running if not s.decodes]
    prompts.sort(key=lambda s: had(s.options.tenant))
    texts = {s.options.tenant for s in decoding}

    def is_behind(s: Sequence) -> bool:
        others = [had(t) for t in texts if t != s.options.tenant]
        return bool(others) and had(s.options.tenant) < min(others)

    new = [s for s in prompts if s.times.started is None and is_behind(s)]
    if new:
        decoding, prompts, max_rows = [], new, _CATCH_UP_ROWS
    chunks = [Chunk(s, s.num_computed, s.num_waiting, s.draft) for s in decoding]
    room = max_rows - sum(c.rows for c in chunks)
    usual = min(room, prompt_rows) if decoding else room
    for s in prompts:
        budget = max(usual, min(room, _CATCH_UP_ROWS)) if is_behind(s) else usual
        count = min(s.num_waiting, budget)
        if count > 0:
            chunks.append(Chunk(s, s.num_computed, count))
            room -= count
            usual = max(0, usual - count)
    return chunks


_FIRST_ROWS = 4
# Whatever a row costs: one in eight steps.
_LEAST_ROWS = 0.125
# Medians of so many steps: a single delayed step does not count.
_PLAIN_STEPS, _PROMPT_STEPS = 15, 7
# A step without prompts comes after so many with them: its time rises with the length of the texts.
_REFRESH_STEPS = 16


class PromptBudget:
    """How many rows of prompts may join a step without slowing down decoding noticeably.

    A step with prompts may take ``allowed`` times as long as those without. Where a single row takes
    longer, some steps are without. The bytes of a text don't depend on what it shares a step with, so
    this may follow the clock.

    Args:
        allowed: Longest step with prompts, in steps without; above 1.
        most: Rows at most.
    """

    def __init__(self, allowed: float = 1.7, most: int = 256) -> None:
        self._allowed = allowed
        self._most = most
        # Seconds of steps without prompts, and those that a row of a prompt adds.
        self._plain: deque[float] = deque(maxlen=_PLAIN_STEPS)
        self._costs: deque[float] = deque(maxlen=_PROMPT_STEPS)
        self._affordable: float = _FIRST_ROWS  # rows in a step, on the average
        self._saved = 0.0  # part of a row that earlier steps have left
        self._since_plain = 0  # steps with prompts since the newest one without

    @property
    def rows(self) -> int:
        """Return the rows of prompts in the next step."""
        if self._since_plain >= _REFRESH_STEPS:
            return 0
        return int(self._saved + self._affordable)

    def observe(self, decoding: int, prompt_rows: int, seconds: float) -> None:
        """Learn from a step of ``decoding`` sequences beside ``prompt_rows`` rows of prompts."""
        if decoding == 0:
            return
        left = self._saved + self._affordable - prompt_rows
        self._saved = min(max(left, 0.0), 0.999)
        if prompt_rows == 0:
            self._since_plain = 0
            self._plain.append(seconds)
        else:
            self._since_plain += 1
        if not self._plain:
            return
        plain = median(self._plain)
        if prompt_rows > 0:
            self._costs.append(max(seconds - plain, 1e-9) / prompt_rows)
        if self._costs:
            room = (self._allowed - 1.0) * plain
            self._affordable = min(max(room / median(self._costs), _LEAST_ROWS), self._most)
