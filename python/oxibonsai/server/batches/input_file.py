"""Reads the requests of a batch from an uploaded file: one JSON object per line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, Any

from oxibonsai.server.batches.records import MOST_REQUESTS, new_request
from oxibonsai.server.batches.request_line import refusal_in_a_batch
from oxibonsai.server.errors import ApiError
from oxibonsai.server.stores import Object
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
