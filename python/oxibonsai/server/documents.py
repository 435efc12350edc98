"""Parts of messages that are documents, in whose place their pages stand."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oxibonsai.chat import ChatRequest
from oxibonsai.errors import RequestError
from oxibonsai.server.pdf import MOST_BYTES, MOST_PAGE_BYTES, Allowance, Page, PdfReader
from oxibonsai.server.stored_images import content_of_file, parts_of
from oxibonsai.server.stores import FileStore

MOST_DOCUMENTS = 100  # of a request
_KINDS = ("file", "input_file")  # of chat completions and of responses
_URL = "data:application/pdf;base64,"


def with_documents(
    request: ChatRequest,
    files: FileStore,
    reader: PdfReader,
    *,
    sees: bool,
    look: Callable[[], None] | None = None,
) -> ChatRequest:
    """Return a conversation with the text of documents in their place.

    Args:
        request: The conversation.
        files: The stored files.
        reader: Reads documents.
        sees: Whether the model reads images: scanned pages become images, else a sentence.
        look: As for :meth:`PdfReader.pages`.

    Raises:
        RequestError: A document can't be read, or has no text and the model does not see; or there are
            too many of them, or they are too large together.
        NoSuchObjectError: The owner of the request has no such file.
    """
    count = sum(_is_document(p) for m in request.messages for p in parts_of(m))
    if not count:
        return request
    if count > MOST_DOCUMENTS:
        raise RequestError(f"there are {count} documents; at most {MOST_DOCUMENTS} are read")
    allowance, size = Allowance(), 0
    messages = []
    for i, message in enumerate(request.messages):
        content: list[Any] = []
        for j, part in enumerate(parts_of(message)):
            if not _is_document(part):
                content.append(part)
                continue
            place = f"messages[{i}].content[{j}]"
            if message.get("role") != "user":
                raise RequestError(
                    f"{place}: a document stands in a message of the user", param=place
                )
            name, data = _document(part, place, files)
            pages = reader.pages(name, data, look, scans=sees, allowance=allowance)
            size += sum(page.size for page in pages)
            if size > MOST_PAGE_BYTES:
                most = MOST_PAGE_BYTES >> 20
                raise RequestError(
                    f"the documents have more than the {most} MiB of pages that are read"
                )
            content += _shown(name, pages, sees=sees)
        messages.append({**message, "content": content} if content else message)
    return replace(request, messages=messages)


def _is_document(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _KINDS


def _document(part: Mapping[str, Any], place: str, files: FileStore) -> tuple[str, bytes]:
    """Return the name and the content of a document."""
    given = part.get("file") if part["type"] == "file" else part
    if not isinstance(given, Mapping):
        raise RequestError(f"{place}.file is not an object", param=place)
    stated = given.get("filename")
    name = stated[:100] if isinstance(stated, str) and stated.isprintable() else "the document"
    file_id, data = given.get("file_id"), given.get("file_data")
    if isinstance(file_id, str) and data is None:
        return name, content_of_file(file_id, files, MOST_BYTES)
    if not isinstance(data, str) or file_id is not None:
        raise RequestError(
            f"{place}: a document is given as file_data (data:application/pdf;base64,...) or as "
            "file_id; addresses are not fetched",
            param=place,
        )
    if data.startswith("data:") and not data.lower().startswith(_URL):
        raise RequestError(
            f"{place}.file_data: only {_URL}... is read, no other kind of document", param=place
        )
    try:
        return name, base64.b64decode(data.partition(",")[2] or data, validate=True)
    except ValueError as e:  # also of characters beyond ASCII
        raise RequestError(f"{place}.file_data is not base64: {e}", param=place) from None


def _shown(name: str, pages: Sequence[Page], *, sees: bool) -> list[dict[str, Any]]:
    """Return the parts that stand for a document."""
    if not sees and not any(page.text.strip() for page in pages):
        raise RequestError(
            f"{name} has no text, only scanned pages: they take a model that sees (--mmproj FILE)"
        )
    count = "1 page" if len(pages) == 1 else f"{len(pages)} pages"
    parts = [_text(f"Document {name}, {count}:")]
    for number, page in enumerate(pages, 1):
        if page.text.strip():
            parts.append(_text(f"Page {number}:\n{page.text.strip()}"))
        elif page.scan is not None:
            parts += [_text(f"Page {number} is a picture:"), {"type": "image", "image": page.scan}]
        else:
            parts.append(_text(f"Page {number} has no text."))
    return parts


def _text(text: str) -> dict[str, Any]:
    """Return a part with a line of its own: some templates join parts without a space."""
    return {"type": "text", "text": f"{text}\n"}
