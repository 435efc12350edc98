"""From prompts and conversations to sequences, and from these to results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import count
from typing import Any

from oxibonsai.chat import ChatRequest, PreparedPrompt, prepare
from oxibonsai.engine import Engine, Options, Sequence, submit_samples
from oxibonsai.errors import RequestError
from oxibonsai.llm.chat_engine import Messages, load
from oxibonsai.llm.outputs import CompletionOutput, Logprob, RequestOutput
from oxibonsai.output.tools import call_ids
from oxibonsai.sampling import SamplingParams
from oxibonsai.sampling.sampler import TokenLogprobs
from oxibonsai.tokenizer import Tokenizer

# Text, token ids, or vLLM's dicts with "prompt", "prompt_token_ids" or "prompt_embeds".
Prompt = str | Items[int] | Mapping[str, Any]

# vLLM's names for arguments of load().
_VLLM_NAMES = {
    "max_model_len": "ctx_size",
    "max_num_seqs": "parallel",
    "enable_prefix_caching": "prefix_cache",
    "kv_cache_dtype": "kv_type",
}


@dataclass
class Request:
    """A prompt whose samples have been submitted."""

    id: str
    prompt: str | None
    ids: list[int]
    sequences: list[Sequence]
    prepared: PreparedPrompt | None = None


class Requests:
    """Makes requests of prompts and conversations, and results of them.

    Args:
        model: What :func:`oxibonsai.load` takes, or an engine.
        options: Of ``load``, or vLLM's names of them.

    Attributes:
        engine: Runs them.
    """

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
        self._ids = count()

    def get_tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self.engine.tokenizer

    def get_default_sampling_params(self, thinks: bool | None = None) -> SamplingParams:
        """Return how tokens are chosen where a call does not say it: as recommended for the model.

        Args:
            thinks: Whether the model reasons before it answers; None: its own default.
        """
        return self.engine.recommended.params(thinks)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.engine!r})"

    def submit(
        self, prompt: Prompt, params: SamplingParams | None, options: Options | None, n: int
    ) -> Request:
        """Take in n samples of a prompt; see :func:`oxibonsai.engine.submit_samples`."""
        text: str | None = None
        if isinstance(prompt, Mapping) and prompt.keys() == {"prompt_embeds"}:
            ids, options = self.engine.embedded_prompt(prompt["prompt_embeds"], options)
        else:
            text, ids = self._read(prompt)
        params = params or self.get_default_sampling_params()
        sequences = submit_samples(self.engine, ids, params, options, n=n)
        return Request(self.next_id(), text, ids, sequences)

    def submit_chat(
        self,
        messages: Messages,
        params: SamplingParams | None,
        options: Options | None,
        n: int,
        fields: dict[str, Any],
    ) -> Request:
        """Submit a conversation; fields are those of a ``ChatRequest``."""
        prepared = prepare(self.engine, ChatRequest(messages, **fields), options)
        params = params or self.get_default_sampling_params(prepared.thinks)
        sequences = submit_samples(self.engine, prepared.ids, params, prepared.options, n=n)
        return Request(self.next_id(), prepared.prompt, prepared.ids, sequences, prepared)

    def _read(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        """Return the text and ids of a prompt in any of its forms."""
        if isinstance(prompt, Mapping):
            unknown = prompt.keys() - {"prompt", "prompt_token_ids"}
            if unknown or len(prompt) != 1:
                raise RequestError(
                    'a prompt is text, ids, {"prompt": ...}, {"prompt_token_ids": ...} or '
                    '{"prompt_embeds": ...}'
                )
            prompt = next(iter(prompt.values()))
        if isinstance(prompt, str):
            return prompt, self.engine.tokenizer.encode(prompt)
        ids: Any = prompt  # whatever it is, the engine says what is wrong with it
        return None, self.engine.check_prompt(ids)

    def next_id(self) -> str:
        """Return a new request's id."""
        return str(next(self._ids))

    def output(self, request: Request) -> RequestOutput:
        """Return a request's result so far."""
        outputs = [self._completion(request, i) for i in range(len(request.sequences))]
        return RequestOutput(
            request.id,
            request.prompt,
            request.ids,
            outputs,
            all(s.finished for s in request.sequences),
            request.sequences[0].num_cached,
        )

    def _completion(self, request: Request, index: int) -> CompletionOutput:
        s = request.sequences[index]
        reason = s.finish_reason  # read first: the text is complete once there is one
        reply = None
        if request.prepared is not None:
            parser = request.prepared.parser(call_ids(str(s.sampler.seed)))
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
