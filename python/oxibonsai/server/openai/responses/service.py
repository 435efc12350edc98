"""Creates responses, synchronously, streamed or in the background, and stores them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flask import Response, jsonify, request

from oxibonsai.server.elsewhere import Elsewhere, looks, wait_until_ended
from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.client import watched
from oxibonsai.server.inputs import PromptLimit, input_is_read
from oxibonsai.server.openai.background_tasks import BackgroundTask, BackgroundTasks, Key
from oxibonsai.server.openai.responses.history import (
    HistoryLimit,
    compacted,
    history,
    summary_request,
    summary_tokens,
)
from oxibonsai.server.openai.responses.hosted import HostedTools, calls_made, read_hosted_tools
from oxibonsai.server.openai.responses.items import new_items, stored_items
from oxibonsai.server.openai.responses.output import Event
from oxibonsai.server.openai.responses.replies import Replies, next_prompt
from oxibonsai.server.openai.responses.request import prepare_response, sampling
from oxibonsai.server.openai.responses.run import ENDED, ResponseRun, new_response
from oxibonsai.server.openai.schemas.responses import InputTokensRequest, ResponseRequest
from oxibonsai.server.server import Server
from oxibonsai.server.sse import frame, stream_response
from oxibonsai.server.storage_limit import check_room
from oxibonsai.server.stores import NoSuchObjectError, Object
from oxibonsai.server.validation import check_model

# A response that failed or was cancelled is no part of its conversation.
_CONTINUING = ("completed", "incomplete")
# How long a cancel request waits for the task to end.
_CANCEL_SECONDS = 10.0


def event_frame(event: Event | None) -> str | None:
    """Return an event formatted for the stream."""
    return None if event is None else frame(event, event["type"])


class ResponseService:
    """Implements the routes of responses.

    Args:
        app: The application.
        tasks: Runs background responses.
        elsewhere: Those of other servers.
    """

    def __init__(self, app: Server, tasks: BackgroundTasks, elsewhere: Elsewhere) -> None:
        self._app = app
        self._store = app.store.responses
        self._conversations = app.store.conversation_items
        self._lifecycle = app.lifecycle
        self._tasks = tasks
        self._elsewhere = elsewhere

    def create(self, owner: str, body: ResponseRequest, *, always_completed: bool) -> Response:
        """Implement ``POST /v1/responses``; see :class:`ResponseRun` for ``always_completed``."""
        check_model(body.model, self._app.settings)
        if body.store is not False or body.conversation is not None:
            check_room()
        submitter = self._app.submitter
        items = new_items(body.input) if body.conversation else stored_items(body.input)
        hosted = read_hosted_tools(self._app.mcp, body)
        replies, listed = self._replies(owner, body, items, hosted)
        response = new_response(body, submitter.model_id, replies.params)
        run = ResponseRun(
            response,
            replies,
            listed=listed,
            logprobs=replies.params.logprobs,
            timed=bool(body.timings_per_token),
            progress=bool(body.return_progress),
            always_completed=always_completed,
        )
        record = {"id": response["id"], "response": response, "input": items}
        record |= self._elsewhere.mark
        if body.background:
            PromptLimit(submitter.engine.ctx_size).check_count(len(replies.prepared.ids))
            return self._in_background(owner, body, record, run, replies)
        if body.stream:
            return self._as_stream(owner, record, run, replies)
        return self._at_once(owner, record, run, replies)

    def _replies(
        self, owner: str, body: ResponseRequest, items: list[Object], hosted: HostedTools
    ) -> tuple[Replies, set[str]]:
        """Return what generates the replies, and the MCP servers that the conversation lists.

        Earlier items are kept no longer than this takes, unless further replies need them.
        """
        submitter = self._app.submitter
        limit = PromptLimit(submitter.engine.ctx_size)
        conversation = [*self._earlier(owner, body, limit), *items]
        approved = hosted.approved(conversation, items, body.max_tool_calls)
        prepared = prepare_response(submitter, body, conversation, hosted)
        params = sampling(submitter.engine, body, submitter.settings, prepared.thinks)
        following = None
        if hosted.lists:
            following = next_prompt(submitter, body, conversation, hosted)
        replies = Replies(
            submitter, prepared, params, hosted=hosted, approved=approved, following=following,
            owner=owner,
        )  # fmt: skip
        lists = (item for item in conversation if item["type"] == "mcp_list_tools")
        return replies, {item["server_label"] for item in lists}

    def count(self, owner: str, body: InputTokensRequest) -> int:
        """Return the number of tokens in the prompt of a response; 0 if there is no input at all."""
        check_model(body.model, self._app.settings)
        cut = body.truncation == "auto"
        limit = PromptLimit(self._app.submitter.engine.ctx_size) if cut else None
        items = [*self._earlier(owner, body, limit), *stored_items(body.input)]
        if not (items or body.instructions):
            return 0
        hosted = read_hosted_tools(self._app.mcp, body)
        return len(prepare_response(self._app.submitter, body, items, hosted, runs=False).ids)

    def compact(self, owner: str, body: InputTokensRequest) -> Object:
        """Return a summary of the conversation, which is not stored."""
        check_model(body.model, self._app.settings)
        submitter = self._app.submitter
        engine = submitter.engine
        # All messages of the user are in the answer.
        items = [*self._earlier(owner, body, None, whole=True), *stored_items(body.input)]
        if not items:
            raise ApiError(400, "input: there is no conversation to summarize.", param="input")
        asked, conversation = summary_request(body, items)
        most = summary_tokens(engine.ctx_size)
        prepared = prepare_response(submitter, asked, conversation, answer_tokens=most)
        request = ResponseRequest.model_validate({"max_output_tokens": most, "temperature": 0})
        params = sampling(engine, request, submitter.settings, prepared.thinks)
        response = new_response(request, submitter.model_id, params)
        replies = Replies(submitter, prepared, params)
        self._finish(ResponseRun(response, replies), replies)
        return compacted(items, response)

    def follow(self, owner: str, record: Object, after: int | None) -> Response:
        """Stream the events of a background response after a sequence number, to its end.

        If they are not in the memory of this server, only the last event, which has the complete
        response.
        """
        start = 0 if after is None else after + 1
        task = self._tasks.find((owner, record["id"]))
        if task is not None:
            return self._follow(task, start)
        response = record["response"]
        if response["status"] not in ENDED and not (
            response["background"] and self._elsewhere.has(record)
        ):
            raise ApiError(
                400, "Only a response created with background=true can be streamed before its end.",
                param="stream",
            )  # fmt: skip
        return stream_response(
            self._last_event(owner, record["id"], start),
            close=lambda: None,
            stopping=lambda: self._lifecycle.stopping,
        )

    def _earlier(
        self,
        owner: str,
        body: InputTokensRequest,
        prompt_limit: PromptLimit | None,
        *,
        whole: bool = False,
    ) -> list[Object]:
        """Return what the request continues.

        Args:
            owner: Its owner.
            body: The request.
            prompt_limit: The context that the history must fit into; None: any.
            whole: Leave nothing out, even if the request allows it.
        """
        limit = HistoryLimit(
            self._app.settings.max_body_bytes,
            prompt_limit,
            self._app.submitter.engine.tokenizer.least_tokens,
            is_cut=body.truncation == "auto" and not whole,
        )
        return history(self._app.store, owner, body, limit)

    def _last_event(self, owner: str, response_id: str, number: int) -> Iterator[str | None]:
        """Yield the last event of a response that another server may still be working on."""
        yield from looks(lambda: self._stored(owner, response_id)["status"] in ENDED)
        response = self._stored(owner, response_id)
        last = {"type": f"response.{response['status']}", "response": response}
        yield event_frame({**last, "sequence_number": number})

    def _stored(self, owner: str, response_id: str) -> Object:
        response: Object = self._store.get(owner, response_id)["response"]
        return response

    def cancel(self, owner: str, response_id: str) -> Object:
        """Cancel a background response; idempotent once it has ended."""
        record = self._store.get(owner, response_id)
        response: Object = record["response"]
        if not response["background"]:
            raise ApiError(400, "Only a response created with background=true can be cancelled.")
        if response["status"] in ENDED:
            return response
        input_is_read()
        key = owner, response_id
        if not self._tasks.cancel(key, seconds=_CANCEL_SECONDS):
            if self._elsewhere.cancel(key, record):
                ended = lambda: self._stored(*key)["status"] in ENDED  # noqa: E731
                wait_until_ended(ended, _CANCEL_SECONDS)
            else:
                self._save(owner, {**record, "response": {**response, "status": "cancelled"}})
        return self._stored(*key)

    def delete(self, owner: str, response_id: str) -> None:
        """Delete a response; cancel it if it is in progress."""
        record = self._store.get(owner, response_id)
        self._store.delete(owner, response_id)
        if record["response"]["status"] not in ENDED:
            here = self._tasks.cancel((owner, response_id))
            if not here:
                self._elsewhere.cancel((owner, response_id), record)

    def _at_once(
        self,
        owner: str,
        record: Object,
        run: ResponseRun,
        replies: Replies,
    ) -> Response:
        self._finish(run, replies)
        if run.response["store"]:
            self._store.create(owner, record)
        self._continue_conversation(owner, record)
        return jsonify(run.response)

    def _finish(self, run: ResponseRun, replies: Replies) -> None:
        """Generate until the end, or until the client disconnects."""
        replies.begin()
        with contextlib.closing(replies), contextlib.closing(run.events(lambda: False)) as events:
            for _ in watched(events, request.environ):
                pass
        # A failed response says what was called, so that nobody calls it again.
        if run.error is not None and not calls_made(run.response["output"]):
            raise run.error

    def _as_stream(
        self,
        owner: str,
        record: Object,
        run: ResponseRun,
        replies: Replies,
    ) -> Response:
        replies.begin()
        stored = run.response["store"]
        events = run.events(lambda: False)

        def save() -> None:
            if stored:
                self._save(owner, record)
            self._continue_conversation(owner, record)

        def frames() -> Iterator[str | None]:
            yield event_frame(run.created())
            for event in events:
                # Stored before the last event is sent, so that the client can then fetch it.
                if event is not None and run.ended:
                    save()
                yield event_frame(event)

        def close() -> None:
            try:
                events.close()
                if not run.ended:
                    list(run.end(cancelled=True))
                    save()
            finally:
                replies.close()

        try:
            if stored:
                self._store.create(owner, record)
        except BaseException:
            replies.close()
            raise
        return stream_response(frames(), close=close, stopping=lambda: self._lifecycle.stopping)

    def _in_background(
        self,
        owner: str,
        body: ResponseRequest,
        record: Object,
        run: ResponseRun,
        replies: Replies,
    ) -> Response:
        key: Key = (owner, record["id"])
        task = self._tasks.reserve(key)
        try:
            self._store.create(owner, record)
        except BaseException:
            self._tasks.drop(key, task)
            raise
        task.publish(run.created())
        task.publish(run.queued())
        answer = None if body.stream else jsonify(run.response)
        lease = self._app.keep_model()

        def work(task: BackgroundTask) -> None:
            with lease:
                self._work(owner, record, run, replies, task)

        self._tasks.start(key, task, work)
        return answer or self._follow(task, 0)

    def _work(
        self,
        owner: str,
        record: Object,
        run: ResponseRun,
        replies: Replies,
        task: BackgroundTask,
    ) -> None:
        def publish(event: Event) -> None:
            if run.ended:
                self._save(owner, record)
                self._continue_conversation(owner, record)
            task.publish(event)

        if task.cancelled:
            publish(run.withdrawn())
            return
        try:
            replies.begin()
            with contextlib.closing(replies):
                for event in run.events(lambda: task.cancelled):
                    if event is not None:
                        publish(event)
                    if event is not None and event["type"] == "response.in_progress":
                        self._save(owner, record)
        except Exception as e:
            for event in run.fail(e):
                publish(event)

    def _follow(self, task: BackgroundTask, start: int) -> Response:
        frames = (event_frame(event) for event in task.follow(start))
        return stream_response(
            frames, close=lambda: None, stopping=lambda: self._lifecycle.stopping
        )

    def _continue_conversation(self, owner: str, record: Object) -> None:
        """Add the items of a response that has ended to its conversation; of a failed one, its calls."""
        response = record["response"]
        output = response["output"]
        if response["status"] not in _CONTINUING:
            output = calls_made(output)
        if response["conversation"] is None or not (output or response["status"] in _CONTINUING):
            return
        # It may have been deleted in the meantime.
        with contextlib.suppress(NoSuchObjectError):
            self._conversations.create_all(
                owner,
                [*record["input"], *output],
                parent=response["conversation"]["id"],
            )

    def _save(self, owner: str, record: Object) -> None:
        # It may have been deleted in the meantime.
        with contextlib.suppress(NoSuchObjectError):
            self._store.change(owner, record["id"], lambda _: record)
