"""Requests on the engines: admitted in their turn, followed piece by piece, cancelled with the client."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from oxibonsai.chat import ChatRequest, ChatTurn
from oxibonsai.engine import Engine, EnginePool, EngineRequest, Options, submit_samples
from oxibonsai.engine.completion import MOST_SAMPLES
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.output import Delta
from oxibonsai.output.tools import call_ids
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.access import current_owner
from oxibonsai.server.backend import Backend
from oxibonsai.server.choice import Choice
from oxibonsai.server.errors import ApiError
from oxibonsai.server.generation_metrics import GenerationMetrics
from oxibonsai.server.http.disconnect import POLL_SECONDS, client_is_gone, watched
from oxibonsai.server.http.stream_writer import Bell, StreamWriter
from oxibonsai.server.inputs import InputWatch, Room, input_is_read, read_turn
from oxibonsai.server.slots import Slot, SlotBoard, Wish
from oxibonsai.server.tenant import of_present_owner
from oxibonsai.structured.compiler import Compiled


class Answers:
    """The answers to one request; a context manager that cancels on the way out.

    Attributes:
        choices: One for each sample; empty while the request waits for an engine.
        turn: Of a conversation: its prompt.
        prompt_tokens: Tokens of the prompt.
        arrived: When the request came, in seconds of ``time.perf_counter``.
        bell: Rung when there may be something new.
    """

    def __init__(
        self,
        place: EngineRequest,
        ids: list[int],
        params: SamplingParams,
        options: Options,
        compiled: Compiled | None,
        *,
        n: int,
        turn: ChatTurn | None,
        pool: EnginePool,
        slots: SlotBoard,
        wish: Wish,
        metrics: GenerationMetrics,
        bell: Bell,
    ) -> None:
        self.turn = turn
        self.choices: list[Choice] = []
        self.prompt_tokens = len(ids)
        self.arrived = time.perf_counter()
        self._place = place
        self._job = (ids, params, options, n)
        # Held, so that the engine finds it.
        self._compiled = compiled
        self._pool = pool
        self._slots = slots
        self._slot: Slot | None = None
        self._wish = wish
        self._metrics = metrics
        self._engine: Engine | None = None
        self.bell = bell
        self._closed = False

    @property
    def slot_id(self) -> int:
        """Number of the slot that it has or had; -1 while it waits."""
        return -1 if self._slot is None else self._slot.id

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were found in the cache."""
        return self.choices[0].sequence.num_cached if self.choices else 0

    @property
    def completion_tokens(self) -> int:
        """Tokens generated, over all choices."""
        return sum(c.sequence.num_generated for c in self.choices)

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what still runs and lets the next request in; does no harm the second time."""
        if self._closed:
            return
        self._closed = True
        try:
            for choice in self.choices:
                assert self._engine is not None
                self._engine.cancel(choice.sequence)
        finally:
            self._leave()
            self._metrics.ended(self)

    def start(self, seconds: float) -> bool:
        """Submits the request where an engine is free within so many seconds.

        Raises:
            RequestError: The engine refuses it.
        """
        if self._engine is not None:
            return True
        engine = self._place.wait(seconds)
        if engine is None:
            return False
        ids, params, options, n = self._job
        sequences = submit_samples(engine, ids, params, options, n=n)
        self._engine = engine
        self._place.attach(sequences)
        self._slot = self._slots.keep(None, engine, sequences[0], self._wish)
        for i, sequence in enumerate(sequences):
            # What came before this line is found by the first look.
            sequence.changed = self.bell
            sequence.times.arrived = self.arrived
            parser = None
            if self.turn is not None:
                parser = self.turn.parser(call_ids(secrets.token_hex(12)))
            self.choices.append(Choice(i, sequence, parser))
        return True

    def poll(self) -> Iterator[tuple[int, Delta | None]]:
        """What has come since the last call; see :meth:`stream`.

        Raises:
            CapacityError: A structure became too complex to follow, or the engine was closed.
        """
        if not self.start(0):
            return
        if (engine := self._place.engine) is not None:
            self._slot = self._slots.keep(self._slot, engine, self.choices[0].sequence, self._wish)
        for choice in self.choices:
            if choice.ended:
                continue
            for delta in choice.news():
                yield choice.index, delta
            if choice.ended:
                self._check(choice)
                yield choice.index, None
        if self.ended:
            self._leave()

    def relieve(self) -> None:
        """Gives up the slot where the texts are done, although not all has been given yet."""
        if self.choices and all(c.sequence.times.finished is not None for c in self.choices):
            self._leave()

    def _leave(self) -> None:
        # The slot first: whoever gets the permit finds one free.
        if self._slot is not None:
            self._slots.leave(self._slot, self._wish)
        self._place.leave()

    @property
    def ended(self) -> bool:
        """Whether everything has been given."""
        return bool(self.choices) and all(c.ended for c in self.choices)

    def pause(self) -> bool:
        """Waits until there may be something new, as long as the bell allows; whether there may."""
        if self._engine is None:
            return self.start(self.bell.patience)
        if self.bell.wait(self.bell.patience):
            return True
        self._check_engine()
        return False

    def stream(self) -> Iterator[tuple[int, Delta | None]]:
        """Pieces of all choices in the order in which they come.

        Yields:
            The index of a choice and a piece of it, None at its end; ``(-1, None)`` whenever nothing
            came for a quarter of a second, so that the caller can look after the client.

        Raises:
            CapacityError: A structure became too complex to follow, or the engine was closed.
        """
        for _, index, delta in follow([self]):
            yield index, delta

    def wait(self, environ: Mapping[str, Any]) -> None:
        """Runs all choices to their ends.

        Raises:
            ClientGoneError: Nobody waits for the answer any more.
        """
        wait_for_all([self], environ)

    def share(self, bell: Bell) -> None:
        """Rings this bell from now on when there may be something new."""
        self.bell = bell
        for choice in self.choices:
            choice.sequence.changed = bell

    def _check(self, choice: Choice) -> None:
        """An end that is none of the text's own is an error."""
        choice.sequence.raise_error()
        if choice.sequence.finish_reason == "cancelled":
            self._check_engine()
            raise CapacityError("the request was cancelled: the server is about to end")

    def _check_engine(self) -> None:
        if self._pool.failure is not None:
            raise ApiError(500, "The engine has stopped; the server's log has the reason.")


