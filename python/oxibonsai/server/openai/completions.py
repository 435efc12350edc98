"""``/v1/completions``: continues prompts, in the format of OpenAI's legacy API."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, request

from oxibonsai.engine import Beam, Engine, Options
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.server import beam_search
from oxibonsai.server.beam_search import BeamSearch
from oxibonsai.server.generation import Generation, follow
from oxibonsai.server.http.stream_writer import OutputEvent
from oxibonsai.server.inputs import PromptLimit
from oxibonsai.server.lost_work import repeatable
from oxibonsai.server.openai.completion_response import completion_response, fingerprint
from oxibonsai.server.openai.infill import infill_params, infill_prompt
from oxibonsai.server.openai.logprobs import (
    ShownToken,
    ShownTokens,
    TextOffsets,
    completion_form,
    prompt_tokens,
    ranked_tokens,
)
from oxibonsai.server.openai.prompts import ReadPrompt, read_prompts, text_of
from oxibonsai.server.openai.schemas.completion import CompletionBody, Prompts
from oxibonsai.server.openai.timings import PromptProgress, beam_usage, timings, usage
from oxibonsai.server.server import Server
from oxibonsai.server.sse import DONE, chunk_heads, compact, quoted
from oxibonsai.server.validation import check_model, read_body


def completions_blueprint(app: Server) -> Blueprint:
    """Serve one route; ``/completions`` without ``/v1`` is llama-server's own API."""
    bp = Blueprint("completions", __name__)

    @bp.post("/v1/completions")
    @repeatable
    def create_completion() -> Response:
        body = read_body(CompletionBody, request)
        return completion_response(
            app, OpenAICompletionHandler(app, body), streams=bool(body.stream)
        )

    return bp


def begin_all(
    app: Server,
    prompts: list[ReadPrompt],
    params: SamplingParams,
    options: Options,
    n: int,
    *,
    slot: int | None = None,
) -> list[Generation]:
    """Submit all prompts to the engines, or none if one is rejected."""
    group: list[Generation] = []
    try:
        for prompt in prompts:
            own = replace(options, images=prompt.images)
            group.append(app.submitter.text(prompt.ids, params, own, n=n, slot=slot))
    except BaseException:
        for generation in group:
            generation.close()
        raise
    return group


