"""Creates, continues, cancels and expires runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from oxibonsai.chat import PreparedPrompt
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.elsewhere import Elsewhere, wait_until_ended
from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import PromptLimit, input_is_read
from oxibonsai.server.openai.assistants.conversation import Conversation
from oxibonsai.server.openai.assistants.objects import (
    ENDED,
    ended_step,
    new_message,
    new_run,
    now,
    view,
)
from oxibonsai.server.openai.assistants.run_work import RunWork
from oxibonsai.server.openai.background_tasks import BackgroundTask, BackgroundTasks
from oxibonsai.server.openai.prompts import fitting_prompt
from oxibonsai.server.openai.schemas.assistants import (
    MessageCreate,
    RunFields,
    ToolOutput,
)
from oxibonsai.server.paging import all_of
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.server import Server
from oxibonsai.server.sse import frame
from oxibonsai.server.stores import NoSuchObjectError, Object
from oxibonsai.server.stores.collection import new_id

# How long a cancel request waits for the task to end.
_CANCEL_SECONDS = 10.0


class RunService:
    """Implements the routes of runs.

    Args:
        app: The application: its store, and the models.
        tasks: Runs the rounds in the background.
        elsewhere: The rounds of other servers.
    """

    def __init__(self, app: Server, tasks: BackgroundTasks, elsewhere: Elsewhere) -> None:
        self._app = app
        self._store = app.store
        self._tasks = tasks
        self._elsewhere = elsewhere
        self._submitting = threading.Lock()

    def create(
        self,
        owner: str,
        thread: Object,
        body: RunFields,
        *,
        more: Sequence[MessageCreate] = (),
        more_instructions: str | None = None,
        is_new: bool = False,
    ) -> tuple[Object, BackgroundTask]:
        """Start a run.

        Args:
            owner: Its owner.
            thread: The thread.
            body: The request.
            more: Messages to add to the thread first.
            more_instructions: Appended to the instructions.
            is_new: The thread was created for this run: publish that event too.

        Returns:
            The run and its background task.

        Raises:
            ApiError: 400 if another run of the thread has not ended.
        """
        try:
            assistant = self._store.assistants.get(owner, body.assistant_id)
        except NoSuchObjectError as e:
            raise ApiError(
                404, f"No assistant found with id '{e.object_id[:80]}'.", param="assistant_id"
            ) from None
        run = new_run(thread["id"], assistant, body) | self._elsewhere.mark
        if more_instructions:
            run["instructions"] = "\n\n".join(
                filter(None, [run["instructions"], more_instructions])
            )
        messages = [new_message(thread["id"], m) for m in more]
        prepared, params = self._prepared(owner, run, messages)
        run["id"] = new_id("run_")
        key = (owner, run["id"])
        task = self._tasks.reserve(key)
        try:
            self._claim(owner, thread["id"], run["id"])
            for message in messages:
                self._store.messages.create(owner, message, parent=thread["id"])
            run = self._store.runs.create(owner, run, parent=thread["id"])
        except BaseException:
            self._tasks.drop(key, task)
            raise
        if is_new:
            task.publish({"event": "thread.created", "data": view(thread)})
        task.publish({"event": "thread.run.created", "data": view(run)})
        self._start(owner, run, prepared, params, task)
        return run, task

    def submit(
        self, owner: str, thread_id: str, run_id: str, outputs: Sequence[ToolOutput]
    ) -> tuple[Object, BackgroundTask]:
        """Continue a run with the outputs of its tool calls.

        Raises:
            ApiError: 400 if it does not wait for exactly these outputs.
        """
        given = {o.tool_call_id: o.output for o in outputs}
        if len(given) < len(outputs):
            raise ApiError(
                400, "tool_outputs has two outputs for the same call: send one for each call.",
                param="tool_outputs",
            )  # fmt: skip
        run, task = self._queue_again(owner, thread_id, run_id, given)
        try:
            (step,) = [
                s for s in all_of(self._store.run_steps, owner, run_id)
                if s["type"] == "tool_calls" and s["status"] == "in_progress"
            ]  # fmt: skip
            step = self._store.run_steps.change(
                owner, step["id"], lambda s: _with_outputs(s, given)
            )
            prepared, params = self._prepared(owner, run)
        except BaseException as e:
            self._tasks.drop((owner, run_id), task)
            self._give_up(owner, run_id, e)
            raise
        task.publish({"event": "thread.run.step.completed", "data": view(step)})
        self._start(owner, run, prepared, params, task)
        return run, task

    def _queue_again(
        self, owner: str, thread_id: str, run_id: str, given: dict[str, str]
    ) -> tuple[Object, BackgroundTask]:
        """Queue the run that these outputs continue; return it with its new background task."""

        def queue(run: Object) -> Object:
            _check_outputs(run, given)  # it may have been cancelled
            return {**run, "status": "queued", "required_action": None, **self._elsewhere.mark}

        # Before the lock: who reads a large run waits for its turn, which a request that waits for the
        # lock may have.
        self.get(owner, thread_id, run_id)
        # One at a time: a second request for the same run must not start another task.
        with self._submitting:
            _check_outputs(self.get(owner, thread_id, run_id), given)
            key = (owner, run_id)
            task = self._tasks.reserve(key)
            try:
                return self._store.runs.change(owner, run_id, queue, parent=thread_id), task
            except BaseException:
                self._tasks.drop(key, task)
                raise

    def get(self, owner: str, thread_id: str, run_id: str) -> Object:
        """Return the stored run; it expires here if it has waited for too long."""
        return self.refreshed(owner, self._store.runs.get(owner, run_id, parent=thread_id))

    def refreshed(self, owner: str, run: Object) -> Object:
        """Return the run, marked as expired if its time is over."""
        if run["status"] != "requires_action" or run["expires_at"] > now():
            return run

        def expire(run: Object) -> Object:
            if run["status"] != "requires_action":
                return run
            return {**run, "status": "expired", "required_action": None, "usage": run["used"]}

        run = self._store.runs.change(owner, run["id"], expire)
        if run["status"] == "expired":
            self.end_steps(owner, run["id"], "expired")
        return run

    def cancel(self, owner: str, thread_id: str, run_id: str) -> Object:
        """Cancel a run.

        Raises:
            ApiError: 400 if it has already ended.
        """
        self.get(owner, thread_id, run_id)

        def edit(run: Object) -> Object:
            if run["status"] in (*ENDED, "cancelling"):
                raise ApiError(400, f"Cannot cancel run with status '{run['status']}'.")
            waits = run["status"] == "requires_action"
            ended = {"status": "cancelled", "cancelled_at": now(), "usage": run["used"]}
            fields = ended if waits else {"status": "cancelling"}
            return {**run, **fields, "required_action": None}

        run = self._store.runs.change(owner, run_id, edit, parent=thread_id)
        input_is_read()
        if run["status"] == "cancelled":
            self.end_steps(owner, run_id, "cancelled")
            return run
        task = self._tasks.find((owner, run_id))
        if task is not None:
            task.publish({"event": "thread.run.cancelling", "data": view(run)})
            task.cancel()
            task.wait(_CANCEL_SECONDS)
        elif self._elsewhere.cancel((owner, run_id), run):
            ended = lambda: self._store.runs.get(owner, run_id)["status"] in ENDED  # noqa: E731
            wait_until_ended(ended, _CANCEL_SECONDS)
        return self._store.runs.get(owner, run_id)

    def active(self, owner: str, thread: Object) -> Object | None:
        """Return the active run of a thread, if there is one."""
        run_id = thread.get("active_run")
        if run_id is None:
            return None
        try:
            run = self.get(owner, thread["id"], run_id)
        except NoSuchObjectError:  # it was never created
            return None
        return None if run["status"] in ENDED else run

    def check_idle(self, owner: str, thread: Object, what: str) -> None:
        """Raise ApiError 400 if the thread has an active run."""
        run = self.active(owner, thread)
        if run is not None:
            raise ApiError(400, f"{what} {thread['id']} while a run {run['id']} is active.")

    def forget_thread(self, owner: str, thread: Object) -> None:
        """Cancel the run of a deleted thread."""
        if thread.get("active_run") is not None:
            self._tasks.cancel((owner, thread["active_run"]))

    def end_steps(self, owner: str, run_id: str, status: str) -> None:
        """Set the final status of a run's open steps."""
        for step in all_of(self._store.run_steps, owner, run_id):
            if step["status"] == "in_progress":
                self._store.run_steps.change(owner, step["id"], lambda s: ended_step(s, status))

    def _claim(self, owner: str, thread_id: str, run_id: str) -> None:
        """Make a run the active run of its thread; fails if there is one already."""
        thread = self._store.threads.get(owner, thread_id)
        seen = thread.get("active_run")
        active = self.active(owner, thread)

        def edit(thread: Object) -> Object:
            if active is not None or thread.get("active_run") != seen:
                raise ApiError(
                    400, f"Thread {thread_id} already has an active run {thread['active_run']}."
                )
            return {**thread, "active_run": run_id}

        self._store.threads.change(owner, thread_id, edit)

    def _prepared(
        self, owner: str, run: Object, more: Sequence[Object] = ()
    ) -> tuple[PreparedPrompt, SamplingParams]:
        self._app.use_model(run["model"])
        submitter = self._app.submitter
        engine = submitter.engine
        most_bytes = self._app.settings.max_body_bytes
        conversation = Conversation(self._store, owner, run, more, most_bytes)
        used, most = run["used"], run["max_completion_tokens"]
        if most is not None:
            most = max(1, most - used["completion_tokens"])
        prompt_limit = PromptLimit(engine.ctx_size)
        rest = max(1, engine.ctx_size // 4)
        tokens = engine.ctx_size - (rest if most is None else min(most, rest))
        if run["max_prompt_tokens"] is not None:
            tokens = min(tokens, run["max_prompt_tokens"] - used["prompt_tokens"])
        prepared = fitting_prompt(
            lambda left_out: submitter.read_chat(conversation.request(left_out), prompt_limit),
            conversation.most_left_out,
            tokens,
        )
        prompt_limit.check_count(len(prepared.ids))
        given = {"temperature": run["temperature"], "top_p": run["top_p"]}
        fields = SamplingFields.model_validate(given)
        return prepared, fields.sampling_params(
            submitter.settings, engine, max_tokens=most, thinks=prepared.thinks
        )

    def _start(
        self,
        owner: str,
        run: Object,
        prepared: PreparedPrompt,
        params: SamplingParams,
        task: BackgroundTask,
    ) -> None:
        task.publish({"event": "thread.run.queued", "data": view(run)})
        work = RunWork(self._store, owner, run, task)
        lease, submitter = self._app.keep_model(), self._app.submitter

        def go_on(_: BackgroundTask) -> None:
            with lease:
                work(submitter, prepared, params)

        self._tasks.start((owner, run["id"]), task, go_on)

    def _give_up(self, owner: str, run_id: str, error: BaseException) -> None:
        """Fail a run whose tool outputs can't be used, for example if they exceed the context."""
        last = {"code": "invalid_prompt", "message": str(error)}
        fields = {"status": "failed", "failed_at": now(), "last_error": last}
        self._store.runs.change(owner, run_id, lambda r: {**r, **fields, "usage": r["used"]})


def run_frames(task: BackgroundTask) -> Iterator[str | None]:
    """Yield the events of a run's task, formatted for the stream."""
    for event in task.follow():
        yield None if event is None else frame(event["data"], event["event"])
    yield "event: done\ndata: [DONE]\n\n"


def _check_outputs(run: Object, given: dict[str, str]) -> None:
    if run["status"] != "requires_action":
        raise ApiError(
            400,
            f"Runs in status '{run['status']}' do not accept tool outputs.",
            param="tool_outputs",
        )
    wanted = {c["id"] for c in run["required_action"]["submit_tool_outputs"]["tool_calls"]}
    if wanted != set(given):
        missing = ", ".join(sorted(wanted - set(given))) or "none"
        raise ApiError(
            400, f"tool_outputs must contain one output for each call of the run: missing {missing}.",
            param="tool_outputs",
        )  # fmt: skip


def _with_outputs(step: Object, given: dict[str, str]) -> Object:
    calls = [
        {**c, "function": {**c["function"], "output": given[c["id"]]}}
        for c in step["step_details"]["tool_calls"]
    ]
    details = {"type": "tool_calls", "tool_calls": calls}
    return ended_step(step, "completed", step_details=details)
