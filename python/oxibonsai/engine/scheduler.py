"""Who runs in the next step, and with how many tokens."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.engine.sequence import Sequence


@dataclass(frozen=True)
class Chunk:
    """Tokens first .. first + count of one sequence."""

    sequence: Sequence
    first: int
    count: int

    @property
    def reaches_end(self) -> bool:
        """Whether the step computes the sequence's last token, so that the next can be chosen."""
        return self.first + self.count == len(self.sequence.tokens)


def schedule(running: list[Sequence], max_tokens: int) -> list[Chunk]:
    """Every sequence that decodes gets its one token; prompts share what is left, first come first.

    Args:
        running: Sequences in the order of their arrival.
        max_tokens: Rows of a step at most (decoding sequences always run).
    """
    waiting = {id(s): len(s.tokens) - s.num_computed for s in running}
    chunks = [Chunk(s, s.num_computed, 1) for s in running if waiting[id(s)] == 1]
    budget = max_tokens - len(chunks)
    for s in running:
        count = min(waiting[id(s)], budget)
        if waiting[id(s)] > 1 and count > 0:
            chunks.append(Chunk(s, s.num_computed, count))
            budget -= count
    return chunks
