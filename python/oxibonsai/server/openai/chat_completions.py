"""``/v1/chat/completions``: the next message of a conversation, whole or as a stream of chunks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai.chat import PreparedPrompt
from oxibonsai.engine import Options
from oxibonsai.errors import RequestError
from oxibonsai.output import Delta, Reply
from oxibonsai.output.tools import call_ids
from oxibonsai.server import beam_search
from oxibonsai.server.access import owner
from oxibonsai.server.beam_search import BeamSearch
from oxibonsai.server.generation import Generation
from oxibonsai.server.inputs import PromptLimit
from oxibonsai.server.lost_work import repeatable
from oxibonsai.server.openai.completion_response import fingerprint
from oxibonsai.server.openai.conversations import stored_completion
from oxibonsai.server.openai.kept_answers import KeptAnswers
from oxibonsai.server.openai.logprobs import ShownTokens, chat_form
from oxibonsai.server.openai.prompts import text_of
from oxibonsai.server.openai.schemas.chat import ChatBody, ConversationFields
from oxibonsai.server.openai.timings import PromptProgress, beam_usage, chat_usage, timings
from oxibonsai.server.response_choice import Choice
from oxibonsai.server.server import Server
from oxibonsai.server.settings import Settings
from oxibonsai.server.sse import DONE, chunk_heads, compact, quoted, stream_response
from oxibonsai.server.storage_limit import check_room
from oxibonsai.server.stores import Collection
from oxibonsai.server.validation import check_model, read_body
from oxibonsai.tokenizer import Tokenizer


class ChunkWriter:
    """Formats the chunks of one stream; their common part is formatted once.

    Args:
        head, counts: As in :func:`~oxibonsai.server.sse.chunk_heads`.
    """

    def __init__(self, head: dict[str, Any], *, counts: bool) -> None:
        self._head, self._last = chunk_heads(head, counts=counts)

    def choice(
        self,
        index: int,
        delta: str,
        rest: str = "",
        *,
        logprobs: str = "null",
        finish: str = "null",
    ) -> str:
        """Return a chunk of one choice.

        Args:
            index: Index of the choice.
            delta: JSON of the delta.
            rest: Further members of the chunk, each preceded by a comma.
            logprobs: JSON of the log-probabilities.
            finish: JSON of the finish reason.
        """
        return (
            f'{self._head}{{"index":{index},"delta":{delta},"logprobs":{logprobs},'
            f'"finish_reason":{finish}}}]{rest}}}\n\n'
        )

    def last(self, rest: str) -> str:
        """Return a chunk without choices."""
        return f"{self._last}]{rest}}}\n\n"


class ChatStream:
    """Formats the stream of one chat completion.

    Args:
        app: The application.
        body: The request.
        generation: The running generation.
        head: The members that all chunks share.
        keep: Stores the completion; called once it is complete, before the last chunk. None: it is
            not stored.
    """

    def __init__(
        self,
        app: Server,
        body: ChatBody,
        generation: Generation,
        head: dict[str, Any],
        keep: Callable[[], None] | None = None,
    ) -> None:
        self._body = body
        self._generation = generation
        self._tokenizer = app.submitter.engine.tokenizer
        self._keep = keep
        self._writer = ChunkWriter(head, counts=body.wants_usage)
        self._shown: dict[int, ShownTokens] = {}
        self._verbose = app.settings.verbose if body.verbose is None else body.verbose

    def frames(self) -> Iterator[str | None]:
        """Yield the role, deltas and finish reason of each choice, then the usage if requested."""
        body, generation, write = self._body, self._generation, self._writer
        progress = PromptProgress(generation) if body.return_progress else None
        for index in range(body.n or 1):
            yield write.choice(index, '{"role":"assistant","content":null}')
        plain = not (body.logprobs or body.timings_per_token)
        for index, delta in generation.stream():
            if progress is not None:
                yield from self._progress(progress)
            if index < 0:
                yield None
            elif delta is None:
                yield self._finish(generation.choices[index])
            elif plain and delta.content:
                yield write.choice(index, f'{{"content":{quoted(delta.content)}}}')
            else:
                yield self._piece(generation.choices[index], delta)
        if self._keep is not None:
            self._keep()
        if body.wants_usage:
            counts = compact(chat_usage(generation, self._tokenizer))
            rest = f',"usage":{counts},"timings":{self._timings(0)}'
            yield write.last(rest + self._verbose_part())
        yield DONE

    def _piece(self, choice: Choice, delta: Delta) -> str:
        rest = ""
        if self._body.timings_per_token:
            rest = f',"timings":{self._timings(choice.index)}'
        text = delta_json(delta)
        logprobs = "null"
        if self._body.logprobs:
            logprobs = compact({"content": self._new_logprobs(choice), "refusal": None})
        return self._writer.choice(choice.index, text, rest, logprobs=logprobs)

    def _new_logprobs(self, choice: Choice) -> list[dict[str, Any]]:
        """Return log-probabilities of the tokens since the last chunk."""
        if choice.index not in self._shown:
            self._shown[choice.index] = ShownTokens(choice, self._tokenizer)
        return chat_form(self._shown[choice.index].take(), self._tokenizer)

    def _finish(self, choice: Choice) -> str:
        rest = ""
        if not self._body.wants_usage:
            rest = f',"timings":{self._timings(choice.index)}{self._verbose_part()}'
        logprobs = "null"
        # Markers, such as the end of a tool call, are tokens that belong to no delta.
        if self._body.logprobs and (tokens := self._new_logprobs(choice)):
            logprobs = compact({"content": tokens, "refusal": None})
        finish = quoted(choice.finish_reason or "")
        return self._writer.choice(choice.index, "{}", rest, logprobs=logprobs, finish=finish)

    def _progress(self, progress: PromptProgress) -> Iterator[str]:
        for report in progress.new_reports():
            yield self._writer.choice(0, "{}", f',"prompt_progress":{compact(report)}')

    def _timings(self, index: int) -> str:
        return compact(timings(self._generation, self._generation.choices[index]))

    def _verbose_part(self) -> str:
        if not self._verbose or self._generation.prepared is None:
            return ""
        prompt = text_of(self._generation.prepared.ids, self._tokenizer)
        return f',"__verbose":{compact({"prompt": prompt})}'


def delta_json(delta: Delta) -> str:
    """Return JSON of a chunk's delta."""
    if delta.content:
        return f'{{"content":{quoted(delta.content)}}}'
    if delta.reasoning_content:
        return f'{{"reasoning_content":{quoted(delta.reasoning_content)}}}'
    call = delta.tool_call
    assert call is not None  # one of the three is not empty
    function: dict[str, str] = {"arguments": call.arguments}
    whole: dict[str, Any] = {"index": call.index}
    if call.id is not None:
        whole |= {"id": call.id, "type": "function"}
    if call.name is not None:
        function = {"name": call.name, **function}
    whole["function"] = function
    return compact({"tool_calls": [whole]})


