"""Submits requests to the engines of a backend."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oxibonsai.chat import ChatRequest, PreparedPrompt, prepare
from oxibonsai.chat_template import ChatTemplate, TooCostlyError
from oxibonsai.engine import ContextShift, Engine, EnginePool, Options
from oxibonsai.engine.completion import MOST_SAMPLES
from oxibonsai.engine.speculation.methods import MakeSpeculator, Speculation
from oxibonsai.errors import RequestError
from oxibonsai.files.machine import available_memory
from oxibonsai.output import find_reasoning_tags
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.access import current_owner
from oxibonsai.server.adapters import Adapters
from oxibonsai.server.backend import Backend
from oxibonsai.server.circuit_breaker import Circuits
from oxibonsai.server.documents import with_documents
from oxibonsai.server.errors import ApiError
from oxibonsai.server.generation import Generation
from oxibonsai.server.generation_metrics import GenerationMetrics
from oxibonsai.server.http.stream_writer import OutputEvent, StreamWriter
from oxibonsai.server.inputs import InputWatch, PromptLimit, input_is_read, turn_of_long_text
from oxibonsai.server.limits import ANONYMOUS, TokenCount, TokenLimits
from oxibonsai.server.pdf import PdfReader
from oxibonsai.server.schemas.request_warnings import warn
from oxibonsai.server.settings import Settings
from oxibonsai.server.slot_table import SlotRequest, SlotTable
from oxibonsai.server.stored_images import with_stored_images
from oxibonsai.server.stores import FileStore

_MEMORY_RETRY_SECONDS = 5


class Submitter:
    """Submits requests to the engines of a backend.

    Args:
        backend: Its pool is set once the model is loaded.
        metrics: Updated at the end of every request.
        files: Those that conversations name as images and documents.
        documents: Reads documents.
        settings: The server's settings with those of the model.
        circuits: That of the model is opened by failures of the machine.
        tokens: Limits the tokens of callers.

    Attributes:
        adapter: The engine's key of the adapters that requests use; None: the model's defaults.
        adapter_name: Follows the model's name in responses.
    """

    def __init__(
        self,
        backend: Backend,
        metrics: GenerationMetrics,
        files: FileStore,
        documents: PdfReader,
        settings: Settings,
        circuits: Circuits,
        tokens: TokenLimits,
    ) -> None:
        self._backend = backend
        self._circuits = circuits
        self.tokens = tokens
        self._files = files
        self.settings = settings
        self._documents = documents
        self._slot_table: SlotTable | None = None
        self._lock = threading.Lock()
        self._writer: StreamWriter | None = None
        self.metrics = metrics
        self.adapter: str | None = None
        self.adapter_name = ""

    @property
    def loaded(self) -> EnginePool:
        """The engines, also of an embedding model; ApiError 503 before the model is loaded."""
        if self._backend.pool is None:
            raise ApiError(503, "The model is not loaded.")
        return self._backend.pool

    @property
    def pool(self) -> EnginePool:
        """The engines; ApiError 501 if the server only makes embeddings."""
        if not self._backend.generates:
            raise ApiError(501, "This server only makes embeddings; it can't generate text.")
        return self.loaded

    @property
    def model_id(self) -> str:
        """The model's name in responses."""
        own = self._backend.models()[0].id
        return f"{own}:{self.adapter_name}" if self.adapter_name else own

    @property
    def adapters(self) -> Adapters:
        """The model's adapters; ApiError 503 before the model is loaded."""
        if self._backend.adapters is None:
            raise ApiError(503, "The model is not loaded.")
        return self._backend.adapters

    def with_adapter(self, key: str, name: str = "") -> Submitter:
        """Submit requests with other adapters to the same engines, slots and stream.

        Args:
            key: Of :class:`~oxibonsai.server.adapters.Adapters`.
            name: The name that a request used.
        """
        # What is made when it is first used is made now, so that both share it.
        assert self.slots is not None
        assert self.writer is not None
        other = copy.copy(self)
        other.adapter, other.adapter_name = key, name
        return other

    @property
    def slots(self) -> SlotTable:
        """Which request runs on which slot."""
        with self._lock:
            if self._slot_table is None:
                self._slot_table = SlotTable(self.loaded)
            return self._slot_table

    @property
    def writer(self) -> StreamWriter:
        """Return what writes streams in the engine's thread, after each step."""
        with self._lock:
            if self._writer is None:
                self._writer = StreamWriter()
                self.pool.after_steps(self._writer.write)
            return self._writer

    @property
    def engine(self) -> Engine:
        """One of the engines, for its tokenizer."""
        return self.pool.engines[0]

    @property
    def speculate(self) -> MakeSpeculator | None:
        """Return what makes what proposes tokens; None if nothing does."""
        return None if self.speculation is None else self.speculation.make

    @property
    def speculation(self) -> Speculation | None:
        """Return what proposes tokens, and why; None where no text is generated."""
        return self._backend.speculation

    @property
    def chat_template(self) -> ChatTemplate | None:
        """How conversations are written; None if the model has no chat template."""
        return self._backend.chat_template

    def read_chat(
        self,
        request: ChatRequest,
        prompt_limit: PromptLimit | None = None,
        options: Options | None = None,
    ) -> PreparedPrompt:
        """Return the prompt of a conversation, within the limits of a server.

        Args:
            request: The conversation.
            prompt_limit: The largest prompt; None: any.
            options: Engine options beyond those that the conversation sets.

        Raises:
            RequestError: As of :func:`oxibonsai.chat.prepare`.
            TooLongError: It does not fit into the context.
            ClientGoneError: The client disconnected.
        """
        engine, tokenizer = self.engine, self.engine.tokenizer
        request = self._without_idle_budget(request)
        request = with_documents(
            request, self._files, self._documents,
            sees=engine.image_reader is not None, look=InputWatch().look,
        )  # fmt: skip
        if engine.image_reader is not None:
            request = with_stored_images(request, self._files, engine.image_reader)
        # Images have turns of their own, which take longer.
        length = 0
        if engine.image_reader is None or not _has_other_parts(request.messages):
            length = sum(map(len, _texts([*request.messages, *request.tools])))

        def check(prompt: str) -> None:
            if prompt_limit is not None:
                prompt_limit.check_text(prompt, tokenizer)

        try:
            with turn_of_long_text(length):
                return prepare(
                    engine, request, options, template=self.chat_template,
                    watch=InputWatch(prompt_limit), check=check,
                )  # fmt: skip
        except TooCostlyError:
            # That the conversation is too long is the more helpful error.
            if prompt_limit is not None:
                whole = "".join(_texts(request.messages))
                prompt_limit.check_text(whole, tokenizer, "the conversation")
            raise

    def _without_idle_budget(self, request: ChatRequest) -> ChatRequest:
        """Return the request without a budget of reasoning where the model does not reason."""
        template = self.chat_template
        if request.thinking_budget is None or template is None:
            return request
        if find_reasoning_tags(template.source) is not None:
            return request
        warn("the budget of reasoning has no effect: this model's chat template knows no reasoning")
        return replace(request, thinking_budget=None)

    def chat(
        self,
        request: ChatRequest,
        params: SamplingParams,
        options: Options | None = None,
        *,
        n: int = 1,
        slot: int | None = None,
        call_prefix: str = "call_",
    ) -> Generation:
        """Generate the next message of a conversation.

        Args:
            request: The conversation.
            params: Sampling parameters.
            options: Engine options beyond those that the conversation sets.
            n: Number of samples.
            slot: The preferred slot, used if it is free.
            call_prefix: Begins the ids of tool calls.

        Raises:
            RequestError: The request is invalid for this model.
            ApiError: The prompt is too long.
            CapacityError: The queue is full.
        """
        prepared = self.read_chat(request, PromptLimit(self.engine.ctx_size), options)
        return self._submit(prepared.ids, params, prepared.options, n, prepared, slot, call_prefix)

    def prompt(
        self,
        prepared: PreparedPrompt,
        params: SamplingParams,
        *,
        n: int = 1,
        slot: int | None = None,
    ) -> Generation:
        """Do what :meth:`chat` does for a prompt that is already prepared."""
        return self._submit(prepared.ids, params, prepared.options, n, prepared, slot)

    def text(
        self,
        ids: list[int],
        params: SamplingParams,
        options: Options | None = None,
        *,
        n: int = 1,
        slot: int | None = None,
    ) -> Generation:
        """Continue a prompt; see :meth:`chat`."""
        return self._submit(ids, params, options or Options(), n, None, slot)

    def _submit(
        self,
        ids: list[int],
        params: SamplingParams,
        options: Options,
        n: int,
        prepared: PreparedPrompt | None,
        slot: int | None,
        call_prefix: str = "call_",
    ) -> Generation:
        PromptLimit(self.engine.ctx_size).check_count(len(ids))
        if not 1 <= n <= MOST_SAMPLES:
            raise RequestError(f"n is {n}; it must be from 1 to {MOST_SAMPLES}", param="n")
        input_is_read()
        options = self.own_options(options)
        with self.tokens.counting(len(ids)) as count:
            return self._queue_up(ids, params, options, n, prepared, slot, call_prefix, count)

    def _queue_up(
        self,
        ids: list[int],
        params: SamplingParams,
        options: Options,
        n: int,
        prepared: PreparedPrompt | None,
        slot: int | None,
        call_prefix: str,
        count: TokenCount,
    ) -> Generation:
        pool, engine = self.pool, self.engine
        # Before a permit is taken, since encoding and compiling can be slow.
        engine.encode_images(ids, options, InputWatch().look)
        compiled = None
        if options.structure is not None:
            compiled = engine.structures.compiled(
                options.structure, InputWatch().look, options.tenant
            )
        self.enter()
        try:
            ticket = pool.queue_up(options.tenant)
        except BaseException:
            self.leave(succeeded=False)
            raise
        generation = Generation(
            ticket, ids, params, options, compiled, n=n, prepared=prepared, pool=pool, slots=self.slots,
            slot_request=SlotRequest(current_owner(), slot), metrics=self.metrics,
            output_event=OutputEvent(self.writer), on_close=self.leave, tokens=count,
            call_prefix=call_prefix,
        )  # fmt: skip
        try:
            if not generation.start(0):
                # Validated now, while the response can still be an error.
                engine.check_request(ids, params, options)
        except BaseException:
            ticket.leave()
            self.leave(succeeded=False)
            raise
        return generation

    def enter(self) -> None:
        """Begin a request on the model; :meth:`leave` ends it.

        Raises:
            ApiError: 503 where the machine's memory is nearly used up, or the model keeps failing.
        """
        least = self.settings.min_free_mb
        room = available_memory() if least else None
        if room is not None and room < least << 20:
            raise ApiError(
                503,
                f"The machine has {room >> 20} MiB of memory left, less than the {least} that this server "
                "keeps free (--min-free-mb): ask again in a while.",
                code="low_memory",
                retry_after=_MEMORY_RETRY_SECONDS,
            )
        wait = self._circuits.enter(str(self.settings.model))
        if wait is not None:
            raise ApiError(
                503,
                f"The model '{self.model_id}' has failed several times in a row and is left alone for a "
                "while: ask again later.",
                code="circuit_open",
                retry_after=wait,
            )

    def leave(self, *, succeeded: bool) -> None:
        """End a request that :meth:`enter` began."""
        self._circuits.leave(str(self.settings.model), succeeded=succeeded)

    def own_options(self, options: Options) -> Options:
        """Return a request's options with the server's, the model's and the key's."""
        shift = options.shift
        if self.settings.context_shift and not options.images:
            shift = ContextShift(self.settings.keep)
        adapter = self.adapters.default() if self.adapter is None else self.adapter
        speculate = options.speculate or self.speculate
        tenant, salt = tenant_and_salt(
            options.cache_salt, share_cache=self.settings.share_prefix_cache
        )
        return replace(
            options,
            adapter=adapter,
            speculate=speculate,
            shift=shift,
            tenant=tenant,
            cache_salt=salt,
        )


def tenant_and_salt(cache_salt: str = "", *, share_cache: bool) -> tuple[str, str]:
    """Return tenant and cache salt of requests of the current key; without keys, no tenant.

    Args:
        cache_salt: The request's own, which separates requests of one key.
        share_cache: Share the prefix cache between keys.
    """
    who = current_owner()
    if who is None or who == ANONYMOUS:
        return "", cache_salt
    return who, cache_salt if share_cache else f"{who}:{cache_salt}"


def _has_other_parts(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a message has parts that are no texts, such as images."""
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(not isinstance(part, dict) or part.get("type") != "text" for part in parts)


def _texts(value: Any) -> list[str]:
    found: list[str] = []
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, Mapping):
            pending.extend(part.values())
        elif isinstance(part, Sequence):
            pending.extend(part)
    return found
