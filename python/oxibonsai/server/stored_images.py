"""Images of requests that are stored files, in the place of their ids."""

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
from oxibonsai.vision import ImageReader


def with_stored_images(request: ChatRequest, files: FileStore, reader: ImageReader) -> ChatRequest:
    """Return the conversation with the content of files where it names them.

    Args:
        request: The conversation.
        files: The stored files.
        reader: Its limits hold before anything is read; of a file that is too large only so much is
            read that its size is seen.

    Raises:
        RequestError: There are too many images.
        NoSuchObjectError: The owner of the request has no such file.
    """
    named = [
        f for message in request.messages for part in parts_of(message) if (f := _file_of(part))
    ]
    if not named:
        return request
    reader.check_count(len(named))
    contents = {f: content_of_file(f, files, reader.limits.max_bytes) for f in dict.fromkeys(named)}
    messages = [_filled(message, contents) for message in request.messages]
    return replace(request, messages=messages)


def parts_of(message: Any) -> list[Any]:
    """Return the parts of a message's content; none where it is a text."""
    content = message.get("content") if isinstance(message, Mapping) else None
    return content if isinstance(content, list) else []


def _filled(message: Any, contents: Mapping[str, bytes]) -> Any:
    parts = parts_of(message)
    if not any(map(_file_of, parts)):
        return message
    return {**message, "content": [_shown(part, contents) for part in parts]}


def _shown(part: Any, contents: Mapping[str, bytes]) -> Any:
    file_id = _file_of(part)
    if file_id is None:
        return part
    inner = part.get("image_file")
    detail = part.get("detail", inner.get("detail") if isinstance(inner, Mapping) else None)
    return {"type": "image", "image": contents[file_id], "detail": detail}


def _file_of(part: Any) -> str | None:
    """Return the id of the file that an image is."""
    if not isinstance(part, Mapping) or part.get("type") not in IMAGES:
        return None
    inner = part.get("image_file")
    found = (inner if isinstance(inner, Mapping) else part).get("file_id")
    return found if isinstance(found, str) else None


def content_of_file(file_id: str, files: FileStore, max_bytes: int) -> bytes:
    """Return what a stored file of the request's owner holds; of a larger one a byte more than that.

    Raises:
        NoSuchObjectError: There is no such file, or its time is over.
    """
    owner = current_owner() or ""
    if is_expired(files.get(owner, file_id)):
        raise NoSuchObjectError("file", file_id)
    with contextlib.closing(files.open(owner, file_id)) as file:
        return file.read(max_bytes + 1)
