"""``AsyncLLM``: requests of the coroutines of a program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from oxibonsai.engine import Engine, EngineRunner, Options
from oxibonsai.llm.chat_engine import Messages
from oxibonsai.llm.outputs import RequestOutput
from oxibonsai.llm.requests import Prompt, Request, Requests
from oxibonsai.sampling import SamplingParams

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11


class AsyncLLM(Requests):
    """Generates for the coroutines of a program, whose requests share steps.

    The engine runs in a thread of its own. Use it as ``async with AsyncLLM(...) as llm``, or close it.

    Args:
        model: As of :class:`LLM`.
        **options: As of :class:`LLM`.

    Attributes:
        engine: Runs it.
    """

    def __init__(
        self, model: str | os.PathLike[str] | Engine | None = None, **options: Any
    ) -> None:
        super().__init__(model, options)
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._runner = EngineRunner(self.engine)
        self._runner.after_step = self._wake

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End what runs and the thread, and free the model."""
        self._runner.close()
        self._wake()
        self.engine.close()

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Continue a prompt; yield all there is so far whenever there is more.

        Leaving the loop early, or cancelling the task, cancels the request. Arguments as of
        :meth:`LLM.generate`.
        """
        params = sampling_params or SamplingParams()
        async for output in self._follow(partial(self.submit, prompt, params, options, n)):
            yield output

    async def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        n: int = 1,
        options: Options | None = None,
        **fields: Any,
    ) -> AsyncIterator[RequestOutput]:
        """Answer a conversation, as :meth:`generate`; arguments as of :meth:`LLM.chat`."""
        params = sampling_params or SamplingParams()
        async for output in self._follow(
            lambda: self.submit_chat(messages, params, options, n, fields)
        ):
            yield output

    async def _follow(self, submit: Callable[[], Request]) -> AsyncIterator[RequestOutput]:
        changed = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(changed)
        request = None
        try:
            request = await self._submitted(submit)
            seen = -1
            while True:
                changed[1].clear()
                output = self.output(request)
                for s in request.sequences:
                    s.raise_error()
                count = sum(len(o.token_ids) for o in output.outputs)
                if output.finished or count > max(seen, 0):
                    seen = count
                    yield output
                if output.finished:
                    return
                if self._runner.failure is not None:
                    raise self._runner.failure
                await changed[1].wait()
        finally:
            self._waiting.discard(changed)
            for s in request.sequences if request is not None else ():
                self.engine.cancel(s)

    async def _submitted(self, submit: Callable[[], Request]) -> Request:
        submitting = asyncio.ensure_future(asyncio.to_thread(submit))
        try:
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:  # the thread goes on; nobody wants what comes of it
            submitting.add_done_callback(self._cancel)
            raise

    def _cancel(self, submitting: asyncio.Future[Request]) -> None:
        if not submitting.cancelled() and submitting.exception() is None:
            for s in submitting.result().sequences:
                self.engine.cancel(s)

    def _wake(self) -> None:
        """Wake the coroutines; called in the engine's thread after each step."""
        for loop, event in list(self._waiting):
            with suppress(RuntimeError):  # the loop has been closed, and nobody waits there
                loop.call_soon_threadsafe(event.set)
