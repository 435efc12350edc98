"""``LLM``: many prompts or conversations at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from oxibonsai.engine import Engine, Options
from oxibonsai.errors import RequestError
from oxibonsai.llm.chat_engine import Messages
from oxibonsai.llm.outputs import EmbeddingOutput, EmbeddingRequestOutput, RequestOutput
from oxibonsai.llm.requests import Prompt, Request, Requests
from oxibonsai.sampling import SamplingParams

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11


class LLM(Requests):
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
        """End what runs and free the model."""
        self.engine.close()

    def generate(
        self,
        prompts: Prompt | Items[Prompt],
        sampling_params: SamplingParams | Items[SamplingParams] | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
    ) -> list[RequestOutput]:
        """Continue prompts, all in shared steps.

        Args:
            prompts: One or several: text, taken as it stands; token ids; ``{"prompt": ...}``,
                ``{"prompt_token_ids": ...}`` or ``{"prompt_embeds": ...}``, which
                :meth:`oxibonsai.engine.Engine.embedded_prompt` takes.
            sampling_params: How to choose tokens, for all prompts or one each; None: as recommended
                for the model (:meth:`get_default_sampling_params`).
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
        return self._finish([partial(self.submit, p, s, options, n) for p, s in pairs])

    def chat(
        self,
        messages: Messages | Items[Messages],
        sampling_params: SamplingParams | Items[SamplingParams] | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
        **fields: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several, all in shared steps.

        Args:
            messages: Messages with ``role`` and ``content``, or a list of such lists.
            sampling_params: As for :meth:`generate`.
            n: As for :meth:`generate`.
            options: As for :meth:`generate`.
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
        if several and isinstance(messages[0], str):
            raise RequestError(
                "messages has a string; a message is an object with role and content"
            )
        listed: list[Any] = list(messages) if several else [messages]
        pairs = zip(listed, _each(sampling_params, len(listed)), strict=True)
        return self._finish([partial(self.submit_chat, m, s, options, n, fields) for m, s in pairs])

    def embed(
        self, prompts: str | Items[str | Items[int]], **options: Any
    ) -> list[EmbeddingRequestOutput]:
        """Return one vector for each text; options as of :meth:`oxibonsai.Engine.embed`."""
        listed = [prompts] if isinstance(prompts, str) else prompts
        vectors = self.engine.embed(listed, **options)
        return [
            EmbeddingRequestOutput(self.next_id(), EmbeddingOutput(v.tolist())) for v in vectors
        ]

    def _finish(self, submits: list[Callable[[], Request]]) -> list[RequestOutput]:
        requests: list[Request] = []
        try:
            for submit in submits:
                requests.append(submit())
            for request in requests:
                for s in request.sequences:
                    while not s.finished:
                        self.engine.advance(s)
                    s.raise_error()
            return [self.output(r) for r in requests]
        finally:
            for request in requests:
                for s in request.sequences:
                    self.engine.cancel(s)


def _listed(prompts: Any) -> list[Any]:
    """Return several prompts, of one or several."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    listed = list(prompts) if hasattr(prompts, "__iter__") else [prompts]
    is_one = bool(listed) and not isinstance(listed[0], str | Mapping) and _is_number(listed[0])
    return [prompts] if is_one else listed


def _is_number(value: Any) -> bool:
    return hasattr(value, "__index__") and not getattr(value, "ndim", 0)


def _each(
    params: SamplingParams | Items[SamplingParams] | None, count: int
) -> list[SamplingParams] | list[None]:
    if params is None:
        return [None] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    listed = list(params) if isinstance(params, Items) and not isinstance(params, str) else [params]
    for p in listed:
        if not isinstance(p, SamplingParams):
            raise RequestError(f"sampling_params has {p!r}; it must be a SamplingParams")
    if len(listed) != count:
        raise RequestError(f"there are {count} prompts and {len(listed)} sampling_params")
    return listed
