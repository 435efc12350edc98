"""Streamed answers that go on when their client leaves, and that it can join again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from flask import Blueprint, Response, jsonify

from oxibonsai.server.access import acting_for, owner
from oxibonsai.server.errors import ApiError, as_api_error, error_body
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.openai.background_tasks import BackgroundTask, Key
from oxibonsai.server.sse import frame, stream_response

_KEPT_SECONDS = 3600.0  # how long an answer can be read after its end
_MOST_BYTES = 64 * 2**20  # of the answers that have ended, together


@dataclass
class _Answer:
    task: BackgroundTask
    bytes: int = 0
    ended: float | None = None  # time.monotonic()


class KeptAnswers:
    """Answers in progress and those that ended lately; in the memory of this process only.

    Args:
        lifecycle: Counts the answers in progress, so that draining waits for them.
    """

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._lock = threading.Lock()
        self._answers: dict[Key, _Answer] = {}

    def begin(
        self,
        key: Key,
        frames: Iterator[str | None],
        *,
        close: Callable[[], None],
        lease: AbstractContextManager[object],
    ) -> Response:
        """Write an answer in a thread of its own, and return a response that streams it.

        The engine's queue limits how many there are: each holds a place in it until it ends.

        Args:
            key: Its owner and id.
            frames: Its events; None when there was no output for a while. An exception becomes its
                last event.
            close: Called at the end in any case.
            lease: Left at the end: what keeps the model loaded.
        """
        answer = _Answer(BackgroundTask())
        with self._lock:
            self._forget_old()
            self._answers[key] = answer

        def work() -> None:
            try:
                with lease, self._lifecycle.work(), acting_for(key[0]):
                    self._write(answer, frames, close)
            finally:
                answer.ended = time.monotonic()
                answer.task.finish()

        threading.Thread(target=work, name="answer", daemon=True).start()
        return self._follow(answer)

    def follow(self, key: Key) -> Response:
        """Return a response that streams an answer from its first event on."""
        return self._follow(self._find(key))

    def cancel(self, key: Key) -> None:
        """End an answer within one step of the engine, and forget it."""
        answer = self._find(key)
        answer.task.cancel()
        with self._lock:
            self._answers.pop(key, None)

    def _write(
        self, answer: _Answer, frames: Iterator[str | None], close: Callable[[], None]
    ) -> None:
        try:
            for text in frames:
                if answer.task.cancelled or self._lifecycle.stopping:
                    return
                if text is not None:
                    answer.bytes += len(text)
                    answer.task.publish({"frame": text})
        except Exception as e:
            answer.task.publish({"frame": frame(error_body(as_api_error(e)), "error")})
        finally:
            close()

    def _follow(self, answer: _Answer) -> Response:
        return stream_response(
            (None if e is None else str(e["frame"]) for e in answer.task.follow()),
            close=lambda: None,
            stopping=lambda: self._lifecycle.stopping,
        )

    def _find(self, key: Key) -> _Answer:
        with self._lock:
            self._forget_old()
            answer = self._answers.get(key)
        if answer is None:
            raise ApiError(
                404,
                f"There is no answer '{key[1][:80]}' that can be joined: it was asked for without "
                "background, ended long ago, or was written by another process.",
                code="answer_not_found",
            )
        return answer

    def _forget_old(self) -> None:
        """Forget answers that ended long ago, and the oldest of the keys that hold most."""
        now = time.monotonic()
        ended = {k: a for k, a in self._answers.items() if a.ended is not None}
        sizes: Counter[str] = Counter()
        for (who, _), answer in ended.items():
            sizes[who] += answer.bytes
        for key, answer in ended.items():
            if answer.ended is not None and now - answer.ended > _KEPT_SECONDS:
                sizes[key[0]] -= answer.bytes
                del self._answers[key]
        while sizes.total() > _MOST_BYTES:
            ((heaviest, _),) = sizes.most_common(1)
            oldest = next(k for k in ended if k[0] == heaviest and k in self._answers)
            sizes[heaviest] -= ended[oldest].bytes
            del self._answers[oldest]


def kept_answers_blueprint(answers: KeptAnswers) -> Blueprint:
    """Return the routes that join an answer and end one."""
    bp = Blueprint("kept_answers", __name__)

    @bp.get("/v1/chat/completions/<completion_id>/stream")
    def follow(completion_id: str) -> Response:
        return answers.follow((owner(), completion_id))

    @bp.post("/v1/chat/completions/<completion_id>/cancel")
    def cancel(completion_id: str) -> Response:
        answers.cancel((owner(), completion_id))
        return jsonify(id=completion_id, object="chat.completion", cancelled=True)

    return bp
