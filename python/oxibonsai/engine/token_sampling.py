"""From the logits of a step to the next tokens of one sequence, and whether its text ends."""

from __future__ import annotations

import time
from collections.abc import Iterable
from collections.abc import Sequence as Rows

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.closing import ClosingConstraint
from oxibonsai.engine.context_shift import Shifted
from oxibonsai.engine.sequence import Sequence
from oxibonsai.sampling.sampler import TopLogits, token_logprobs

# The logits of one row: float32 [vocabulary], or the largest of them.
Row = npt.NDArray[np.float32] | TopLogits


def top_wanted(sequences: Iterable[Sequence]) -> int | None:
    """Return from how many of the largest logits the next tokens of all sequences can be chosen.

    None where one of them may need all: its structure, or its sampling, looks at others.
    """
    most = 0
    for s in sequences:
        wanted = s.sampler.top_wanted
        if wanted is None or s.constraint is not None or s.num_generated < s.params.min_tokens:
            return None
        most = max(most, wanted)
    return most or None


def sample_tokens(
    sequence: Sequence,
    logits: Rows[Row],
    draft: list[int],
    eos_ids: frozenset[int],
    ctx_size: int,
) -> None:
    """Append the token that the first row gives, and those of further rows while the draft holds.

    Args:
        sequence: All but its last token is computed before; again afterwards.
        logits: Rows after the last token and each proposed one.
        draft: Proposed tokens.
        eos_ids: Tokens that end a text.
        ctx_size: Positions of the context.
    """
    accepted = 0
    for i, row in enumerate(logits):
        token = _choose(sequence, row, eos_ids)
        _append(sequence, token, row, eos_ids, ctx_size)
        if sequence.finished or i == len(draft) or token != draft[i]:
            break
        accepted += 1
    if sequence.speculator is not None and max(len(draft), sequence.asked) > 0:
        sequence.speculator.lookahead.observe(len(draft), accepted, sequence.asked)
    sequence.num_computed = len(sequence.tokens) - 1
    if len(sequence.tokens) >= ctx_size and not sequence.finished:
        _shift(sequence, ctx_size)


def _choose(sequence: Sequence, logits: Row, eos_ids: frozenset[int]) -> int:
    """Return the next token: a forced one, or the sampler's."""
    constraint = sequence.constraint
    mask, banned = None, frozenset[int]()
    if constraint is not None:
        forced = constraint.forced()
        if forced:
            return forced[0]
        mask, banned = constraint.mask(), constraint.banned()
    too_short = sequence.num_generated < sequence.params.min_tokens
    if too_short and not (constraint is not None and constraint.finished):
        banned = eos_ids.union(banned, sequence.params.stop_token_ids)
    if isinstance(constraint, ClosingConstraint) and banned:
        mask = constraint.mask_beside(banned)
    return sequence.sampler.choose(
        logits,
        sequence.counted_tokens,
        sequence.num_generated,
        mask=mask,
        banned=banned,
    )


def _append(
    sequence: Sequence, token: int, logits: Row, eos_ids: frozenset[int], ctx_size: int
) -> None:
    params = sequence.params
    if params.logprobs:
        sequence.logprobs.append(
            sequence.sampler.take_drawn(token)
            if params.drawn_logprobs
            else token_logprobs(logits, token, params.top_logprobs)
        )
    sequence.append(token)
    sequence.times.first_token = sequence.times.first_token or time.perf_counter()
    if sequence.ends_with(token, eos_ids):
        sequence.finish("stop", token)
    else:
        sequence.follow(token)
    full = len(sequence.tokens) >= ctx_size and sequence.options.shift is None
    if not sequence.finished and (sequence.num_generated == params.max_tokens or full):
        sequence.finish("length")


def _shift(sequence: Sequence, ctx_size: int) -> None:
    """Leave out the middle of the context; the rest is computed anew."""
    shift = sequence.options.shift
    assert shift is not None
    window = shift.window_of(ctx_size)
    dropped = len(sequence.tokens) - shift.sinks - window
    sequence.tokens = sequence.history[: shift.sinks] + sequence.history[-window:]
    sequence.num_computed = 0
    sequence.shifts.append(Shifted(sequence.num_generated, dropped))
