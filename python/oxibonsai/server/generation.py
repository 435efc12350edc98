"""Requests on the engines: queued, streamed piece by piece, cancelled when the client disconnects."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol

from oxibonsai.chat import PreparedPrompt
from oxibonsai.engine import Engine, EnginePool, EngineRequest, Options, submit_samples
from oxibonsai.errors import CapacityError, DeviceError, FormatError, OxiBonsaiError
from oxibonsai.output import Delta
from oxibonsai.output.tools import call_ids
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.errors import ApiError
from oxibonsai.server.generation_metrics import GenerationMetrics
from oxibonsai.server.http.client import POLL_SECONDS, client_is_gone, watched
from oxibonsai.server.http.stream_writer import OutputEvent
from oxibonsai.server.limits import TokenCount
from oxibonsai.server.lost_work import LostWorkError
from oxibonsai.server.response_choice import Choice
from oxibonsai.server.schemas.request_warnings import warn
from oxibonsai.server.slot_table import Slot, SlotRequest, SlotTable
from oxibonsai.structured import DescribedJson
from oxibonsai.structured.compiler import Compiled


class OnClose(Protocol):
    """Called when a request is over."""

    def __call__(self, *, succeeded: bool) -> None:
        """End it; without success where it was cancelled or failed."""


def _all_complete(choices: list[Choice]) -> bool:
    finished = [c.sequence.finish_reason for c in choices]
    return bool(finished) and all(reason in ("stop", "length") for reason in finished)


class Generation:
    """The generation of one request, with all its choices; a context manager that cancels on exit.

    Attributes:
        choices: One for each sample; empty while the request waits for an engine.
        prepared: The prompt of a conversation; None for a plain text.
        prompt_tokens: Number of tokens in the prompt.
        arrived: When the request arrived, in seconds of ``time.perf_counter``.
        output_event: Set when there may be new output.
    """

    def __init__(
        self,
        ticket: EngineRequest,
        ids: list[int],
        params: SamplingParams,
        options: Options,
        compiled: Compiled | None,
        *,
        n: int,
        prepared: PreparedPrompt | None,
        pool: EnginePool,
        slots: SlotTable,
        slot_request: SlotRequest,
        metrics: GenerationMetrics,
        output_event: OutputEvent,
        on_close: OnClose,
        tokens: TokenCount,
        call_prefix: str = "call_",
    ) -> None:
        self.prepared = prepared
        self.choices: list[Choice] = []
        self.prompt_tokens = len(ids)
        self.arrived = time.perf_counter()
        self._ticket = ticket
        self._submission = (ids, params, options, n)
        # A reference is kept so that the engine finds the compiled structure in its cache.
        self._compiled = compiled
        self._pool = pool
        self._slots = slots
        self._slot: Slot | None = None
        self._slot_request = slot_request
        self._metrics = metrics
        self._call_prefix = call_prefix
        self._engine: Engine | None = None
        self.output_event = output_event
        self._on_close = on_close
        self._tokens = tokens
        self._is_lost = False
        self._closed = False

    @property
    def slot_id(self) -> int:
        """Number of its current or last slot; -1 while it waits."""
        return -1 if self._slot is None else self._slot.id

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were found in the prefix cache."""
        return self.choices[0].sequence.num_cached if self.choices else 0

    @property
    def completion_tokens(self) -> int:
        """Return tokens generated, over all choices."""
        return sum(c.sequence.num_generated for c in self.choices)

    def __enter__(self) -> Generation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel running sequences and release the permit; idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            for choice in self.choices:
                assert self._engine is not None
                self._engine.cancel(choice.sequence)
        finally:
            self._release()
            self._on_close(succeeded=_all_complete(self.choices))
            if self.choices and not self._is_lost:
                self._tokens.generated(self.completion_tokens)
            else:
                self._tokens.give_back()
            self._metrics.ended(
                [choice.sequence for choice in self.choices],
                arrived=self.arrived,
                prompt_tokens=self.prompt_tokens,
            )

    def start(self, seconds: float) -> bool:
        """Submit the request to an engine, if one becomes free within ``seconds``.

        Raises:
            RequestError: The engine rejects the request.
        """
        if self._engine is not None:
            return True
        try:
            engine = self._ticket.wait(seconds)
        except CapacityError:
            self._check_engine()
            raise
        if engine is None:
            return False
        ids, params, options, n = self._submission
        sequences = submit_samples(engine, ids, params, options, n=n)
        self._engine = engine
        self._ticket.attach(sequences)
        self._slot = self._slots.assign(None, engine, sequences[0], self._slot_request)
        for i, sequence in enumerate(sequences):
            # Output from before this line is found by the first poll.
            sequence.changed = self.output_event
            sequence.times.arrived = self.arrived
            parser = None
            if self.prepared is not None:
                ids_of_calls = call_ids(secrets.token_hex(12), prefix=self._call_prefix)
                parser = self.prepared.parser(ids_of_calls)
            self.choices.append(Choice(i, sequence, parser))
        return True

    def poll(self) -> Iterator[tuple[int, Delta | None]]:
        """Yield new output since the last call, without waiting; see :meth:`stream`.

        Raises:
            CapacityError: A structure became too complex to follow, or the engine was closed.
        """
        if not self.start(0):
            return
        if (engine := self._ticket.engine) is not None:
            self._slot = self._slots.assign(
                self._slot, engine, self.choices[0].sequence, self._slot_request
            )
        for choice in self.choices:
            if choice.ended:
                continue
            for delta in choice.new_deltas():
                yield choice.index, delta
            if choice.ended:
                self._check(choice)
                yield choice.index, None
        if self.ended:
            self._release()

    def release_finished(self) -> None:
        """Release slot and permit if all sequences have finished, even if output is still unread."""
        if self.choices and all(c.sequence.times.finished is not None for c in self.choices):
            self._release()

    def _release(self) -> None:
        # The slot first: the next holder of the permit must find a free one.
        if self._slot is not None:
            self._slots.release(self._slot, self._slot_request)
        self._ticket.leave()

    @property
    def ended(self) -> bool:
        """Whether all output has been read."""
        return bool(self.choices) and all(c.ended for c in self.choices)

    def wait_for_output(self) -> bool:
        """Wait until there may be new output or the poll timeout expires.

        Returns:
            Whether there may be new output.
        """
        if self._engine is None:
            return self.start(self.output_event.poll_timeout)
        if self.output_event.wait(self.output_event.poll_timeout):
            return True
        self._check_engine()
        return False

    def stream(self) -> Iterator[tuple[int, Delta | None]]:
        """Yield the deltas of all choices in the order in which they are generated.

        Yields:
            The index of a choice and its next delta, None at its end; ``(-1, None)`` after a quarter
            of a second without output, so that the caller can check the connection.

        Raises:
            CapacityError: A structure became too complex to follow, or the engine was closed.
        """
        for _, index, delta in follow([self]):
            yield index, delta

    def wait(self, environ: Mapping[str, Any]) -> None:
        """Wait until all choices have ended.

        Raises:
            ClientGoneError: The client disconnected.
        """
        wait_for_all([self], environ)

    def check_answers(self) -> None:
        """Warn of whole answers that break what their JSON schema says and no grammar enforces."""
        structure = (
            self._submission[2].structure if self.prepared is None else self.prepared.structure
        )
        for choice in self.choices:
            if choice.finish_reason == "stop" and isinstance(structure, DescribedJson):
                try:
                    problem = structure.problem(choice.reply.content)
                except (OxiBonsaiError, OSError) as e:
                    problem = f"it could not be checked: {e}"
                if problem:
                    warn(f"answer {choice.index} breaks the JSON schema: {problem}")

    def notify(self, output_event: OutputEvent) -> None:
        """Replace the event that is set when there may be new output."""
        self.output_event = output_event
        for choice in self.choices:
            choice.sequence.changed = output_event

    def _check(self, choice: Choice) -> None:
        """Raise if the choice ended for a reason other than the text's own."""
        choice.sequence.raise_error()
        if choice.sequence.finish_reason == "cancelled":
            self._check_engine()
            raise CapacityError("the request was cancelled: the server is about to end")

    def _check_engine(self) -> None:
        failure = self._pool.failure
        if isinstance(failure, FormatError):
            raise ApiError(
                503,
                "The model's file was changed while it was in use; it is loaded again: ask again in a "
                "while.",
                code="model_changed",
                retry_after=1,
            )
        self._is_lost = failure is not None
        if isinstance(failure, DeviceError):
            raise LostWorkError(503, "What runs the model was lost; ask again in a while.")
        if failure is not None:
            raise LostWorkError(500, "The engine has stopped; see the server's log.")