def follow(group: list[Answers]) -> Iterator[tuple[int, int, Delta | None]]:
    """Pieces of several requests' answers as they come: which request, and what its stream gives.

    Yields:
        As :meth:`Answers.stream`, with the place in the group before it; ``(-1, -1, None)`` where
        nothing came.
    """
    if not group:
        return
    bell = group[0].bell
    for answers in group:
        answers.share(bell)

    def relieve() -> None:
        for answers in group:
            answers.relieve()

    bell.relieve = relieve
    running = dict(enumerate(group))
    shown = time.monotonic()  # when a piece last came: tokens may come without one
    while running:
        bell.clear()
        quiet = True
        for i, answers in list(running.items()):
            for index, delta in answers.poll():
                quiet = False
                yield i, index, delta
            if answers.ended:
                del running[i]
        if not quiet:
            shown = time.monotonic()
        elif running:
            came = next(iter(running.values())).pause()
            if not came or time.monotonic() - shown >= POLL_SECONDS:
                shown = time.monotonic()
                yield -1, -1, None


def wait_for_all(group: list[Answers], environ: Mapping[str, Any]) -> None:
    """Runs the answers to several requests to their ends; see :meth:`Answers.wait`."""
    news = follow(group)
    for _ in watched(news, environ):
        if group[0].bell.rung:
            quiet = (None if which < 0 else "" for which, _, _ in news)
            group[0].bell.carry(None, quiet, lambda: client_is_gone(environ))


