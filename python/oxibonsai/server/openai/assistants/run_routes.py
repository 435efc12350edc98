"""Runs of threads, and their steps."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.openai.assistants.objects import view
from oxibonsai.server.openai.assistants.run_service import RunService, run_frames
from oxibonsai.server.openai.assistants.thread_routes import create_thread
from oxibonsai.server.openai.background_tasks import BackgroundTask
from oxibonsai.server.openai.schemas.assistants import (
    MetadataChange,
    RunCreate,
    ThreadAndRunCreate,
    ThreadCreate,
    ToolOutputs,
)
from oxibonsai.server.paging import list_page, page_query
from oxibonsai.server.sse import stream_response
from oxibonsai.server.storage_limit import stores_objects
from oxibonsai.server.stores import Object, Page, Store
from oxibonsai.server.validation import read_body


def runs_blueprint(store: Store, runs: RunService, lifecycle: Lifecycle) -> Blueprint:
    """Return the routes of runs."""
    bp = Blueprint("runs", __name__)
    _add_work(bp, store, runs, lifecycle)

    @bp.get("/v1/threads/<thread_id>/runs")
    def list_runs(thread_id: str) -> Response:
        page = list_page(store.runs, owner(), page_query(), parent=thread_id)
        shown = [view(runs.refreshed(owner(), run)) for run in page.data]
        return jsonify(Page(shown, page.has_more).to_json())

    @bp.get("/v1/threads/<thread_id>/runs/<run_id>")
    def get(thread_id: str, run_id: str) -> Response:
        return jsonify(view(runs.get(owner(), thread_id, run_id)))

    @bp.post("/v1/threads/<thread_id>/runs/<run_id>")
    def change(thread_id: str, run_id: str) -> Response:
        runs.get(owner(), thread_id, run_id)
        given = read_body(MetadataChange, request).model_dump(exclude_none=True)
        changed = store.runs.change(owner(), run_id, lambda r: {**r, **given}, parent=thread_id)
        return jsonify(view(changed))

    @bp.post("/v1/threads/<thread_id>/runs/<run_id>/cancel")
    def cancel(thread_id: str, run_id: str) -> Response:
        return jsonify(view(runs.cancel(owner(), thread_id, run_id)))

    return bp


def _add_work(bp: Blueprint, store: Store, runs: RunService, lifecycle: Lifecycle) -> None:
    """Add the routes that set a run to work, and stream it where that is asked for."""

    def answer(run: Object, task: BackgroundTask, *, stream: bool | None) -> Response:
        if not stream:
            return jsonify(view(run))
        # A run continues if the client disconnects: it is a stored object.
        stopping = lambda: lifecycle.stopping  # noqa: E731
        return stream_response(run_frames(task), close=lambda: None, stopping=stopping)

    @bp.post("/v1/threads/runs")
    @stores_objects
    def create_thread_and_run() -> Response:
        body = read_body(ThreadAndRunCreate, request)
        store.assistants.get(owner(), body.assistant_id)
        thread = create_thread(store, owner(), body.thread or ThreadCreate())
        try:
            run, task = runs.create(owner(), thread, body, is_new=True)
        except Exception:
            store.threads.delete(owner(), thread["id"])
            raise
        return answer(run, task, stream=body.stream)

    @bp.post("/v1/threads/<thread_id>/runs")
    @stores_objects
    def create(thread_id: str) -> Response:
        thread = store.threads.get(owner(), thread_id)
        body = read_body(RunCreate, request)
        run, task = runs.create(
            owner(),
            thread,
            body,
            more=body.additional_messages or (),
            more_instructions=body.additional_instructions,
        )
        return answer(run, task, stream=body.stream)

    @bp.post("/v1/threads/<thread_id>/runs/<run_id>/submit_tool_outputs")
    def submit(thread_id: str, run_id: str) -> Response:
        runs.get(owner(), thread_id, run_id)
        body = read_body(ToolOutputs, request)
        run, task = runs.submit(owner(), thread_id, run_id, body.tool_outputs)
        return answer(run, task, stream=body.stream)


def run_steps_blueprint(store: Store, runs: RunService) -> Blueprint:
    """Return the routes of steps."""
    bp = Blueprint("run_steps", __name__)

    @bp.get("/v1/threads/<thread_id>/runs/<run_id>/steps")
    def steps(thread_id: str, run_id: str) -> Response:
        runs.get(owner(), thread_id, run_id)
        page = list_page(store.run_steps, owner(), page_query(), parent=run_id)
        return jsonify(Page([view(s) for s in page.data], page.has_more).to_json())

    @bp.get("/v1/threads/<thread_id>/runs/<run_id>/steps/<step_id>")
    def step(thread_id: str, run_id: str, step_id: str) -> Response:
        runs.get(owner(), thread_id, run_id)
        return jsonify(view(store.run_steps.get(owner(), step_id, parent=run_id)))

    return bp
