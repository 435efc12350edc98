"""The engine: sequences stepped together through one model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from operator import index
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from oxibonsai.engine.closing import ClosingConstraint, ClosingTokens
from oxibonsai.engine.embedded_prompt import embedded_prompt
from oxibonsai.engine.embedding import Embedder
from oxibonsai.engine.engine_core import EngineCore, StepCounts
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.kv_policy import KvPressurePolicy
from oxibonsai.engine.process_lock import ProcessLock
from oxibonsai.engine.ranking import Ranker
from oxibonsai.engine.sequence import Options, Sequence, TokenConstraint
from oxibonsai.engine.text import TextOutput
from oxibonsai.engine.whole_text_mixin import WholeTextMixin
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.known_models import Recommendation, recommend
from oxibonsai.lora import Adapter
from oxibonsai.models import Model
from oxibonsai.sampling import SamplingParams
from oxibonsai.sampling.sampler import breaker_ids, word_tokens
from oxibonsai.structured import StructureCompiler
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.vision import ImageReader, PlacedImage
from oxibonsai.vision.prompt_images import PromptImages, check_images

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11


class Stepper(Protocol):
    """A thread that steps an engine."""

    def wake(self) -> None:
        """Wake the thread that runs: there may be something to do."""
        ...


class Engine(WholeTextMixin):
    """Runs sequences on one model; made by :func:`oxibonsai.load`.

    Calls may come from any thread; one step runs at a time.

    Args:
        model: Program and weights.
        tokenizer: The model's own; None where the file has none: then only ids go in and out.
        cache: Pages of keys and values, slots of recurrent state.
        ctx_size: Positions a sequence may take.
        policy: Chooses the type of new sequences' pages among the cache's; None: the first.

    Attributes:
        policy: As given.
        embedder: Makes vectors of texts, with a cache of its own.
        ranker: Scores texts and pairs of texts, likewise.
        images: Reads the images of conversations; None: the model reads text only.
        lock: Held during a step; whoever uses ``model`` and ``cache`` directly takes it.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None,
        cache: KvCache,
        *,
        ctx_size: int,
        policy: KvPressurePolicy | None = None,
    ) -> None:
        if tokenizer is not None and tokenizer.vocab_size > model.config.vocab_size:
            raise FormatError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model only "
                f"{model.config.vocab_size} rows"
            )
        self.model = model
        self._tokenizer = tokenizer
        self.cache = cache
        self.ctx_size = ctx_size
        self.policy = policy
        self.embedder = Embedder(model, tokenizer, ctx_size=ctx_size)
        self.ranker = Ranker(model, tokenizer, ctx_size=ctx_size)
        self._compiler: StructureCompiler | None = None
        self._breakers = lru_cache(maxsize=16)(self._find_breakers)
        self._engine_core = EngineCore(
            model, cache, ctx_size=ctx_size, eos_ids=self.eos_ids, policy=policy
        )
        self._stepper: Stepper | None = None
        self.image_reader: ImageReader | None = None
        self.lock = ProcessLock()

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there: nothing is, once the engine has been closed.
        if self.__dict__.get("_closed"):
            raise RequestError("this engine has been closed: load the model again")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        if self.__dict__.get("_closed"):
            return f"{type(self).__name__}(closed)"
        c = self.model.config
        return (
            f"{type(self).__name__}({str(self.model.weights.checkpoint.path)!r}, "
            f"architecture={c.architecture!r}, ctx_size={self.ctx_size}, kv_type={self._kv_types()}, "
            f"threads={self.model.device.threads}, running={self.num_running})"
        )

    def _kv_types(self) -> str:
        return "+".join(repr(p.type) for p in self.cache.pools) or "None"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every sequence and lets go of the model, its cache and its memory.

        A closed engine refuses everything else. Closing it again does nothing.

        Raises:
            RequestError: A pool or another thread steps it: close that.
        """
        if self.__dict__.get("_closed"):
            return
        if self._stepper is not None:
            raise RequestError("another thread steps this engine: close what made it, a pool say")
        self.cancel_all()
        self.cache.close()
        self.__dict__.clear()
        self._closed = True

    @cached_property
    def recommended(self) -> Recommendation:
        """Settings that suit the model."""
        checkpoint = self.model.weights.checkpoint
        return recommend(checkpoint.file, checkpoint.path)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; FormatError where its file has none."""
        if self._tokenizer is None:
            raise FormatError(
                f"{self.model.weights.checkpoint.path} has no tokenizer: give token ids, not text"
            )
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """Whether text can go in and out."""
        return self._tokenizer is not None

    @property
    def eos_ids(self) -> frozenset[int]:
        """Return the ids that end a text; none without a tokenizer."""
        return frozenset() if self._tokenizer is None else self._tokenizer.eos_ids

    @property
    def kv_type(self) -> str | None:
        """Type of new sequences' keys and values; None where the model has only recurrent state."""
        if not self.cache.pools:
            return None
        return self.cache.pools[self._engine_core.pool()].type

    @property
    def num_running(self) -> int:
        """Return the sequences that take part in steps."""
        return len(self._engine_core.running)

    @property
    def has_work(self) -> bool:
        """Whether a step has something to do."""
        return self._engine_core.has_work

    @property
    def counts(self) -> StepCounts:
        """Return the counts of all steps so far."""
        return self._engine_core.counts

    @property
    def num_waiting(self) -> int:
        """Return the sequences that wait for pages or a slot."""
        return len(self._engine_core.waiting)

    def submit(
        self,
        prompt: Items[int],
        params: SamplingParams,
        options: Options | None = None,
        *,
        parent: Sequence | None = None,
    ) -> Sequence:
        """Take in a prompt; :meth:`step` runs it beside the others. Does not wait for a step.

        Args:
            prompt: Token ids.
            params: How to choose tokens.
            options: What else it does; a structure is compiled here.
            parent: A sequence with the same prompt, submitted just before, whose computed prompt
                is shared.

        Raises:
            RequestError: The prompt is empty, too long, or holds ids outside the vocabulary; the
                structure or a parameter makes no sense for this model.
        """
        sequence = self.make_sequence(prompt, params, options or Options())
        if parent is not None:
            sequence.parent = parent
        self._engine_core.waiting.append(sequence)
        if self._stepper is not None:
            self._stepper.wake()
        return sequence

    def make_sequence(
        self, prompt: Items[int], params: SamplingParams, options: Options
    ) -> Sequence:
        """Return a checked sequence that is not submitted yet; errors as of :meth:`check_request`."""
        ids, encoded, bad_words = self._checked(prompt, params, options)
        constraint: TokenConstraint | None = None
        if options.structure is not None:
            constraint = self.structures.constraint(options.structure, tenant=options.tenant)
        if options.constrain is not None:
            constraint = options.constrain(constraint)
        if constraint is not None and options.structure is not None and options.structure.closes:
            limit = self._limit(len(ids), params, options)
            constraint = ClosingConstraint(constraint, limit, self._closing_tokens)
        text = None
        if self._tokenizer is not None:
            text = TextOutput(self._tokenizer, params.stop, options.visible)
        breakers = frozenset[int]()
        if params.dry_multiplier > 0.0:
            breakers = self._breakers(params.dry_sequence_breakers)
        images = self.prompt_images(ids, options.images)
        image_end = options.images[-1].end if options.images else 0
        return Sequence(
            ids, params, options, text, constraint, breakers, bad_words, images, encoded,
            stops=self.cache.stops(len(ids), options.borders, image_end),
        )  # fmt: skip

    def check_request(self, prompt: Items[int], params: SamplingParams, options: Options) -> None:
        """Check what :meth:`submit` refuses, but for the structure, which takes long to compile.

        Raises:
            RequestError: The prompt is empty, too long, or holds ids outside the vocabulary; a
                parameter or an option makes no sense for this model.
        """
        ids, _, _ = self._checked(prompt, params, options)
        if options.images:
            check_images(self.model, ids, options.images)

    def _checked(
        self, prompt: Items[int], params: SamplingParams, options: Options
    ) -> tuple[list[int], int, tuple[tuple[int, ...], ...]]:
        """Return the ids of a prompt, how many an encoder reads, and the ids of words to avoid."""
        self.lock.check_process()
        self.model.check_generates()
        ids = self.check_prompt(prompt)
        encoded, decoder = 0, self.model.config.decoder
        if decoder is not None:
            encoded, ids = len(ids), self.check_prompt([*ids, decoder.start_token_id])
        for name, value, kind in (
            ("params", params, SamplingParams),
            ("options", options, Options),
        ):
            if not isinstance(value, kind):
                raise RequestError(f"{name} is {value!r}; it must be {kind.__name__}(...)")
        self.check_ids([*params.logit_bias, *params.banned_tokens, *params.stop_token_ids])
        self.check_ids(params.allowed_tokens)
        self._engine_core.models.check(options.adapter)
        if options.shift is not None:
            options.shift.window_of(self.ctx_size)  # refuses what does not fit
            self.model.check_decoder_only("context shift")
            if options.images:
                raise RequestError(
                    "a context with pictures cannot be shifted: leave out the context shift"
                )
        if params.stop and self._tokenizer is None:
            raise RequestError("stop strings need a tokenizer, and this model's file has none")
        bad_words: tuple[tuple[int, ...], ...] = ()
        if params.bad_words:
            encode = partial(self.tokenizer.encode, add_special=False)
            bad_words = word_tokens(params.bad_words, encode)
            self.check_ids([token for word in bad_words for token in word])
        return ids, encoded, bad_words

    def prompt_images(
        self, ids: Items[int], placed: tuple[PlacedImage, ...]
    ) -> PromptImages | None:
        """Return the images of a prompt, checked; None where there are none."""
        if not placed:
            return None
        check_images(self.model, ids, placed)
        return PromptImages(ids, placed, self.model.graph.position_axes)

    def encode_images(
        self, prompt: Items[int], options: Options, look: Callable[[], None] | None = None
    ) -> None:
        """Encode the images that the prefix cache does not hold, so that no step waits for a tower.

        What the cache gives up until the prompt runs is encoded by the step that needs it.

        Args:
            prompt: Token ids.
            options: With the images.
            look: Called while others' images are encoded; what it raises ends the waiting.

        Raises:
            CapacityError: Too many wait.
        """
        images = self.prompt_images(prompt, options.images)
        if images is None:
            return
        known = self.cache.lookup(images.cache_ids, self._engine_core.pool(), options.cache_root)
        if self.image_reader is None or images.is_encoded_from(known.positions):
            images.encode_from(known.positions)
            return
        with self.image_reader.queue.turn(look):
            images.encode_from(known.positions)

    def _limit(self, prompt_tokens: int, params: SamplingParams, options: Options) -> int:
        """Return how many tokens a text can have."""
        room = self.ctx_size - prompt_tokens if options.shift is None else sys.maxsize
        return room if params.max_tokens is None else min(room, params.max_tokens)

    @cached_property
    def _closing_tokens(self) -> ClosingTokens:
        return ClosingTokens.of(self.tokenizer, self.model.config.vocab_size)

    @property
    def structures(self) -> StructureCompiler:
        """Return what compiles what texts must match."""
        if self._compiler is None:
            self._compiler = StructureCompiler(self.tokenizer, self.model.config.vocab_size)
        return self._compiler

    def share_structures(self, other: Engine) -> None:
        """Take what compiles structures from another engine of the same model."""
        self._compiler = other.structures

    def adapter_key(self, adapters: Items[Adapter]) -> str:
        """Return the ``adapter`` of :class:`Options` with which a sequence runs with these adapters.

        They take the place of those that the model was loaded with. Sequences with different adapters
        share steps, keys and values are shared between those with the same.

        Args:
            adapters: As :func:`oxibonsai.loading.open_adapters` returns them, each with its scale.

        Raises:
            UnsupportedError: An adapter changes what is no linear layer of the model.
        """
        models = self._engine_core.models
        key = models.key(adapters)
        if not models.is_compiled(key):
            with self.lock:
                models.of(key)
        return key

    def knows_adapter(self, key: str) -> bool:
        """Return whether :meth:`adapter_key` has returned a key, and it is still in use."""
        return self._engine_core.models.knows(key)

    def step(self) -> list[Sequence]:
        """Run one pass of the model over all running sequences; return those with new tokens."""
        with self.lock:
            return self._engine_core.step()

    def advance(self, sequence: Sequence, timeout: float | None = None) -> None:
        """Let a sequence go on: step, or wait for the thread that does.

        Args:
            sequence: It has been submitted.
            timeout: Seconds to wait at most, where another thread steps.
        """
        if self._stepper is None:
            self.step()
        else:
            self.lock.check_process()
            sequence.changed.wait(timeout)
            sequence.changed.clear()

    def attach(self, stepper: Stepper | None) -> None:
        """Let another thread step from now on; None: the callers do."""
        self._stepper = stepper

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence; its pages are free after the step that runs now."""
        if sequence.finished:
            return
        sequence.cancelled = True
        if self.lock.acquire(blocking=False):
            try:
                self._engine_core.sweep()
            finally:
                self.lock.release()
        elif self._stepper is not None:
            self._stepper.wake()

    def cancel_all(self) -> None:
        """End every sequence."""
        with self.lock:
            for s in [*self._engine_core.running, *self._engine_core.waiting]:
                s.cancelled = True
            self._engine_core.sweep()

    def generate_tokens(
        self,
        prompt: Items[int],
        params: SamplingParams | None = None,
        options: Options | None = None,
    ) -> Iterator[int]:
        """Yield generated ids one by one, an end-of-text id included.

        The prompt is checked at once, not at the first token.
        """
        return self.follow_tokens(self.submit(prompt, params or SamplingParams(), options))

    def follow_tokens(self, sequence: Sequence) -> Iterator[int]:
        """Yield the ids of a submitted sequence as they come; closing the iterator cancels it."""
        try:
            seen = 0
            while not sequence.finished or seen < sequence.num_generated:
                if seen == sequence.num_generated:
                    self.advance(sequence)
                    continue
                seen += 1
                yield sequence.history[sequence.num_prompt_tokens + seen - 1]
            sequence.raise_error()
        finally:
            self.cancel(sequence)

    def generate(
        self,
        prompt: str | Items[int] | None = None,
        params: SamplingParams | None = None,
        options: Options | None = None,
        *,
        inputs_embeds: Any = None,
    ) -> Iterator[str]:
        """Yield the pieces of the text that continues a prompt, as they come; stop strings never show.

        Args:
            prompt: Text, taken as it stands (special tokens in it are text), or token ids.
            params: How to choose tokens; None: the defaults.
            options: What else it does.
            inputs_embeds: In place of a prompt; see :meth:`embedded_prompt`.
        """
        ids, options = self.read_prompt(prompt, inputs_embeds, options)
        return self.follow_text(self.submit(ids, params or SamplingParams(), options))

    def embedded_prompt(
        self, inputs_embeds: Any, options: Options | None = None
    ) -> tuple[list[int], Options]:
        """Return the ids and the options with which a prompt of embeddings is submitted.

        Args:
            inputs_embeds: [n, hidden], float32 or float16, of numpy, torch or what else speaks DLPack:
                what the model would read in place of the embeddings of n tokens. Copied.
            options: What else the sequence does; it has no images.

        Raises:
            RequestError: They are no such rows of finite numbers.
            UnsupportedError: The model reads token ids alone.
        """
        options = options or Options()
        if options.images:
            raise RequestError("inputs_embeds is a whole prompt: leave out the images")
        ids, placed = embedded_prompt(self.model, inputs_embeds)
        return ids, replace(options, images=placed, uncounted=len(ids))

    def read_prompt(
        self, prompt: str | Items[int] | None, inputs_embeds: Any, options: Options | None
    ) -> tuple[Items[int], Options | None]:
        """Return the ids of a prompt in any of its forms, and the options that go with them."""
        if (prompt is None) is (inputs_embeds is None):
            raise RequestError("give a prompt or inputs_embeds, and not both")
        if prompt is None:
            return self.embedded_prompt(inputs_embeds, options)
        return (self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt), options

    def follow_text(self, sequence: Sequence) -> Iterator[str]:
        """Yield the pieces of a submitted sequence's text as they come; closing the iterator cancels it."""
        output = sequence.text_output
        assert output is not None  # generate() has asked for the tokenizer
        shown = 0
        try:
            while not sequence.finished or shown < len(output.pieces):
                if shown == len(output.pieces):
                    self.advance(sequence)
                    continue
                shown += 1
                yield output.pieces[shown - 1]
            sequence.raise_error()
        finally:
            self.cancel(sequence)

    def adopt(self, sequence: Sequence, computed: int, finish_reason: str | None) -> None:
        """Take in a sequence whose table holds the state of its first tokens already."""
        with self.lock:
            self._engine_core.adopt(sequence, computed, finish_reason)
            if self._stepper is not None:
                self._stepper.wake()

    def check_prompt(self, ids: Items[int]) -> list[int]:
        """Return the ids as plain integers; RequestError where they are no prompt for this model."""
        if isinstance(ids, str | bytes | bytearray):  # the bytes of a text are no ids
            raise RequestError(f"a prompt is a list of token ids here, not {type(ids).__name__}")
        try:
            if hasattr(ids, "__dlpack__"):
                ids = np.from_dlpack(ids).tolist()
            ids = [index(token) for token in ids]
        except (TypeError, BufferError, RuntimeError) as e:
            raise RequestError(f"a prompt is a list of token ids: {e}") from e
        if len(ids) == 0:
            raise RequestError("the prompt is empty: there is nothing to continue")
        if len(ids) > self.ctx_size:
            raise RequestError(
                f"the prompt has {len(ids)} tokens, more than the context of {self.ctx_size}: shorten "
                "it or raise --ctx-size"
            )
        self.check_ids(ids)
        return ids

    def check_ids(self, ids: Items[int]) -> None:
        """Raise RequestError where one is outside the vocabulary."""
        vocabulary = self.model.config.vocab_size
        for i, token in enumerate(ids):
            if not 0 <= token < vocabulary:
                raise RequestError(
                    f"token id {token} at index {i} is outside the vocabulary of {vocabulary}"
                )

    def _find_breakers(self, strings: tuple[str, ...]) -> frozenset[int]:
        return breaker_ids(self.tokenizer.vocabulary.texts, strings)
