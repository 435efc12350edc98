"""Whole requests from Python: ``LLM`` for batches, ``AsyncLLM`` for programs with an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from functools import partial, wraps
from types import TracebackType
from typing import Any, ParamSpec, Self

from oxibonsai import engine as engines
from oxibonsai.chat import ChatReply, ChatRequest, ChatTurn, answer, prepare
from oxibonsai.engine import Engine, EngineRunner, Options, Sequence, submit_samples
from oxibonsai.errors import RequestError
from oxibonsai.output import Reply
from oxibonsai.output.tools import call_ids
from oxibonsai.sampling import SamplingParams, TokenLogprobs
from oxibonsai.tokenizer import Tokenizer

P = ParamSpec("P")
Messages = Items[Mapping[str, Any]]
# Text, token ids, or vLLM's dicts with "prompt" or "prompt_token_ids".
Prompt = str | Items[int] | Mapping[str, Any]

# vLLM's names for arguments of load().
_VLLM_NAMES = {
    "max_model_len": "ctx_size",
    "max_num_seqs": "parallel",
    "enable_prefix_caching": "prefix_cache",
    "kv_cache_dtype": "kv_type",
}


@dataclass(frozen=True)
class Logprob:
    """A token that could have come.

    Attributes:
        logprob: Natural logarithm of its probability.
        rank: 1 for the most likely token; None for one that is not among the most likely asked for.
        decoded_token: Its text.
    """

    logprob: float
    rank: int | None
    decoded_token: str | None


@dataclass
class CompletionOutput:
    """One text for a prompt.

    Attributes:
        index: Which of the samples of its prompt.
        text: What was generated so far; stop strings are no part of it.
        token_ids: Its ids, an end-of-text id included.
        cumulative_logprob: Sum of the tokens' log-probabilities, where they were asked for.
        logprobs: For each token the most likely ones and itself, by id, where they were asked for.
        finish_reason: ``"stop"``, ``"length"``, in a chat ``"tool_calls"``; None while it runs.
        stop_reason: The stop string or token id that ended it; None for the model's own end.
        seed: Of its draws.
        reply: In a chat: the answer, the reasoning and the tool calls apart.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: str | int | None
    seed: int
    reply: Reply | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """A prompt and what came of it.

    Attributes:
        request_id: Counts the requests of this object, as text.
        prompt: Its text; None where ids were given.
        prompt_token_ids: Its ids.
        outputs: One for each sample.
        finished: Whether all of them are.
        num_cached_tokens: Tokens of the prompt that were found in the cache.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0


@dataclass(frozen=True)
class EmbeddingOutput:
    """The vector of a text."""

    embedding: list[float] = field(repr=False)


@dataclass(frozen=True)
class EmbeddingRequestOutput:
    """A text and its vector."""

    request_id: str
    outputs: EmbeddingOutput


class ChatEngine(Engine):
    """An engine that takes conversations, too; made by :func:`oxibonsai.load`."""

    def chat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        options: Options | None = None,
        **fields: Any,
    ) -> ChatReply:
        """Begins an answer: iterate over its pieces, then look at ``reply``.

        Args:
            messages: The conversation, oldest first, each with ``role`` and ``content``.
            params: How to choose tokens.
            options: Of the engine.
            **fields: Of :class:`oxibonsai.chat.ChatRequest`: ``tools``, ``enable_thinking`` ...

        Raises:
            RequestError: The model has no chat template, or the request makes no sense for it.
        """
        return answer(self, ChatRequest(messages, **fields), params or SamplingParams(), options)


def _with_chat(make: Callable[P, Engine]) -> Callable[P, ChatEngine]:
    @wraps(make)
    def load(*args: P.args, **kwargs: P.kwargs) -> ChatEngine:
        e = make(*args, **kwargs)
        tokenizer = e.tokenizer if e.has_tokenizer else None
        return ChatEngine(e.model, tokenizer, e.cache, ctx_size=e.ctx_size, policy=e.policy)

    return load


load = _with_chat(engines.load)


@dataclass
class _Request:
    """A prompt whose samples have been submitted."""

    id: str
    prompt: str | None
    ids: list[int]
    sequences: list[Sequence]
    turn: ChatTurn | None = None


class _Requests:
    """Makes requests of prompts and conversations, and results of them."""

    def __init__(
        self, model: str | os.PathLike[str] | Engine | None, options: dict[str, Any]
    ) -> None:
        if isinstance(model, Engine):
            if options:
                raise TypeError("an engine is loaded already; give it no further arguments")
            self.engine = model
        else:
            named = {_VLLM_NAMES.get(name, name): value for name, value in options.items()}
            self.engine = load(model, **named)
        self._count = 0

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.engine.tokenizer

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.engine!r})"

    def _submit(
        self, prompt: Prompt, params: SamplingParams, options: Options | None, n: int
    ) -> _Request:
        text, ids = self._read(prompt)
        sequences = submit_samples(self.engine, ids, params, options, n=n)
        return _Request(self._next_id(), text, list(ids), sequences)

    def _submit_chat(
        self,
        messages: Messages,
        params: SamplingParams,
        options: Options | None,
        n: int,
        fields: dict[str, Any],
    ) -> _Request:
        turn = prepare(self.engine, ChatRequest(messages, **fields), options)
        sequences = submit_samples(self.engine, turn.ids, params, turn.options, n=n)
        return _Request(self._next_id(), turn.prompt, turn.ids, sequences, turn)

    def _read(self, prompt: Prompt) -> tuple[str | None, Items[int]]:
        """Text and ids of a prompt in any of its forms."""
        if isinstance(prompt, Mapping):
            unknown = prompt.keys() - {"prompt", "prompt_token_ids"}
            if unknown or len(prompt) != 1:
                raise RequestError(
                    'a prompt is text, ids, {"prompt": ...} or {"prompt_token_ids": ...}'
                )
            prompt = next(iter(prompt.values()))
        if isinstance(prompt, str):
            return prompt, self.engine.tokenizer.encode(prompt)
        ids: Any = prompt  # whatever it is, the engine says what is wrong with it
        return None, self.engine.check_prompt(ids)

    def _next_id(self) -> str:
        self._count += 1
        return str(self._count - 1)

    def _output(self, request: _Request) -> RequestOutput:
        outputs = [self._completion(request, i) for i in range(len(request.sequences))]
        return RequestOutput(
            request.id,
            request.prompt,
            request.ids,
            outputs,
            all(s.finished for s in request.sequences),
            request.sequences[0].num_cached,
        )

    def _completion(self, request: _Request, index: int) -> CompletionOutput:
        s = request.sequences[index]
        reason = s.finish_reason  # read first: the text is complete once there is one
        reply = None
        if request.turn is not None:
            parser = request.turn.parser(call_ids(str(s.sampler.seed)))
            parser.feed(s.text)
            if reason is not None:
                parser.finish(cut=reason == "length")
                reason = parser.finish_reason(reason)
            reply = parser.reply
        own_end = s.matched_stop in self.engine.eos_ids
        wanted = s.params.logprobs
        return CompletionOutput(
            index,
            s.text,
            s.generated,
            sum(t.logprob for t in s.logprobs) if wanted else None,
            [self._logprobs(t) for t in s.logprobs] if wanted else None,
            reason,
            None if own_end else s.matched_stop,
            s.sampler.seed,
            reply,
        )

    def _logprobs(self, found: TokenLogprobs) -> dict[int, Logprob]:
        ranks = {token: rank for rank, (token, _) in enumerate(found.top, 1)}
        listed = {token: logprob for token, logprob in found.top}
        listed.setdefault(found.token, found.logprob)
        return {
            token: Logprob(logprob, ranks.get(token), self._text_of(token))
            for token, logprob in listed.items()
        }

    def _text_of(self, token: int) -> str | None:
        if not self.engine.has_tokenizer or token >= self.engine.tokenizer.vocab_size:
            return None
        return self.engine.tokenizer.token_bytes(token).decode("utf-8", "replace")


class LLM(_Requests):
    """Generates for many prompts at once, with the interface of vLLM's class of this name.

    Args:
        model: What :func:`oxibonsai.load` takes, or an engine; None for the default model.
        **options: Of :func:`oxibonsai.load`. vLLM's ``max_model_len``, ``max_num_seqs``,
            ``enable_prefix_caching`` and ``kv_cache_dtype`` are other names of ``ctx_size``,
            ``parallel``, ``prefix_cache`` and ``kv_type``.

    Attributes:
        engine: Runs it.
    """

    def __init__(
        self, model: str | os.PathLike[str] | Engine | None = None, **options: Any
    ) -> None:
        super().__init__(model, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends what runs and frees the model."""
        self.engine.close()

    def generate(
        self,
        prompts: Prompt | Items[Prompt],
        sampling_params: SamplingParams | Items[SamplingParams] | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
    ) -> list[RequestOutput]:
        """Continues prompts, all in shared steps.

        Args:
            prompts: One or several: text, taken as it stands; token ids; ``{"prompt": ...}`` or
                ``{"prompt_token_ids": ...}``.
            sampling_params: How to choose tokens, for all prompts or one each; None:
                ``SamplingParams()``.
            n: Texts for each prompt, 1 to 128.
            options: Of the engine.

        Returns:
            One for each prompt, in order.

        Raises:
            RequestError: A prompt or parameter is refused; nothing has been generated then.
        """
        listed = _listed(prompts)
        params = _each(sampling_params, len(listed))
        pairs = zip(listed, params, strict=True)
        return self._finish([partial(self._submit, p, s, options, n) for p, s in pairs])

    def chat(
        self,
        messages: Messages | Items[Messages],
        sampling_params: SamplingParams | Items[SamplingParams] | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
        **fields: Any,
    ) -> list[RequestOutput]:
        """Answers one conversation or several, all in shared steps.

        Args:
            messages: Messages with ``role`` and ``content``, or a list of such lists.
            sampling_params, n, options: As for :meth:`generate`.
            **fields: Of :class:`oxibonsai.chat.ChatRequest`: ``tools``, ``structure``,
                ``enable_thinking``, ``thinking_budget``, ``template_options`` ...

        Returns:
            One for each conversation, in order; ``outputs[0].reply`` has the answer, the reasoning
            and the tool calls apart.

        Raises:
            RequestError: The model has no chat template, or a conversation is refused.
        """
        if isinstance(messages, str | Mapping) or not isinstance(messages, Items) or not messages:
            raise RequestError("messages is no list of messages, each with role and content")
        several = not isinstance(messages[0], Mapping)
        listed: list[Any] = list(messages) if several else [messages]
        pairs = zip(listed, _each(sampling_params, len(listed)), strict=True)
        return self._finish(
            [partial(self._submit_chat, m, s, options, n, fields) for m, s in pairs]
        )

    def embed(
        self, prompts: str | Items[str | Items[int]], **options: Any
    ) -> list[EmbeddingRequestOutput]:
        """One vector for each text; options as of :meth:`oxibonsai.Engine.embed`."""
        listed = [prompts] if isinstance(prompts, str) else prompts
        vectors = self.engine.embed(listed, **options)
        return [
            EmbeddingRequestOutput(self._next_id(), EmbeddingOutput(v.tolist())) for v in vectors
        ]

    def _finish(self, submits: list[Callable[[], _Request]]) -> list[RequestOutput]:
        requests: list[_Request] = []
        try:
            for submit in submits:
                requests.append(submit())
            for request in requests:
                for s in request.sequences:
                    while not s.finished:
                        self.engine.advance(s)
                    s.raise_error()
            return [self._output(r) for r in requests]
        finally:
            for request in requests:
                for s in request.sequences:
                    self.engine.cancel(s)


