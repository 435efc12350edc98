"""How likely a model finds continuations of contexts; equal contexts are computed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import Engine
from oxibonsai.engine.batching import make_batch, reserve
from oxibonsai.engine.scheduler import Chunk
from oxibonsai.engine.sequence import Options
from oxibonsai.engine.sequence import Sequence as Running
from oxibonsai.errors import RequestError
from oxibonsai.evaluate.perplexity import check_finite, negative_log_likelihood
from oxibonsai.sampling import SamplingParams

Rows = npt.NDArray[np.float32]

_STEP_ROWS = 512
_BLOCK_VALUES = 1 << 24  # logits of a step: 64 MiB


@dataclass(frozen=True)
class Continuation:
    """A text in two parts, of which the second is scored.

    Attributes:
        context: Token ids that the model has seen, at least one.
        tokens: Those whose likelihood counts, at least one.
    """

    context: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class ContinuationScore:
    """The model's opinion of a continuation.

    Attributes:
        log_likelihood: The sum over its tokens, in nats.
        is_greedy: Whether each of its tokens is the most likely one at its place.
    """

    log_likelihood: float
    is_greedy: bool


@dataclass
class _Branch:
    """The tokens that one sequence reads for the continuations that differ in their last token alone."""

    sequence: Running
    first: int
    members: list[int]
    log_likelihoods: list[float]
    is_greedy: list[bool]


def score_continuations(
    engine: Engine, continuations: Sequence[Continuation], *, parallel: int
) -> Iterator[tuple[int, ContinuationScore]]:
    """Yield each continuation's index and score; no score depends on which others there are.

    Those of one context run together, so they come in another order.

    Args:
        engine: Its context holds each text but for its last token.
        continuations: Checked before the first of them runs.
        parallel: Sequences that run at once: at most those that the engine was loaded for.

    Raises:
        RequestError: A part is empty, too long, or holds ids outside the vocabulary.
        FormatError: The model computes something that is no number.
    """
    engine.model.check_generates()
    engine.model.check_decoder_only("scores of continuations")
    for c in continuations:
        if not c.context or not c.tokens:
            raise RequestError("a continuation needs a context and tokens, at least one id of each")
        engine.check_prompt([*c.context, *c.tokens[:-1]])
        engine.check_ids(c.tokens[-1:])
    for contexts in _batches(continuations, parallel):
        for branch in _run(engine, contexts, continuations):
            for i, likelihood, greedy in zip(
                branch.members, branch.log_likelihoods, branch.is_greedy, strict=True
            ):
                yield i, ContinuationScore(likelihood, greedy)


# Contexts, each with its branches: the inputs behind it and the continuations that read them.
_Contexts = list[tuple[tuple[int, ...], list[tuple[tuple[int, ...], list[int]]]]]


def _batches(continuations: Sequence[Continuation], parallel: int) -> Iterator[_Contexts]:
    """Yield contexts with at most ``parallel`` branches in all; similar contexts follow each other."""
    groups: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = defaultdict(dict)
    for i, c in enumerate(continuations):
        groups[c.context].setdefault(c.tokens[:-1], []).append(i)
    batch: _Contexts = []
    room = parallel
    for context in sorted(groups):
        branches = list(groups[context].items())
        while branches:
            if room == 0 or (batch and room < min(len(branches), parallel)):
                yield batch
                batch, room = [], parallel
            batch.append((context, branches[:room]))
            taken = len(batch[-1][1])
            branches, room = branches[taken:], room - taken
    if batch:
        yield batch


def _run(
    engine: Engine, contexts: _Contexts, continuations: Sequence[Continuation]
) -> list[_Branch]:
    cache = engine.cache
    started: list[Running] = []
    try:
        for context, _ in contexts:
            parent = Running(list(context), SamplingParams(), Options())
            with engine.lock:
                parent.table = cache.find(context)
            started.append(parent)
        parents = list(started)
        _read_contexts(engine, parents)
        branches = []
        for parent, (context, read) in zip(parents, contexts, strict=True):
            before = len(context) - 1
            with engine.lock:
                cache.remember(parent.table, context, before)
            for i, (inputs, members) in enumerate(read):
                sequence = Running([*context, *inputs], SamplingParams(), Options())
                if i + 1 < len(read):
                    with engine.lock:
                        sequence.table = cache.fork(parent.table, before)
                    started.append(sequence)
                else:  # the last one goes on with the context's own state
                    sequence.table = parent.table
                branches.append(
                    _Branch(sequence, before, members, [0.0] * len(members), [True] * len(members))
                )
        _score_branches(engine, branches, continuations)
        return branches
    finally:
        with engine.lock:
            for sequence in started:
                cache.release(sequence.table)


def _read_contexts(engine: Engine, parents: list[Running]) -> None:
    """Compute all tokens of each context but the last."""
    spans = [(p, p.table.covered, len(p.tokens) - 1) for p in parents]
    for chunks in _steps(spans, _STEP_ROWS):
        _step(engine, chunks, all_rows=False)


def _score_branches(
    engine: Engine, branches: list[_Branch], continuations: Sequence[Continuation]
) -> None:
    rows = max(1, min(_STEP_ROWS, _BLOCK_VALUES // engine.model.config.vocab_size))
    of = {id(b.sequence): b for b in branches}
    for chunks in _steps([(b.sequence, b.first, len(b.sequence.tokens)) for b in branches], rows):
        logits = iter(_step(engine, chunks, all_rows=True))
        for chunk in chunks:
            branch = of[id(chunk.sequence)]
            for position in range(chunk.first, chunk.first + chunk.count):
                _add_row(branch, position - branch.first, next(logits), continuations)


def _add_row(branch: _Branch, at: int, row: Rows, continuations: Sequence[Continuation]) -> None:
    """Add what a row says of the token ``at`` of each continuation that reads the branch."""
    check_finite(row)
    best = int(row.argmax())
    for i, member in enumerate(branch.members):
        token = continuations[member].tokens[at]
        branch.log_likelihoods[i] -= negative_log_likelihood(row, token)
        branch.is_greedy[i] &= token == best


def _steps(spans: list[tuple[Running, int, int]], rows: int) -> Iterator[list[Chunk]]:
    """Yield the positions ``first .. end - 1`` of sequences in steps of at most so many rows."""
    chunks: list[Chunk] = []
    room = rows
    for sequence, first, end in spans:
        while first < end:
            count = min(room, end - first)
            chunks.append(Chunk(sequence, first, count))
            first, room = first + count, room - count
            if room == 0:
                yield chunks
                chunks, room = [], rows
    if chunks:
        yield chunks


def _step(engine: Engine, chunks: list[Chunk], *, all_rows: bool) -> Rows:
    cache = engine.cache
    with engine.lock:
        for c in chunks:
            reserve(cache, c.sequence.table, c.first, c.count)
        batch = make_batch(chunks, all_rows=all_rows)
        return engine.model.run(batch, cache.pools, cache.slot_memory)
