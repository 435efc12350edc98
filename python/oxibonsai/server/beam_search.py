"""Beam search for requests: the most likely texts, whole and not as a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oxibonsai.engine import Beam, Options
from oxibonsai.engine import beam_search as search
from oxibonsai.engine.beam_search import MOST_BEAMS, EarlyStopping
from oxibonsai.errors import RequestError
from oxibonsai.server.http.client import POLL_SECONDS, ClientGoneError, client_is_gone
from oxibonsai.server.inputs import PromptLimit
from oxibonsai.server.submitter import Submitter

__all__ = ["MOST_BEAMS", "BeamSearch", "run"]


@dataclass(frozen=True)
class BeamSearch:
    """The search that a request asks for; see :func:`oxibonsai.engine.beam_search`.

    Attributes:
        width: Beams.
        n: Texts to return.
        limit: New tokens at most; None: until the context is full.
        length_penalty: Exponent of a text's length.
        early_stopping: When to end.
        stop_token_ids: Tokens that end a text beside the model's own.
        ignore_eos: The model's own do not.
    """

    width: int
    n: int
    limit: int | None
    length_penalty: float
    early_stopping: EarlyStopping
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool


def run(
    submitter: Submitter,
    ids: list[int],
    options: Options,
    asked: BeamSearch,
    environ: Mapping[str, Any],
) -> list[Beam]:
    """Return the best texts that continue a prompt, best first.

    It waits for a permit as every request does, and holds one whatever its width.

    Args:
        submitter: Has the engines.
        ids: The prompt.
        options: Of the request; its images are used.
        asked: What to search for.
        environ: Of the request, whose client may leave.

    Raises:
        RequestError: The request is invalid for this model.
        TooLongError: The prompt does not fit into the context.
        CapacityError: The queue is full, or the cache has no room for the beams.
        ClientGoneError: The client disconnected.
    """
    own = submitter.own_options(options)
    if own.adapter:
        raise RequestError(
            "use_beam_search runs the model as it was loaded: leave out lora, and adapters that were "
            "switched on later",
            param="use_beam_search",
        )

    def look() -> None:
        if client_is_gone(environ):
            raise ClientGoneError

    PromptLimit(submitter.engine.ctx_size).check_count(len(ids))
    submitter.engine.encode_images(ids, own, look)
    with submitter.tokens.counting(len(ids)) as count:
        beams = _search(submitter, ids, own, asked, look)
    count.generated(sum(len(beam.tokens) for beam in beams))
    return beams


def _search(
    submitter: Submitter,
    ids: list[int],
    own: Options,
    asked: BeamSearch,
    look: Callable[[], None],
) -> list[Beam]:
    submitter.enter()
    succeeded = False
    ticket = None
    try:
        ticket = submitter.pool.queue_up(own.tenant)
        while (engine := ticket.wait(POLL_SECONDS)) is None:
            look()
        ends = frozenset() if asked.ignore_eos else engine.eos_ids
        room = engine.ctx_size - len(ids)
        beams = search(
            engine,
            ids,
            width=asked.width,
            max_new_tokens=room if asked.limit is None else asked.limit,
            length_penalty=asked.length_penalty,
            early_stopping=asked.early_stopping,
            stop_token_ids=sorted(ends.union(asked.stop_token_ids)),
            n=asked.n,
            images=own.images,
            before_step=look,
        )
        succeeded = True
    finally:
        if ticket is not None:
            ticket.leave()
        submitter.leave(succeeded=succeeded)
    return beams
