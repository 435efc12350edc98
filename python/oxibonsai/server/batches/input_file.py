"""Reads the requests of a batch from an uploaded file: one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from oxibonsai.server.batches.records import MOST_REQUESTS, new_request
from oxibonsai.server.batches.request_line import refusal_in_a_batch
from oxibonsai.server.errors import ApiError
from oxibonsai.server.stores import Object
from oxibonsai.server.strict_json import parse

# Further errors of a file are not reported.
_MOST_ERRORS = 100


class InvalidInputError(ValueError):
    """The file can't be used.

    Attributes:
        errors: OpenAI's error objects, at least one.
    """

    def __init__(self, errors: list[Object]) -> None:
        super().__init__(errors[0]["message"])
        self.errors = errors


def read_requests(lines: Iterable[bytes], endpoint: str) -> list[Object]:
    """The requests of a file.

    Args:
        lines: Of the file; empty ones are skipped.
        endpoint: The route of the batch, which every line has to name.

    Raises:
        InvalidInputError: A line is not a request, or there are too many or none.
    """
    requests: list[Object] = []
    errors: list[Object] = []
    names: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(requests) == MOST_REQUESTS:
            errors.append(_error("too_many_requests", f"there are more than {MOST_REQUESTS}"))
            break
        try:
            value = parse(line)
        except ApiError as e:
            errors.append(_error("invalid_json_line", str(e), number))
            continue
        found = list(_faults(value, endpoint, names))
        errors += [_error(code, message, number, param) for code, message, param in found]
        if len(errors) >= _MOST_ERRORS:
            break
        if not found:
            names.add(value["custom_id"])
            requests.append(new_request(value["custom_id"], value["body"], endpoint))
    if not requests and not errors:
        errors.append(_error("empty_file", "the file has no requests"))
    if errors:
        raise InvalidInputError(errors[:_MOST_ERRORS])
    return requests


def _faults(value: Any, endpoint: str, names: set[str]) -> Iterator[tuple[str, str, str | None]]:
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
