"""The chunks of a streamed chat completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from oxibonsai.output import Delta
from oxibonsai.server.choice import Choice
from oxibonsai.server.generation import Generation
from oxibonsai.server.openai.logprobs import ShownTokens, chat_form
from oxibonsai.server.openai.prompts import text_of
from oxibonsai.server.openai.schemas.chat import ChatBody
from oxibonsai.server.openai.timings import PromptProgress, chat_usage, timings
from oxibonsai.server.server import Server
from oxibonsai.server.sse import DONE, chunk_heads, compact, quoted


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
        """Role, deltas and finish reason of each choice, then the usage if requested."""
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
        """Log-probabilities of the tokens since the last chunk."""
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
    """JSON of a chunk's delta."""
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