class AsyncLLM(_Requests):
    """Generates for the coroutines of a program, whose requests share steps.

    The engine runs in a thread of its own. Use it as ``async with AsyncLLM(...) as llm``, or close it.

    Args:
        model, **options: As of :class:`LLM`.

    Attributes:
        engine: Runs it.
    """

    def __init__(
        self, model: str | os.PathLike[str] | Engine | None = None, **options: Any
    ) -> None:
        super().__init__(model, options)
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._runner = EngineRunner(self.engine)
        self._runner.after_step = self._wake

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Ends what runs, the thread and frees the model."""
        self._runner.close()
        self._wake()
        self.engine.close()

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Continues a prompt; gives all there is so far whenever there is more.

        Leaving the loop early, or cancelling the task, cancels the request. Arguments as of
        :meth:`LLM.generate`.
        """
        params = sampling_params or SamplingParams()
        async for output in self._follow(partial(self._submit, prompt, params, options, n)):
            yield output

    async def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
        **fields: Any,
    ) -> AsyncIterator[RequestOutput]:
        """Answers a conversation, as :meth:`generate`; arguments as of :meth:`LLM.chat`."""
        params = sampling_params or SamplingParams()
        async for output in self._follow(
            lambda: self._submit_chat(messages, params, options, n, fields)
        ):
            yield output

    async def _follow(self, submit: Callable[[], _Request]) -> AsyncIterator[RequestOutput]:
        changed = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(changed)
        request = None
        try:
            request = await asyncio.to_thread(submit)
            seen = -1
            while True:
                changed[1].clear()
                output = self._output(request)
                for s in request.sequences:
                    s.raise_error()
                count = sum(len(o.token_ids) for o in output.outputs)
                if output.finished or count > max(seen, 0):
                    seen = count
                    yield output
                if output.finished:
                    return
                if self._runner.failure is not None:
                    raise self._runner.failure
                await changed[1].wait()
        finally:
            self._waiting.discard(changed)
            for s in request.sequences if request is not None else ():
                self.engine.cancel(s)

    def _wake(self) -> None:
        """Called in the engine's thread after each step."""
        for loop, event in list(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


def _listed(prompts: Any) -> list[Any]:
    """Several prompts, of one or several."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    listed = list(prompts) if hasattr(prompts, "__iter__") else [prompts]
    is_one = bool(listed) and not isinstance(listed[0], str | Mapping) and _is_number(listed[0])
    return [prompts] if is_one else listed


def _is_number(value: Any) -> bool:
    return hasattr(value, "__index__") and not getattr(value, "ndim", 0)


def _each(
    params: SamplingParams | Items[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    listed = list(params) if isinstance(params, Items) else [params]
    for p in listed:
        if not isinstance(p, SamplingParams):
            raise RequestError(f"sampling_params has {p!r}; it must be a SamplingParams")
    if len(listed) != count:
        raise RequestError(f"there are {count} prompts and {len(listed)} sampling_params")
    return listed