def chat_blueprint(app: Server, answers: KeptAnswers) -> Blueprint:
    """Return the routes for chat completions and for counting the tokens of a conversation.

    Args:
        app: The application.
        answers: Keeps those that go on in the background.
    """
    bp = Blueprint("chat", __name__)

    @bp.post("/v1/chat/completions")
    @bp.post("/chat/completions")
    @repeatable
    def create_chat_completion() -> Response:
        body = read_body(ChatBody, request)
        if body.background and not body.stream:
            raise RequestError("background requires stream: true", param="background")
        if body.store:
            check_room()
        limit = body.limit
        if limit in (None, -1):
            limit = app.submitter.settings.n_predict
        if (asked := body.beam_search(body.n or 1, limit)) is not None:
            return jsonify(_best_texts(app, body, asked))
        if (body.best_of or 1) > 1:
            raise RequestError(
                "best_of of a chat completion is for use_beam_search: /v1/completions has it for samples",
                param="best_of",
            )
        generation = begin(app, body)
        head = _head(app)
        whole = partial(_completion, body, generation, head, app.submitter.engine.tokenizer)
        if body.stream:
            keep = partial(_keep, app.store.chat_completions, owner(), body, whole)
            stream = ChatStream(app, body, generation, head, keep if body.store else None)
            if body.background:
                key = owner(), head["id"]
                lease = app.keep_model()
                return answers.begin(key, stream.frames(), close=generation.close, lease=lease)
            return stream_response(
                stream.frames(),
                close=generation.close,
                stopping=lambda: app.lifecycle.stopping,
                # The engine's thread does not wait for the store.
                output_event=None if body.store else generation.output_event,
            )
        with generation:
            generation.wait(request.environ)
            answer = whole()
        if body.store:
            app.store.chat_completions.create(owner(), stored_completion(body, answer))
        if verbose(body.verbose, app.settings) and generation.prepared is not None:
            answer["__verbose"] = verbose_object(
                generation.prepared, app.submitter.engine.tokenizer
            )
        return jsonify(answer)

    @bp.post("/v1/chat/completions/input_tokens")
    @bp.post("/chat/completions/input_tokens")
    def count_tokens() -> Response:
        body = read_body(ConversationFields, request)
        prepared = app.submitter.read_chat(body.chat_request(app.submitter.settings))
        return jsonify(input_tokens=len(prepared.ids))

    return bp


