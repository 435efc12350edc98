"""Submits requests to the engines of a backend."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace

from oxibonsai.chat import ChatRequest, PreparedPrompt
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.engine import ContextShift, Engine, EnginePool, Options
from oxibonsai.engine.completion import MOST_SAMPLES
from oxibonsai.engine.speculation import MakeSpeculator
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.access import current_owner
from oxibonsai.server.adapters import Adapters
from oxibonsai.server.backend import Backend
from oxibonsai.server.errors import ApiError
from oxibonsai.server.generation import Generation
from oxibonsai.server.generation_metrics import GenerationMetrics
from oxibonsai.server.http.stream_writer import OutputEvent, StreamWriter
from oxibonsai.server.inputs import InputWatch, PromptLimit, input_is_read, read_chat
from oxibonsai.server.settings import Settings
from oxibonsai.server.slot_table import SlotRequest, SlotTable
from oxibonsai.server.stored_images import with_stored_images
from oxibonsai.server.stores import FileStore
from oxibonsai.server.tenant import for_current_owner


class Submitter:
    """Submits requests to the engines of a backend.

    Args:
        backend: Its pool is set once the model is loaded.
        metrics: Updated at the end of every request.
        files: Those that conversations name as pictures.
        settings: The server's settings with those of the model.

    Attributes:
        adapter: The engine's key of the adapters that requests use; None: the model's defaults.
        adapter_name: Follows the model's name in responses.
    """

    def __init__(
        self, backend: Backend, metrics: GenerationMetrics, files: FileStore, settings: Settings
    ) -> None:
        self._backend = backend
        self._files = files
        self._share_cache = settings.share_prefix_cache
        self.settings = settings
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
        """Writes streams in the engine's thread, after each step."""
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
        """Makes what proposes tokens; None if nothing does."""
        return self._backend.speculate

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
        """Return the prompt of a conversation; see :func:`oxibonsai.server.inputs.read_chat`."""
        pictures = self.engine.pictures
        if pictures is not None:
            request = with_stored_images(request, self._files, pictures)
        return read_chat(self.engine, self.chat_template, request, prompt_limit, options)

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
        """As :meth:`chat`, for a prompt that is already prepared."""
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
        """Continues a prompt; see :meth:`chat`."""
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
        pool, engine = self.pool, self.engine
        PromptLimit(engine.ctx_size).check_count(len(ids))
        if not 1 <= n <= MOST_SAMPLES:
            raise RequestError(f"n is {n}; it must be from 1 to {MOST_SAMPLES}", param="n")
        input_is_read()
        adapter = self.adapters.default() if self.adapter is None else self.adapter
        speculate = options.speculate or self._backend.speculate
        options = replace(options, adapter=adapter, speculate=speculate)
        if self.settings.context_shift and not options.images:
            options = replace(options, shift=ContextShift(self.settings.keep))
        options = for_current_owner(options, share_cache=self._share_cache)
        compiled = None
        if options.structure is not None:
            # Before a permit is taken, since compiling can be slow.
            compiled = engine.structures.compiled(
                options.structure, InputWatch().look, options.tenant
            )
        place = pool.queue_up(options.tenant)
        generation = Generation(
            place, ids, params, options, compiled, n=n, prepared=prepared, pool=pool, slots=self.slots,
            slot_request=SlotRequest(current_owner(), slot), metrics=self.metrics,
            output_event=OutputEvent(self.writer), call_prefix=call_prefix,
        )  # fmt: skip
        try:
            if not generation.start(0):
                # Validated now, while the response can still be an error.
                engine.make_sequence(ids, params, options)
        except BaseException:
            place.leave()
            raise
        return generation