def follow(group: list[Generation]) -> Iterator[tuple[int, int, Delta | None]]:
    """Merge the streams of several generations, in the order in which output arrives.

    Yields:
        As :meth:`Generation.stream`, preceded by the index in the group; ``(-1, -1, None)`` when
        there was no output for a while.
    """
    if not group:
        return
    output_event = group[0].output_event
    for generation in group:
        generation.notify(output_event)

    def release_finished() -> None:
        for generation in group:
            generation.release_finished()

    output_event.release_finished = release_finished
    running = dict(enumerate(group))
    shown = time.monotonic()  # time of the last delta: a token may yield none
    while running:
        output_event.clear()
        quiet = True
        for i, generation in list(running.items()):
            for index, delta in generation.poll():
                quiet = False
                yield i, index, delta
            if generation.ended:
                del running[i]
        if not quiet:
            shown = time.monotonic()
        elif running:
            came = next(iter(running.values())).wait_for_output()
            if not came or time.monotonic() - shown >= POLL_SECONDS:
                shown = time.monotonic()
                yield -1, -1, None


def wait_for_all(group: list[Generation], environ: Mapping[str, Any]) -> None:
    """Wait until several generations have ended; see :meth:`Generation.wait`."""
    pieces = follow(group)
    for _ in watched(pieces, environ):
        if group[0].output_event.was_set:
            quiet = (None if which < 0 else "" for which, _, _ in pieces)
            group[0].output_event.hand_over(None, quiet, lambda: client_is_gone(environ))
    for generation in group:
        generation.check_answers()