class Generations:
    """Takes requests to the engines of a backend.

    Args:
        backend: Its pool is there once it has loaded.
        metrics: Told about every request.
        share_cache: Let keys find in the cache what others have sent.
    """

    def __init__(
        self, backend: Backend, metrics: GenerationMetrics, *, share_cache: bool = False
    ) -> None:
        self._backend = backend
        self._share_cache = share_cache
        self._board: SlotBoard | None = None
        self._lock = threading.Lock()
        self._writer: StreamWriter | None = None
        self.metrics = metrics

    @property
    def loaded(self) -> EnginePool:
        """The engines, whatever they are there for; ApiError 503 before the model is loaded."""
        if self._backend.pool is None:
            raise ApiError(503, "The model is not loaded.")
        return self._backend.pool

    @property
    def pool(self) -> EnginePool:
        """The engines; ApiError 501 where the model is there for vectors alone."""
        if not self._backend.generates:
            raise ApiError(501, "This server makes embeddings only: it writes no texts.")
        return self.loaded

    @property
    def slots(self) -> SlotBoard:
        """Who runs where."""
        with self._lock:
            if self._board is None:
                self._board = SlotBoard(self.loaded)
            return self._board

    @property
    def writer(self) -> StreamWriter:
        """Writes streams after the engines' steps."""
        with self._lock:
            if self._writer is None:
                self._writer = StreamWriter()
                self.pool.after_steps(self._writer.write)
            return self._writer

    @property
    def engine(self) -> Engine:
        """One of the engines, for its tokenizer and template."""
        return self.pool.engines[0]

    def chat(
        self,
        request: ChatRequest,
        params: SamplingParams,
        options: Options | None = None,
        *,
        n: int = 1,
        slot: int | None = None,
    ) -> Answers:
        """Answers to a conversation.

        Args:
            request: The conversation.
            params: How to choose tokens.
            options: What else the answers do, beyond what the conversation asks for.
            n: Answers wanted.
            slot: The slot that is wanted, where it is free.

        Raises:
            RequestError: The request makes no sense for this model.
            ApiError: The prompt is too long.
            CapacityError: Too many requests wait.
        """
        turn = read_turn(self.engine, request, Room(self.engine.ctx_size), options)
        return self.turn(turn, params, n=n, slot=slot)

    def turn(
        self, turn: ChatTurn, params: SamplingParams, *, n: int = 1, slot: int | None = None
    ) -> Answers:
        """As :meth:`chat`, of a prompt that is prepared already."""
        return self._submit(turn.ids, params, turn.options, n, turn, slot)

    def text(
        self,
        ids: list[int],
        params: SamplingParams,
        options: Options | None = None,
        *,
        n: int = 1,
        slot: int | None = None,
    ) -> Answers:
        """Continuations of a prompt; see :meth:`chat`."""
        return self._submit(ids, params, options or Options(), n, None, slot)

    def _submit(
        self,
        ids: list[int],
        params: SamplingParams,
        options: Options,
        n: int,
        turn: ChatTurn | None,
        slot: int | None,
    ) -> Answers:
        pool, engine = self.pool, self.engine
        Room(engine.ctx_size).check_count(len(ids))
        if not 1 <= n <= MOST_SAMPLES:
            raise RequestError(f"n is {n}; it must be from 1 to {MOST_SAMPLES}")
        input_is_read()
        compiled = None
        if options.structure is not None:
            # Before anything is taken that others wait for, since this can take its time.
            compiled = engine.structures.compiled(options.structure, InputWatch().look)
        options = of_present_owner(options, share_cache=self._share_cache)
        place = pool.queue_up(options.tenant)
        answers = Answers(
            place, ids, params, options, compiled, n=n, turn=turn, pool=pool, slots=self.slots,
            wish=Wish(current_owner(), slot), metrics=self.metrics, bell=Bell(self.writer),
        )  # fmt: skip
        try:
            if not answers.start(0):
                # Refused now, while the answer can still be an error.
                engine.make_sequence(ids, params, options)
        except BaseException:
            place.leave()
            raise
        return answers
