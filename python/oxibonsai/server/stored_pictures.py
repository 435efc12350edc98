"""Pictures of requests that are stored files, in the place of their ids."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oxibonsai.chat import ChatRequest
from oxibonsai.output.messages import IMAGES
from oxibonsai.server.access import current_owner
from oxibonsai.server.stores import FileStore, NoSuchObjectError
from oxibonsai.server.stores.files import is_expired


def with_stored_pictures(request: ChatRequest, files: FileStore, max_bytes: int) -> ChatRequest:
    """The conversation with the content of files where it names them.

    Args:
        request: The conversation.
        files: The stored files.
        max_bytes: Of a picture; of a larger file only so much is read that its size is seen.

    Raises:
        NoSuchObjectError: The owner of the request has no such file.
    """
    messages = [_read_message(message, files, max_bytes) for message in request.messages]
    return replace(request, messages=messages)


def _read_message(message: Any, files: FileStore, max_bytes: int) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list) or not any(_file_of(part) for part in content):
        return message
    return {**message, "content": [_read(part, files, max_bytes) for part in content]}


def _file_of(part: Any) -> str | None:
    """The id of the file that a picture is."""
    if not isinstance(part, Mapping) or part.get("type") not in IMAGES:
        return None
    inner = part.get("image_file")
    found = (inner if isinstance(inner, Mapping) else part).get("file_id")
    return found if isinstance(found, str) else None


def _read(part: Any, files: FileStore, max_bytes: int) -> Any:
    file_id, owner = _file_of(part), current_owner() or ""
    if file_id is None:
        return part
    if is_expired(files.get(owner, file_id)):
        raise NoSuchObjectError("file", file_id)
    with contextlib.closing(files.open(owner, file_id)) as file:
        data = file.read(max_bytes + 1)
    return {"type": "image", "image": data, "detail": part.get("detail")}