class OpenAICompletionHandler:
    """The choices of one request: n for each prompt, with consecutive indices.

    Args:
        app: The application.
        body: The request.

    Raises:
        RequestError, ApiError, CapacityError: The request is rejected; nothing runs.
    """

    def __init__(self, app: Server, body: CompletionBody) -> None:
        check_model(body.model, app.settings)
        _refuse(body)
        self._app, self._body = app, body
        self._engine: Engine = app.submitter.engine
        self._n = body.n or 1
        limit = app.submitter.settings.n_predict if body.limit in (None, -1) else body.limit
        self._search = body.beam_search(self._n, limit)
        self._beams: list[list[Beam]] = []
        self._made = max(self._n, body.best_of or 0)
        self._echoed: dict[int, list[ShownToken]] = {}
        prompt_limit = PromptLimit(self._engine.ctx_size)
        # A prompt that will be truncated may be longer.
        bound = prompt_limit if body.truncate_prompt_tokens is None else None
        if body.suffix:
            prompts = [ReadPrompt(self._infill(p, prompt_limit)) for p in _texts_of(body.prompt)]
        else:
            prompts = read_prompts(
                body.prompt,
                self._engine.tokenizer,
                "prompt",
                bound,
                image_reader=self._engine.image_reader,
            )
            _refuse_images(body, prompts)
            prompts = [replace(p, ids=self._truncated(p.ids)) for p in prompts]
        self._prompts = [prompt.ids for prompt in prompts]
        params = body.sampling_params(
            app.submitter.settings,
            self._engine,
            max_tokens=1 if body.limit == 0 else body.limit,
            logprobs=body.logprobs is not None or self._made > self._n,
            top_logprobs=body.logprobs or 0,
        )
        if body.suffix:
            params = infill_params(params, self._engine.tokenizer)
        self._head = {
            "id": f"cmpl-{secrets.token_urlsafe(24)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": app.submitter.model_id,
            "system_fingerprint": fingerprint(),
        }
        for ids in self._prompts:
            prompt_limit.check_count(len(ids))
        self.group: list[Generation] = []
        if body.limit != 0:
            options = Options(
                structure=body.structure(),
                cache_salt=body.cache_salt or "",
                speculate=body.speculate(app.submitter.speculate),
            )
            if self._search is None:
                self.group = begin_all(app, prompts, params, options, self._made, slot=body.id_slot)
            else:
                self._beams = [self._found(p, options, self._search) for p in prompts]

    def _found(self, prompt: ReadPrompt, options: Options, asked: BeamSearch) -> list[Beam]:
        own = replace(options, images=prompt.images)
        return beam_search.run(self._app.submitter, prompt.ids, own, asked, request.environ)

    def _infill(self, prompt: str, prompt_limit: PromptLimit) -> list[int]:
        return infill_prompt(self._engine.tokenizer, prompt, self._body.suffix or "", prompt_limit)

    def _truncated(self, ids: list[int]) -> list[int]:
        """Return the last tokens of a prompt, after the BOS token that the server prepended."""
        most, fitting = self._body.truncate_prompt_tokens, self._engine.ctx_size - 1
        if most is None:
            return ids
        if most == -1:
            most = max(1, fitting - max(0, (self._body.limit or 1) - 1))
        if len(ids) <= most:
            return ids
        first = ids[:1] if most > 1 and ids[0] == self._engine.tokenizer.bos_id else []
        return [*first, *ids[len(ids) - most + len(first) :]]

    @property
    def output_event(self) -> OutputEvent | None:
        """The event shared by the generations; None without any, or if an echo runs the prompts again."""
        slow = self._body.echo and self._body.logprobs is not None
        return None if slow or not self.group else self.group[0].output_event

    def close(self) -> None:
        """Cancel generations that still run."""
        for generation in self.group:
            generation.close()

    def result(self) -> dict[str, Any]:
        """Return the response body, after all generations have ended."""
        choices = [choice for i in range(len(self._prompts)) for choice in self._choices_of(i)]
        whole = {**self._head, "choices": choices, "usage": self._usage()}
        if self.group:
            whole["timings"] = timings(self.group[0], self.group[0].choices[0])
        return whole

    def frames(self) -> Iterator[str | None]:
        """Yield chunks with text, a chunk with the finish reason of each choice, then the usage."""
        body = self._body
        head, last = chunk_heads(self._head, counts=body.wants_usage)
        writers = _Writers(self, head)
        progress = [PromptProgress(a) for a in self.group] if body.return_progress else []
        for which in range(len(self._prompts)):
            for j in range(self._n):
                if body.echo:
                    yield writers.echo(which, j)
                if not self.group:
                    yield writers.end(which * self._n + j, "length")
        for which, j, delta in follow(self.group):
            for report in (r for p in progress for r in p.new_reports()):
                yield f'{head}],"prompt_progress":{compact(report)}}}\n\n'
            if which < 0:
                yield None
            elif delta is None:
                choice = self.group[which].choices[j]
                rest = "" if body.wants_usage else f',"timings":{self.timings_json(which, j)}'
                yield writers.end(which * self._n + j, choice.finish_reason or "", rest)
            else:
                yield writers.piece(which, j, delta.content)
        if body.wants_usage:
            rest = f',"usage":{compact(self._usage())}'
            if self.group:
                rest += f',"timings":{self.timings_json(0, 0)}'
            yield f"{last}]{rest}}}\n\n"
        yield DONE

    def _usage(self) -> dict[str, Any]:
        counts = usage(self.group)
        if self._beams:
            new = sum(len(beam.tokens) for beams in self._beams for beam in beams)
            return beam_usage(sum(map(len, self._prompts)), new)
        if not self.group:  # only prompts, nothing generated
            counts["prompt_tokens"] = counts["total_tokens"] = sum(map(len, self._prompts))
        return counts

    def timings_json(self, which: int, index: int) -> str:
        """Return the timings of a choice up to now."""
        generation = self.group[which]
        return compact(timings(generation, generation.choices[index]))

    def prompt_text(self, which: int) -> str:
        """Return the prompt as an echo repeats it, without the BOS token that the server prepended."""
        tokenizer = self._engine.tokenizer
        ids = self._prompts[which]
        if ids and ids[0] == tokenizer.bos_id:
            ids = ids[1:]
        text = text_of(ids, tokenizer)
        return text.removeprefix(" ") if tokenizer.strips_leading_space else text

    def echoed_tokens(self, which: int) -> list[ShownToken]:
        """Return log-probabilities of a prompt's tokens, except for the first one.

        Runs the prompt again, since a step keeps only the logits of its last position.
        """
        if which in self._echoed:
            return self._echoed[which]
        top = self._body.logprobs or 0
        tokens = prompt_tokens(self._engine, self._prompts[which], top)
        if tokens and self._engine.tokenizer.strips_leading_space:  # so does the echo
            tokens[0] = replace(tokens[0], data=tokens[0].data.removeprefix(b" "))
        self._echoed[which] = tokens
        return tokens

    def form(self, tokens: list[ShownToken], offsets: TextOffsets) -> dict[str, Any] | None:
        """Return the ``logprobs`` member for some tokens; None if it was not requested."""
        if self._body.logprobs is None:
            return None
        return completion_form(tokens, self._engine.tokenizer, offsets, self._body.logprobs)

    @property
    def body(self) -> CompletionBody:
        """The request."""
        return self._body

    @property
    def engine(self) -> Engine:
        """One of the engines."""
        return self._engine

    def _choices_of(self, which: int) -> list[dict[str, Any]]:
        """Return the choices of one prompt; the best ones if more were generated."""
        choices = self._texts_of(which)
        if self._body.prompt_logprobs is not None:
            asked = ranked_tokens(self._engine, self._prompts[which], self._body.prompt_logprobs)
            choices = [{**choice, "prompt_logprobs": asked} for choice in choices]
        return choices

    def _texts_of(self, which: int) -> list[dict[str, Any]]:
        echo = self.prompt_text(which) if self._body.echo else ""
        wants_echo = self._body.echo and self._body.logprobs is not None
        before = self.echoed_tokens(which) if wants_echo else []
        if self._beams:
            return [
                _object(which * self._n + j, beam.text, None, beam.finish_reason)
                for j, beam in enumerate(self._beams[which])
            ]
        if not self.group:
            return [
                _object(which * self._n + j, echo, self.form(before, TextOffsets()), "length")
                for j in range(self._n)
            ]
        choices = self.group[which].choices
        if self._made > self._n:
            choices = sorted(choices, key=lambda c: c.sequence.mean_logprob, reverse=True)
            choices = choices[: self._n]
        return [
            _object(
                which * self._n + j,
                echo + c.reply.content,
                self.form([*before, *ShownTokens(c, self._engine.tokenizer).take()], TextOffsets()),
                c.finish_reason,
            )
            for j, c in enumerate(choices)
        ]


