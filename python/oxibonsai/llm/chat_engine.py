"""An engine that takes conversations: what ``oxibonsai.load`` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from functools import wraps
from typing import Any, ParamSpec

from oxibonsai import engine as engines
from oxibonsai.chat import ChatReply, ChatRequest, answer
from oxibonsai.engine import Engine, Options
from oxibonsai.sampling import SamplingParams

P = ParamSpec("P")
Messages = Items[Mapping[str, Any]]


class ChatEngine(Engine):
    """An engine that takes conversations, too; made by :func:`oxibonsai.load`."""

    def chat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        options: Options | None = None,
        **fields: Any,
    ) -> ChatReply:
        """Begin an answer: iterate over its pieces, then look at ``reply``.

        Args:
            messages: The conversation, oldest first, each with ``role`` and ``content``.
            params: How to choose tokens; None: as recommended for the model.
            options: Of the engine.
            **fields: Of :class:`oxibonsai.chat.ChatRequest`: ``tools``, ``enable_thinking`` ...

        Raises:
            RequestError: The model has no chat template, or the request makes no sense for it.
        """
        return answer(self, ChatRequest(messages, **fields), params, options)


def _with_chat(make: Callable[P, Engine]) -> Callable[P, ChatEngine]:
    @wraps(make)
    def load(*args: P.args, **kwargs: P.kwargs) -> ChatEngine:
        engine = make(*args, **kwargs)
        engine.__class__ = ChatEngine  # it adds a method and no state
        assert isinstance(engine, ChatEngine)
        return engine

    return load


load = _with_chat(engines.load)
