"""The application on a model, with objects of the fixed ids that the openai package's tests ask for.

Usage: openai_suite_server.py PORT MODEL FOLDER. ``POST /reset?run=STATUS`` makes the objects anew.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from flask import request
from model_app import make_model_app
from tool_template import TEMPLATE
from werkzeug.serving import make_server

from oxibonsai.server.openai.assistants.objects import (
    new_answer,
    new_assistant,
    new_message,
    new_run,
    new_step,
    new_thread,
)
from oxibonsai.server.openai.responses.run import new_response
from oxibonsai.server.openai.schemas.assistants import (
    AssistantCreate,
    MessageCreate,
    RunFields,
    ThreadChange,
)
from oxibonsai.server.openai.schemas.responses import ResponseRequest
from oxibonsai.server.server import Server
from oxibonsai.server.stores import NoSuchObjectError

OWNER = "anonymous"
RESPONSES = ("resp_677efb5139a88190b512bc3fef8e535d", "resp_123", "response_id")
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def fill(app: Server, run_status: str) -> None:
    """Puts the objects into the store, in place of those that an earlier test has left."""
    store = app.store
    kinds = [
        (store.threads, "thread_id"), (store.assistants, "assistant_id"), (store.files, "file_id"),
        *((store.responses, response_id) for response_id in RESPONSES),
    ]  # fmt: skip
    for collection, object_id in kinds:
        with contextlib.suppress(NoSuchObjectError):
            collection.delete(OWNER, object_id)
    body = ResponseRequest(model="tiny", input="hi", background=True)
    params = body.sampling_params(app.settings, app.submitter.engine, max_tokens=4)
    for response_id in RESPONSES:
        response = new_response(body, "tiny", params)
        response |= {"id": response_id, "status": "completed"}
        record = {"id": response_id, "response": response, "input": []}
        store.responses.create(OWNER, record)
    named = {"filename": "a", "object": "file", "created_at": 1, "purpose": "batch"}
    described = {"id": "file_id", "status": "processed", **named}
    store.files.upload(OWNER, described, io.BytesIO(b"content"))
    assistant = {**new_assistant(AssistantCreate(model="tiny")), "id": "assistant_id"}
    store.assistants.create(OWNER, assistant)
    thread = {**new_thread(ThreadChange()), "id": "thread_id"}
    store.threads.create(OWNER, {**thread, "active_run": "run_id"})
    said = new_message("thread_id", MessageCreate(role="user", content="hi"))
    store.messages.create(OWNER, {**said, "id": "message_id"}, parent="thread_id")
    run = new_run("thread_id", assistant, RunFields(assistant_id="assistant_id"))
    run |= {"id": "run_id", "status": run_status}
    if run_status == "requires_action":
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": [CALL]}}
        run["required_action"] = action
    store.runs.create(OWNER, run, parent="thread_id")
    written = {**new_answer(run), "id": "written", "status": "completed"}
    store.messages.create(OWNER, written, parent="thread_id")
    step = new_step(
        run, {"type": "message_creation", "message_creation": {"message_id": "written"}}
    )
    store.run_steps.create(OWNER, {**step, "id": "step_id", "status": "completed"}, parent="run_id")


def main() -> None:
    port, model, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    app = make_model_app(model, folder, chat_template=TEMPLATE, n_predict=4)

    @app.post("/reset")
    def reset() -> str:
        fill(app, request.args["run"])
        return "done"

    make_server("127.0.0.1", port, app, threaded=True).serve_forever()


if __name__ == "__main__":
    main()