class _Writers:
    """Makes the chunks of a stream."""

    def __init__(self, handler: OpenAICompletionHandler, head: str) -> None:
        self._handler = handler
        self._head = head
        self._shown: dict[tuple[int, int], ShownTokens] = {}
        self._offsets: defaultdict[tuple[int, int], TextOffsets] = defaultdict(TextOffsets)

    def echo(self, which: int, j: int) -> str:
        """Return the prompt, as the first piece of a choice."""
        text = self._handler.prompt_text(which)
        logprobs = "null"
        if self._handler.body.logprobs is not None:
            tokens = self._handler.echoed_tokens(which)
            logprobs = compact(self._handler.form(tokens, self._offsets[which, j]))
        return self._chunk(self._index(which, j), text, logprobs)

    def piece(self, which: int, j: int, text: str) -> str:
        """Return a piece of a choice."""
        logprobs, rest = "null", ""
        if self._handler.body.logprobs is not None:
            key = (which, j)
            if key not in self._shown:
                choice = self._handler.group[which].choices[j]
                self._shown[key] = ShownTokens(choice, self._handler.engine.tokenizer)
            logprobs = compact(self._handler.form(self._shown[key].take(), self._offsets[key]))
        if self._handler.body.timings_per_token:
            rest = f',"timings":{self._handler.timings_json(which, j)}'
        return self._chunk(self._index(which, j), text, logprobs, rest)

    def end(self, index: int, reason: str, rest: str = "") -> str:
        """Return the last chunk of a choice."""
        return (
            f'{self._head}{{"index":{index},"text":"","logprobs":null,'
            f'"finish_reason":{quoted(reason)}}}]{rest}}}\n\n'
        )

    def _index(self, which: int, j: int) -> int:
        return which * (self._handler.body.n or 1) + j

    def _chunk(self, index: int, text: str, logprobs: str, rest: str = "") -> str:
        return (
            f'{self._head}{{"index":{index},"text":{quoted(text)},"logprobs":{logprobs},'
            f'"finish_reason":null}}]{rest}}}\n\n'
        )


def _object(
    index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _texts_of(prompt: Prompts) -> list[str]:
    """Return the prompts of a request with a suffix, which are texts."""
    texts = prompt if isinstance(prompt, list) else [prompt]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(
            "suffix needs a prompt that is a text, or a list of texts", param="suffix"
        )
    return [str(text) for text in texts]


def _refuse_images(body: CompletionBody, prompts: list[ReadPrompt]) -> None:
    """Raise RequestError for fields that read a prompt's tokens again, which its images are none of."""
    if not any(prompt.images for prompt in prompts):
        return
    for name in ("echo", "prompt_logprobs", "truncate_prompt_tokens"):
        if getattr(body, name) not in (None, False):
            raise RequestError(f"{name} does not go with pictures: leave it out", param=name)


def _refuse(body: CompletionBody) -> None:
    if body.suffix and (body.echo or body.truncate_prompt_tokens is not None):
        raise RequestError(
            "suffix can't be combined with echo and truncate_prompt_tokens", param="suffix"
        )
    body.check_best_of(body.n or 1)
    if (body.best_of or 1) > (body.n or 1) and body.stream:
        raise RequestError(
            "best_of can't be streamed: the best choices are only known at the end", param="best_of"
        )
    if body.prompt_logprobs is not None and body.stream:
        raise RequestError(
            "prompt_logprobs can't be streamed: send stream=false", param="prompt_logprobs"
        )
    if body.truncate_prompt_tokens == 0:
        raise RequestError(
            "truncate_prompt_tokens is 0: nothing would be left of the prompt",
            param="truncate_prompt_tokens",
        )
    if body.limit == 0 and not body.echo and body.prompt_logprobs is None:
        raise RequestError(
            "max_tokens is 0: there is something to return only with echo or prompt_logprobs",
            param="max_tokens",
        )
