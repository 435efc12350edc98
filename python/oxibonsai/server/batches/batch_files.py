"""Read the requests of a batch from an uploaded file, and write its output files."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, Any

from oxibonsai.server.batches.records import MOST_REQUESTS, new_request, succeeded
from oxibonsai.server.batches.request_line import refusal_in_a_batch
from oxibonsai.server.errors import ApiError
from oxibonsai.server.stores import FileStore, NoSuchObjectError, Object
from oxibonsai.server.strict_json import parse

# Further errors of a file are not reported.
_MOST_ERRORS = 100
# Longer lines are read one at a time, as large requests are.
_LARGE_BYTES = 2**20
_Fault = tuple[str, str, str | None]


class InvalidInputError(ValueError):
    """The file can't be used.

    Attributes:
        errors: OpenAI's error objects, at least one.
    """

    def __init__(self, errors: list[Object]) -> None:
        super().__init__(errors[0]["message"])
        self.errors = errors


def read_requests(
    file: IO[bytes],
    endpoint: str,
    most_bytes: int,
    large: Callable[[], AbstractContextManager[None]],
) -> Iterator[Object]:
    """Yield the requests of a file, one at a time; none after the first error.

    Args:
        file: A line for each request; empty ones are skipped.
        endpoint: The route of the batch, which every line has to name.
        most_bytes: The longest line.
        large: Waits until a large line may be read, and holds the turn.

    Raises:
        InvalidInputError: A line is not a request or too long, or there are too many or none.
    """
    errors: list[Object] = []
    names: set[str] = set()
    for number, line in enumerate(iter(partial(file.readline, most_bytes + 1), b""), 1):
        if len(line) > most_bytes:
            told = (
                f"the line is longer than {most_bytes} bytes: shorten its request, or raise "
                "--max-body-mb"
            )
            errors.append(_error("line_too_long", told, number))
            break
        if not line.strip():
            continue
        if len(names) == MOST_REQUESTS:
            errors.append(_error("too_many_requests", f"there are more than {MOST_REQUESTS}"))
            break
        with large() if len(line) > _LARGE_BYTES else contextlib.nullcontext():
            request, found = _read_line(line, endpoint, names)
        errors += [_error(code, message, number, param) for code, message, param in found]
        if len(errors) >= _MOST_ERRORS:
            break
        if request is not None and not errors:
            yield request
    if not names and not errors:
        errors.append(_error("empty_file", "the file has no requests"))
    if errors:
        raise InvalidInputError(errors[:_MOST_ERRORS])


def _read_line(line: bytes, endpoint: str, names: set[str]) -> tuple[Object | None, list[_Fault]]:
    """Return the request of a line, whose name is added to ``names``, or what is wrong with it."""
    try:
        value = parse(line)
    except ApiError as e:
        return None, [("invalid_json_line", str(e), None)]
    if found := list(_faults(value, endpoint, names)):
        return None, found
    names.add(value["custom_id"])
    return new_request(value["custom_id"], value["body"], endpoint), []


def _faults(value: Any, endpoint: str, names: set[str]) -> Iterator[_Fault]:
    """Code, message and field of each fault of a line."""
    if not isinstance(value, dict):
        yield "invalid_json_line", "the line is not a JSON object", None
        return
    name, body = value.get("custom_id"), value.get("body")
    if not isinstance(name, str) or not name or len(name) > 512:
        yield (
            "missing_required_parameter",
            "custom_id is a text of 1 to 512 characters",
            "custom_id",
        )
    elif name in names:
        yield "duplicate_custom_id", f"another line has the custom_id '{name[:80]}'", "custom_id"
    if value.get("method") != "POST":
        yield "invalid_method", "method is POST", "method"
    if value.get("url") != endpoint:
        yield "mismatched_endpoint", f"url is the endpoint of the batch, {endpoint}", "url"
    if not isinstance(body, dict):
        yield "missing_required_parameter", "body is a JSON object", "body"
    elif (reason := refusal_in_a_batch(body)) is not None:
        yield "invalid_request", reason, "body"


def _error(code: str, message: str, line: int | None = None, param: str | None = None) -> Object:
    return {"code": code, "message": message, "param": param, "line": line}


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
