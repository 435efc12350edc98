"""Reads request inputs: size limits, one large body at a time, cancelled when the client disconnects.

A large body takes many times its size in memory, so only one is processed at a time, from its JSON to
its tokens. A text that can't fit into the context is rejected by its length, before tokenization.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flask import Flask, current_app, g, has_request_context, request

from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server.access import current_owner
from oxibonsai.server.content_encoding import LENGTH_IS_UNKNOWN
from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.client import ClientGoneError, client_is_gone
from oxibonsai.tokenizer import Tokenizer

LARGE_BYTES = 1 << 20
_LOOK_SECONDS = 0.1
# How long the GIL is held, and then released for other threads.
_OWN_SECONDS, _OTHERS_SECONDS = 1e-3, 1e-4


class TooLongError(ApiError):
    """The prompt does not fit into the context."""


@dataclass(frozen=True)
class PromptLimit:
    """The largest prompt that is accepted.

    Attributes:
        ctx_size: Size of the context in tokens.
        reserved: Tokens of it that are reserved for the answer.
    """

    ctx_size: int
    reserved: int = 1

    def check_text(self, text: str, tokenizer: Tokenizer, name: str = "the prompt") -> None:
        """Raise TooLongError if a text is too long however it is tokenized."""
        self.check_least(tokenizer.least_tokens(text), f"{name} has {len(text.encode())} bytes")

    def check_least(self, tokens: int, size: str) -> None:
        """Raise TooLongError if ``size``, which is at least so many tokens, is too long."""
        if tokens > self.ctx_size - self.reserved:
            raise self._error(f"{size}, which are at least {tokens} tokens", tokens)

    def check_count(self, tokens: int, *, so_far: bool = False) -> None:
        """Raise TooLongError if there are too many tokens."""
        if tokens > self.ctx_size - self.reserved:
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
    """Checks limits and connection while an input is rendered and tokenized; see ``tokenizer.Watch``.

    Args:
        prompt_limit: Limit on the number of tokens; None: no limit.

    Raises:
        ClientGoneError: On a call, if the client has disconnected.
        TooLongError: On a call, if there are too many tokens already.
    """

    def __init__(self, prompt_limit: PromptLimit | None = None) -> None:
        self._prompt_limit = prompt_limit
        self._environ: Mapping[str, Any] = request.environ if has_request_context() else {}
        self._looked = self._gave_way = time.monotonic()

    def __call__(self, tokens: int) -> None:
        if self._prompt_limit is not None:
            self._prompt_limit.check_count(tokens, so_far=True)
        now = time.monotonic()
        if now - self._gave_way >= _OWN_SECONDS:
            time.sleep(_OTHERS_SECONDS)
            self._gave_way = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self.look()

    def look(self) -> None:
        """Check the connection now."""
        if client_is_gone(self._environ):
            raise ClientGoneError("the client closed its connection")
        self._looked = time.monotonic()


def read_text(
    text: str,
    tokenizer: Tokenizer,
    prompt_limit: PromptLimit | None = None,
    *,
    add_special: bool = True,
    parse_special: bool = True,
) -> list[int]:
    """Tokenize a text of a request.

    Raises:
        TooLongError: It does not fit into the context.
        ClientGoneError: The client disconnected.
        RequestError: It can't be tokenized in pieces.
    """
    if prompt_limit is not None:
        prompt_limit.check_text(text, tokenizer)
    watch = InputWatch(prompt_limit)
    with turn_of_long_text(len(text)):
        return tokenizer.encode(
            text, add_special=add_special, parse_special=parse_special, watch=watch
        )


def register_inputs(app: Flask, most_waiting: int) -> SerialQueue:
    """Admit requests with large bodies one at a time; keys take turns.

    Args:
        app: The application.
        most_waiting: How many may wait; each blocks a thread.

    Returns:
        What admits large bodies; it is for everything else that reads a large input, too.
    """
    queue = SerialQueue("large requests", most_waiting, current_owner)

    def begin() -> None:
        # Uploads go to a file and are not tokenized.
        if request.mimetype != "multipart/form-data" and _is_large():
            take_turn(queue)

    app.before_request(begin)
    app.teardown_request(lambda _: input_is_read())
    return queue


def take_turn(queue: SerialQueue) -> None:
    """Wait until the current request, if there is one, may read a large input.

    It has its turn until :func:`input_is_read` or its end.
    """
    if has_request_context() and "leave_queue" not in g:
        g.leave_queue = queue.enter(InputWatch().look)


def _is_large() -> bool:
    if LENGTH_IS_UNKNOWN in request.environ or "Transfer-Encoding" in request.headers:
        return True
    return (request.content_length or 0) > LARGE_BYTES


def input_is_read() -> None:
    """Admit the next large request: this one's input has been converted to tokens."""
    leave = g.pop("leave_queue", None) if has_request_context() else None
    if leave is not None:
        leave()


# Shorter ones take some milliseconds.
_LONG = 16 * 1024


@contextmanager
def turn_of_long_text(length: int) -> Iterator[None]:
    """Hold the turn of long texts while the current request, if there is one, reads a text.

    Args:
        length: The length of the text, in bytes or characters.

    Raises:
        CapacityError: Too many wait.
        ClientGoneError: The client disconnected.
    """
    if length <= _LONG or not has_request_context():
        yield
        return
    # The application imports what imports this module.
    queue: SerialQueue = current_app.long_texts  # type: ignore[attr-defined]
    with queue.turn(_look):
        yield


def _look() -> None:
    if client_is_gone(request.environ):
        raise ClientGoneError("the client closed its connection")
