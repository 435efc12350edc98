"""A small valid body for every endpoint that reads JSON, and objects for the ids in paths."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from flask.testing import FlaskClient

_FUNCTION: dict[str, Any] = {
    "name": "weather",
    "description": "Says the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Rome", "Paris"]}},
        "required": ["city"],
    },
}
_MESSAGES = [{"role": "user", "content": "Hi"}]

_TOOL = {"type": "function", "function": _FUNCTION}
_SCHEMA = {"name": "answer", "schema": _FUNCTION["parameters"]}

VALID_BODIES: dict[str, dict[str, Any]] = {
    "chat.create_chat_completion": {
        "model": "tiny",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "max_tokens": 2,
        "response_format": {"type": "json_schema", "json_schema": _SCHEMA},
        "logit_bias": {"65": 1},
        "stop": ["no"],
        "stream_options": None,
    },
    "chat.count_tokens": {"model": "tiny", "messages": _MESSAGES},
    "completions.create_completion": {
        "model": "tiny", "prompt": ["a"], "max_tokens": 2, "logprobs": 1,
    },
    "native_completion.create_native_completion": {"prompt": "a", "n_predict": 2, "n_probs": 1},
    "embeddings.create_embeddings": {"model": "tiny", "input": ["a", "b"]},
    "embeddings.create_native_embeddings": {"content": ["a", "b"]},
    "rerank.rerank": {"model": "tiny", "query": "a", "documents": ["b", {"text": "c"}]},
    "router.load": {"model": "tiny"},
    "router.download": {"model": "hf:org/repo"},
    "router.unload": {"model": "tiny"},
    "native_completion.infill": {
        "input_prefix": "a", "input_suffix": "b", "n_predict": 2,
    },
    "ollama_generate.chat": {
        "model": "tiny", "messages": _MESSAGES, "options": {"num_predict": 2}, "stream": False,
    },
    "ollama_generate.generate": {
        "model": "tiny", "prompt": "a", "options": {"num_predict": 2}, "stream": False,
    },
    "ollama_embed.embed": {"model": "tiny", "input": ["a", "b"]},
    "ollama_embed.embeddings": {"model": "tiny", "prompt": "a"},
    "ollama_models.show": {"model": "tiny"},
    "ollama_models.pull": {"model": "hf:org/repo"},
    "images.generate": {"model": "tiny", "prompt": "a tree", "size": "512x512", "n": 1},
    "slots.act": {"filename": "a.bin"},
    "tokens.tokenize": {"content": "a b", "with_pieces": True},
    "tokens.detokenize": {"tokens": [5, 6]},
    "tools.call_tool": {"tool": "files_read", "params": {"path": "a"}},  # there is none
    "tokens.apply_template": {"messages": _MESSAGES},
    "messages.create": {"model": "tiny", "messages": _MESSAGES, "max_tokens": 2},
    "messages.count_tokens": {"model": "tiny", "messages": _MESSAGES, "system": "Be brief."},
    "responses.create": {
        "model": "tiny",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "max_output_tokens": 2,
    },
    "responses.count_tokens": {"input": "Hi", "instructions": "Be brief."},
    "responses.compact": {"input": "Hi", "instructions": "Be brief."},
    "stored_completions.change": {"metadata": {"a": "b"}},
    "conversations.create": {"items": _MESSAGES, "metadata": {"a": "b"}},
    "conversations.change": {"metadata": {"a": "b"}},
    "conversations.add_items": {"items": _MESSAGES},
    "batches.create": {
        "input_file_id": "FILE", "endpoint": "/v1/embeddings", "completion_window": "24h",
    },
    "message_batches.create": {
        "requests": [
            {"custom_id": "a", "params": {"model": "tiny", "messages": _MESSAGES, "max_tokens": 2}}
        ],
    },
    "assistants.create": {"model": "tiny", "instructions": "Be brief.", "tools": [_TOOL]},
    "assistants.change": {"name": "helper"},
    "threads.create": {"messages": _MESSAGES, "metadata": {"a": "b"}},
    "threads.change": {"metadata": {"a": "b"}},
    "thread_messages.create": {"role": "user", "content": "Hi"},
    "thread_messages.change": {"metadata": {"a": "b"}},
    "runs.create": {"assistant_id": "ASSISTANT", "max_completion_tokens": 2},
    "runs.create_thread_and_run": {
        "assistant_id": "ASSISTANT",
        "thread": {"messages": _MESSAGES},
        "max_completion_tokens": 2,
    },
    "runs.change": {"metadata": {"a": "b"}},
    "runs.submit": {"tool_outputs": [{"tool_call_id": "call_1", "output": "x"}]},
}  # fmt: skip


def valid_body(endpoint: str, ids: Mapping[str, str]) -> dict[str, Any]:
    """The body, with the ids of an assistant and of a batch's file that are there."""
    body = VALID_BODIES[endpoint]
    body = body | ({"assistant_id": ids["assistant_id"]} if "assistant_id" in body else {})
    return body | ({"input_file_id": ids["batch_file"]} if "input_file_id" in body else {})


def make_objects(client: FlaskClient, headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """An object of each kind that routes name, by the argument's name."""

    def make(path: str, **request: Any) -> str:
        answer = client.post(path, headers=headers, **request)
        assert answer.status_code == 200, answer.text
        return str(answer.get_json()["id"])

    def first(path: str) -> str:
        return str(client.get(path, headers=headers).get_json()["data"][0]["id"])

    form = {"purpose": "assistants", "file": (io.BytesIO(b"a file"), "notes.txt")}
    batch = {"purpose": "batch", "file": (io.BytesIO(b"no requests"), "batch.jsonl")}
    batch_file = make("/v1/files", data=batch)
    create = {**VALID_BODIES["batches.create"], "input_file_id": batch_file}
    conversation = make("/v1/conversations", json=VALID_BODIES["conversations.create"])
    chat = {**VALID_BODIES["chat.create_chat_completion"], "store": True}
    assistant = make("/v1/assistants", json={"model": "tiny"})
    thread = make("/v1/threads", json=VALID_BODIES["threads.create"])
    run_body = {**VALID_BODIES["runs.create"], "assistant_id": assistant, "stream": True}
    runs = f"/v1/threads/{thread}/runs"
    client.post(runs, json=run_body, headers=headers).get_data()  # until it has ended
    run = first(runs)
    return {
        "file_id": make("/v1/files", data=form),
        "batch_file": batch_file,
        "batch_id": make("/v1/batches", json=create),
        "conversation_id": conversation,
        "item_id": first(f"/v1/conversations/{conversation}/items"),
        "completion_id": make("/v1/chat/completions", json=chat),
        "response_id": make("/v1/responses", json=VALID_BODIES["responses.create"]),
        "assistant_id": assistant,
        "thread_id": thread,
        "message_id": first(f"/v1/threads/{thread}/messages"),
        "run_id": run,
        "slot_id": "0",
        "step_id": first(f"{runs}/{run}/steps"),
    }
