"""``/v1/files``: upload, list, get, download, delete."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from flask import Blueprint, Response, jsonify, request, send_file

from oxibonsai.server.access import owner
from oxibonsai.server.errors import ApiError
from oxibonsai.server.openai.schemas.files import UploadForm
from oxibonsai.server.paging import list_page, page_query
from oxibonsai.server.stores import FileStore, NoSuchObjectError, Object
from oxibonsai.server.stores.files import is_expired
from oxibonsai.server.validation import as_body

_MOST_LISTED = 10_000


def files_blueprint(store: FileStore, *, max_upload_bytes: int) -> Blueprint:
    """Return the routes.

    Args:
        store: The stored files.
        max_upload_bytes: Largest request body of an upload, including the form.
    """
    bp = Blueprint("files", __name__)

    def find(file_id: str) -> Object:
        found = store.get(owner(), file_id)
        if is_expired(found):
            store.delete(owner(), file_id)
            raise NoSuchObjectError("file", file_id)
        return found

    @bp.post("/v1/files")
    def upload() -> Response:
        request.max_content_length = max_upload_bytes
        form = as_body(UploadForm, _form())
        file = request.files.get("file")
        if file is None or not file.filename:
            raise ApiError(400, "file: the form has no part with a file name", param="file")
        with contextlib.closing(file):
            return jsonify(store.upload(owner(), _new_file(file.filename, form), file.stream))

    @bp.get("/v1/files")
    def list_files() -> Response:
        query = page_query(most=_MOST_LISTED, default=_MOST_LISTED)
        purpose = request.args.get("purpose")

        def keep(file: Object) -> bool:
            return not is_expired(file) and purpose in (None, file["purpose"])

        return jsonify(list_page(store, owner(), query, keep=keep).to_json())

    @bp.get("/v1/files/<file_id>")
    def get(file_id: str) -> Response:
        return jsonify(find(file_id))

    @bp.delete("/v1/files/<file_id>")
    def delete(file_id: str) -> Response:
        store.delete(owner(), file_id)
        return jsonify(id=file_id, object="file", deleted=True)

    @bp.get("/v1/files/<file_id>/content")
    def content(file_id: str) -> Response:
        found = find(file_id)
        # Never as HTML or an image: uploaded content must not run in a browser.
        response = send_file(
            store.open(owner(), file_id), mimetype="application/octet-stream", as_attachment=True,
            download_name=found["filename"],
        )  # fmt: skip
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.content_length = found["bytes"]
        return response

    return bp


def _new_file(name: str, form: UploadForm) -> Object:
    now = int(time.time())
    return {
        "object": "file",
        "bytes": 0,
        "created_at": now,
        "filename": _plain_name(name),
        "purpose": form.purpose,
        "status": "processed",
        "expires_at": now + form.expires_after.seconds if form.expires_after else None,
    }


def _form() -> dict[str, Any]:
    """Return the form's fields; ``expires_after[seconds]`` becomes a member of an object."""
    if request.mimetype != "multipart/form-data":
        raise ApiError(
            415, "Send the file as multipart/form-data, with the fields file and purpose."
        )
    form: dict[str, Any] = {}
    for name, value in request.form.items():
        if name is None:
            raise ApiError(400, "A part of the form has no name.")
        outer, bracket, inner = name.partition("[")
        if bracket:
            fields = form.setdefault(outer, {})
            if isinstance(fields, dict):
                inner = inner.rstrip("]")
                number = inner == "seconds" and value.isdecimal() and len(value) < 12
                fields[inner] = int(value) if number else value
        else:
            form[outer] = value
    return form


def _plain_name(name: str) -> str:
    """Return a file name without folders and control characters."""
    name = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in name if c.isprintable())[:255] or "file"
