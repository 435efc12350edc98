"""Writes the results of a batch to files: the answers, and the errors if there are any."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import IO

from oxibonsai.server.batches.records import succeeded
from oxibonsai.server.stores import FileStore, NoSuchObjectError, Object

# Larger results go to a temporary file.
_IN_MEMORY_BYTES = 1 << 20


def write_results(
    files: FileStore,
    owner: str,
    batch: Object,
    requests: Callable[[], Iterable[Object]],
    unanswered: Object | None,
) -> dict[str, str | None]:
    """Store the files, under the ids that the batch has reserved for them.

    Args:
        files: The stored files.
        owner: The owner of the batch.
        batch: The batch.
        requests: Reads its requests, the first one first.
        unanswered: The error of requests without a result; None: they are in no file.

    Returns:
        ``output_file_id`` and ``error_file_id``; None for a file that would be empty.

    Raises:
        TooLargeError: A file, or all files of the owner, are too large.
    """

    def output(request: Object) -> Object | None:
        result = request["result"]
        return _line(request, result, None) if result and succeeded(result) else None

    def error(request: Object) -> Object | None:
        result = request["result"]
        if result is None:
            return unanswered and _line(request, None, unanswered)
        return None if succeeded(result) else _line(request, result, None)

    made: dict[str, str | None] = {}
    for name, line_of in (("output", output), ("error", error)):
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
            for line in filter(None, map(line_of, requests())):
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            empty = file.tell() == 0
            file.seek(0)
            file_id = batch["reserved"][name]
            if not empty:
                _upload(files, owner, batch, f"{batch['id']}_{name}.jsonl", file_id, file)
            made[f"{name}_file_id"] = None if empty else file_id
    return made


def _upload(
    files: FileStore, owner: str, batch: Object, name: str, file_id: str, content: IO[bytes]
) -> None:
    try:
        files.get(owner, file_id)
        return  # written before the server was stopped
    except NoSuchObjectError:
        pass
    now = int(time.time())
    seconds = batch["output_expires_seconds"]
    body = {
        "id": file_id,
        "object": "file",
        "bytes": 0,
        "created_at": now,
        "filename": name,
        "purpose": "batch_output",
        "status": "processed",
        "expires_at": None if seconds is None else now + seconds,
    }
    files.upload(owner, body, content)


def _line(request: Object, response: Object | None, error: Object | None) -> Object:
    if response is not None:
        response = {
            "status_code": response["status"],
            "request_id": response["request_id"],
            "body": response["body"],
        }
    return {
        "id": request["id"],
        "custom_id": request["custom_id"],
        "response": response,
        "error": error,
    }