def begin(app: Server, body: ChatBody) -> Generation:
    """Submit a conversation to the engines.

    Raises:
        RequestError, ApiError, CapacityError: See :meth:`Submitter.chat`.
    """
    engine = app.submitter.engine
    check_model(body.model, app.settings)
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs requires logprobs: true", param="top_logprobs")
    asked = body.chat_request(app.submitter.settings, body.structure())
    params = body.sampling_params(
        app.submitter.settings,
        engine,
        max_tokens=body.limit,
        thinks=asked.thinks,
        logprobs=bool(body.logprobs),
        top_logprobs=body.top_logprobs or 0,
    )
    speculate = body.speculate(app.submitter.speculate)
    options = Options(cache_salt=body.cache_salt or "", speculate=speculate)
    return app.submitter.chat(asked, params, options, n=body.n or 1, slot=body.id_slot)


def _best_texts(app: Server, body: ChatBody, asked: BeamSearch) -> dict[str, Any]:
    """Return the answer of a beam search.

    Raises:
        RequestError: The conversation constrains its answer, which beams do not know.
    """
    check_model(body.model, app.settings)
    prompt_limit = PromptLimit(app.submitter.engine.ctx_size)
    conversation = body.chat_request(app.submitter.settings)
    prepared = app.submitter.read_chat(conversation, prompt_limit)
    if prepared.options.structure is not None or prepared.options.constrain is not None:
        raise RequestError(
            "use_beam_search goes with plain answers: leave out tools and budgets of reasoning",
            param="use_beam_search",
        )
    choices, new = [], 0
    beams = beam_search.run(app.submitter, prepared.ids, prepared.options, asked, request.environ)
    for index, beam in enumerate(beams):
        new += len(beam.tokens)
        parser = prepared.parser(call_ids(secrets.token_hex(12), prefix="call_"))
        for _ in (*parser.feed(beam.text), *parser.finish(cut=beam.finish_reason == "length")):
            pass
        choices.append(
            {
                "index": index,
                "message": message(parser.reply),
                "logprobs": None,
                "finish_reason": parser.finish_reason(beam.finish_reason),
            }
        )
    counts = beam_usage(len(prepared.ids), new)
    head = {**_head(app), "object": "chat.completion"}
    return {**head, "choices": choices, "usage": counts}


def _completion(
    body: ChatBody, generation: Generation, head: dict[str, Any], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return the whole answer."""
    return {
        **head,
        "object": "chat.completion",
        "choices": [_choice(c, body, tokenizer) for c in generation.choices],
        "usage": chat_usage(generation, tokenizer),
        "timings": timings(generation, generation.choices[0]),
    }


def _keep(
    store: Collection, who: str, body: ChatBody, completion: Callable[[], dict[str, Any]]
) -> None:
    store.create(who, stored_completion(body, completion()))


def _choice(choice: Choice, body: ChatBody, tokenizer: Tokenizer) -> dict[str, Any]:
    logprobs = None
    if body.logprobs:
        shown = ShownTokens(choice, tokenizer).take()
        logprobs = {"content": chat_form(shown, tokenizer), "refusal": None}
    return {
        "index": choice.index,
        "message": message(choice.reply),
        "logprobs": logprobs,
        "finish_reason": choice.finish_reason,
    }


def message(reply: Reply) -> dict[str, Any]:
    """Return the assistant's message."""
    calls = [
        c.message_form for c in [*reply.tool_calls, *([reply.cut_call] if reply.cut_call else [])]
    ]
    whole: dict[str, Any] = {
        "role": "assistant", "content": reply.content, "refusal": None, "annotations": [],
    }  # fmt: skip
    if reply.reasoning_content:
        whole["reasoning_content"] = reply.reasoning_content
    if calls:
        whole["content"] = reply.content or None
        whole["tool_calls"] = calls
    return whole


def verbose(asked: bool | None, settings: Settings) -> bool:
    """Return whether a response includes the prompt."""
    return settings.verbose if asked is None else asked


def verbose_object(prepared: PreparedPrompt, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return ``__verbose``: the prompt as the model reads it."""
    return {"prompt": text_of(prepared.ids, tokenizer), "tokens_evaluated": len(prepared.ids)}


def _head(app: Server) -> dict[str, Any]:
    """Return the members that all chunks of a response share."""
    return {
        "id": f"chatcmpl-{secrets.token_urlsafe(24)}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": app.submitter.model_id,
        "system_fingerprint": fingerprint(),
    }
