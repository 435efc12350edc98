"""Operations of OpenAI's Assistants."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation
from oxibonsai.server.admin.operations.shapes import deleted_object, object_of, page_of
from oxibonsai.server.openai.schemas.assistants import (
    AssistantChange,
    AssistantCreate,
    MessageCreate,
    MetadataChange,
    RunCreate,
    ThreadAndRunCreate,
    ThreadChange,
    ThreadCreate,
    ToolOutputs,
)
from oxibonsai.server.paging import PageQuery

_ASSISTANT = object_of("assistant", "created_at", "model", "instructions", "tools", "metadata")
_THREAD = object_of("thread", "created_at", "metadata")
_THREAD_MESSAGE = object_of("thread.message", "created_at", "thread_id", "role", "content")
_RUN = object_of("thread.run", "created_at", "thread_id", "assistant_id", "status")
_STEP = object_of("thread.run.step", "created_at", "run_id", "thread_id", "status", "step_details")

ASSISTANTS = {
    "assistants.create": Operation(
        "Create an assistant", body=AssistantCreate, response=_ASSISTANT
    ),
    "assistants.list_assistants": Operation(
        "List assistants", query=PageQuery, response=page_of(_ASSISTANT)
    ),
    "assistants.get": Operation("Get an assistant", response=_ASSISTANT),
    "assistants.change": Operation(
        "Change an assistant", body=AssistantChange, response=_ASSISTANT
    ),
    "assistants.delete": Operation(
        "Delete an assistant", response=deleted_object("assistant.deleted")
    ),
    "threads.create": Operation("Create a thread", body=ThreadCreate, response=_THREAD),
    "threads.get": Operation("Get a thread", response=_THREAD),
    "threads.change": Operation("Change a thread", body=ThreadChange, response=_THREAD),
    "threads.delete": Operation("Delete a thread", response=deleted_object("thread.deleted")),
    "thread_messages.create": Operation(
        "Add a message", body=MessageCreate, response=_THREAD_MESSAGE
    ),
    "thread_messages.list_messages": Operation(
        "List messages", query=PageQuery, response=page_of(_THREAD_MESSAGE)
    ),
    "thread_messages.get": Operation("Get a message", response=_THREAD_MESSAGE),
    "thread_messages.change": Operation(
        "Change a message's metadata", body=MetadataChange, response=_THREAD_MESSAGE
    ),
    "thread_messages.delete": Operation(
        "Delete a message", response=deleted_object("thread.message.deleted")
    ),
    "runs.create_thread_and_run": Operation(
        "Create a thread and run it",
        body=ThreadAndRunCreate,
        response=_RUN,
        streams=True,
        needs=Feature.GENERATION,
    ),
    "runs.create": Operation(
        "Run a thread", body=RunCreate, response=_RUN, streams=True, needs=Feature.GENERATION
    ),
    "runs.list_runs": Operation("List runs", query=PageQuery, response=page_of(_RUN)),
    "runs.get": Operation("Get a run", response=_RUN),
    "runs.change": Operation("Change a run's metadata", body=MetadataChange, response=_RUN),
    "runs.cancel": Operation("Cancel a run", response=_RUN),
    "runs.submit": Operation(
        "Submit tool outputs to a run", body=ToolOutputs, response=_RUN, streams=True
    ),
    "run_steps.steps": Operation("List run steps", query=PageQuery, response=page_of(_STEP)),
    "run_steps.step": Operation("Get a run step", response=_STEP),
}
