"""Inputs of requests on their way to tokens: bounded, in turn, and given up with their clients.

What a large body takes in memory is many times its size, so only one of them is read at a time, from
its JSON to its tokens. A text that can't fit into the context is refused by its length.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, g, has_request_context, request

from oxibonsai.chat import ChatRequest, ChatTurn, prepare
from oxibonsai.chat_template import TooCostlyError
from oxibonsai.engine import Engine, Options
from oxibonsai.lane import Lane
from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.disconnect import ClientGoneError, client_is_gone
from oxibonsai.tokenizer import Tokenizer

LARGE_BYTES = 1 << 20
_LOOK_SECONDS = 0.1
# How long the interpreter is kept from other threads, and then left to them.
_OWN_SECONDS, _OTHERS_SECONDS = 1e-3, 1e-4


class TooLongError(ApiError):
    """A prompt that the context has no room for."""


@dataclass(frozen=True)
class PromptLimit:
    """What a prompt may take.

    Attributes:
        ctx_size: Tokens of the context.
        rest: Of these, what is left for an answer at least.
    """

    ctx_size: int
    rest: int = 1

    def check_text(self, text: str, tokenizer: Tokenizer, name: str = "the prompt") -> None:
        """TooLongError where a text is too long whatever its tokens are."""
        least = tokenizer.least_tokens(text)
        if least > self.ctx_size - self.rest:
            size = f"{len(text.encode())} bytes, which are at least {least} tokens"
            raise self._error(f"{name} has {size}", least)

    def check_count(self, tokens: int, *, so_far: bool = False) -> None:
        """TooLongError where there are too many tokens."""
        if tokens > self.ctx_size - self.rest:
            size = f"more than {tokens - 1}" if so_far else f"{tokens}"
            raise self._error(f"the prompt has {size} tokens", tokens)

    def _error(self, what: str, tokens: int) -> TooLongError:
        return TooLongError(
            400,
            f"the request exceeds the available context size: {what}, the context {self.ctx_size}; "
            "shorten it or raise --ctx-size",
            kind="exceed_context_size_error",
            code="context_length_exceeded",
            extra={"n_prompt_tokens": tokens, "n_ctx": self.ctx_size},
        )


class InputWatch:
    """Looks after a request while its input is rendered and tokenized; see ``tokenizer.Watch``.

    Args:
        room: For its tokens; None: any number.

    Raises:
        ClientGoneError: On a call, where the client has left.
        TooLongError: On a call, where there are too many tokens already.
    """

    def __init__(self, room: PromptLimit | None = None) -> None:
        self._room = room
        self._environ: Mapping[str, Any] = request.environ if has_request_context() else {}
        self._looked = self._gave_way = time.monotonic()

    def __call__(self, tokens: int) -> None:
        if self._room is not None:
            self._room.check_count(tokens, so_far=True)
        now = time.monotonic()
        if now - self._gave_way >= _OWN_SECONDS:
            time.sleep(_OTHERS_SECONDS)
            self._gave_way = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self.look()

    def look(self) -> None:
        """Looks at once."""
        if client_is_gone(self._environ):
            raise ClientGoneError("the client closed its connection")
        self._looked = time.monotonic()


def read_text(
    text: str,
    tokenizer: Tokenizer,
    room: PromptLimit | None = None,
    *,
    add_special: bool = True,
    parse_special: bool = True,
) -> list[int]:
    """Tokens of a text that a request holds.

    Raises:
        TooLongError: There is no room for it.
        ClientGoneError: Nobody waits for them any more.
        RequestError: It can't be tokenized in pieces.
    """
    if room is not None:
        room.check_text(text, tokenizer)
    return tokenizer.encode(
        text, add_special=add_special, parse_special=parse_special, watch=InputWatch(room)
    )


def read_turn(
    engine: Engine,
    asked: ChatRequest,
    room: PromptLimit | None = None,
    options: Options | None = None,
) -> ChatTurn:
    """The prompt of a conversation; see :func:`oxibonsai.chat.prepare` and :func:`read_text`."""
    tokenizer = engine.tokenizer

    def check(prompt: str) -> None:
        if room is not None:
            room.check_text(prompt, tokenizer)

    try:
        return prepare(engine, asked, options, watch=InputWatch(room), check=check)
    except TooCostlyError:
        # That they are too much for the template is not what helps the client.
        if room is not None:
            room.check_text("".join(_texts(asked.messages)), tokenizer, "the conversation")
        raise


def _texts(value: Any) -> list[str]:
    found: list[str] = []
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, Mapping):
            pending.extend(part.values())
        elif isinstance(part, Sequence):
            pending.extend(part)
    return found


def register_inputs(app: Flask, most_waiting: int) -> None:
    """Lets requests with large bodies in one at a time.

    Args:
        app: The application.
        most_waiting: How many may wait for their turn; each holds a thread.
    """
    lane = Lane("large requests", most_waiting)

    def begin() -> None:
        # Uploads go to a file and are no input of the model.
        if request.mimetype != "multipart/form-data" and _size() > LARGE_BYTES:
            g.leave_lane = lane.enter(InputWatch().look)

    app.before_request(begin)
    app.teardown_request(lambda _: input_is_read())


def _size() -> int:
    return request.content_length or 0


def input_is_read() -> None:
    """Lets the next large request in: of this one, only what is to be run is left."""
    leave = g.pop("leave_lane", None) if has_request_context() else None
    if leave is not None:
        leave()
