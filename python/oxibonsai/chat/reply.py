"""The answer of a conversation, in pieces and whole."""

from __future__ import annotations

from collections.abc import Iterator

from oxibonsai.chat.prepared_prompt import PreparedPrompt, prepare
from oxibonsai.chat.request import ChatRequest
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.engine import Engine, Options, Sequence
from oxibonsai.output import Delta, Reply
from oxibonsai.output.tools import CallIds, call_ids
from oxibonsai.sampling import SamplingParams


class ChatReply:
    """An answer that is being generated: iterate over its pieces, then look at the whole.

    Args:
        engine: Runs it.
        prepared: The prompt.
        sequence: Submitted for it.
        ids: Of tool calls, by index.

    Attributes:
        sequence: Tokens, log-probabilities, counts, times.
    """

    def __init__(
        self, engine: Engine, prepared: PreparedPrompt, sequence: Sequence, ids: CallIds
    ) -> None:
        self._engine = engine
        self._parser = prepared.parser(ids)
        self.sequence = sequence

    def __iter__(self) -> Iterator[Delta]:
        """Yield pieces as they come; stopping early cancels the sequence.

        Raises:
            CapacityError: The structure became too complex to follow.
        """
        for piece in self._engine.follow_text(self.sequence):
            yield from self._parser.feed(piece)
        yield from self._parser.finish(cut=self.sequence.finish_reason == "length")

    def __repr__(self) -> str:
        return f"ChatReply({self.reply.content!r}, finish_reason={self.finish_reason!r})"

    @property
    def reply(self) -> Reply:
        """All that the iterator has given so far."""
        return self._parser.reply

    @property
    def finish_reason(self) -> str | None:
        """``stop``, ``length``, ``tool_calls``, ``cancelled``; None while it runs."""
        reason = self.sequence.finish_reason
        return None if reason is None else self._parser.finish_reason(reason)


def answer(
    engine: Engine,
    request: ChatRequest,
    params: SamplingParams | None = None,
    options: Options | None = None,
    *,
    template: ChatTemplate | None = None,
    ids: CallIds | None = None,
) -> ChatReply:
    """Begin an answer.

    Args:
        engine: Runs it.
        request: The conversation.
        params: How to choose tokens; None: as recommended for the model.
        options: Of the engine, beside what the request asks for.
        template: The chat template; None: the model's own.
        ids: Of tool calls, by index; None: made from the seed.

    Raises:
        RequestError: The request makes no sense for this model.
    """
    prepared = prepare(engine, request, options, template=template)
    if params is None:
        params = engine.recommended.params(prepared.thinks)
    sequence = engine.submit(prepared.ids, params, prepared.options)
    return ChatReply(engine, prepared, sequence, ids or call_ids(str(sequence.sampler.seed)))
