"""``/v1/files``."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from fake_backend import MakeApp
from flask.testing import FlaskClient
from url_sweep import assert_error_object
from werkzeug.datastructures import FileStorage
from werkzeug.test import TestResponse, encode_multipart

from oxibonsai.server.server import Server


def upload(client: FlaskClient, content: bytes, name: str = "a.txt", **fields: Any) -> TestResponse:
    form = {"purpose": "assistants", "file": FileStorage(io.BytesIO(content), name), **fields}
    form = {k: v for k, v in form.items() if v is not None}
    # In memory: the test client would leave a temporary file open.
    boundary, data = encode_multipart(form)
    return client.post(
        "/v1/files", data=data, content_type=f"multipart/form-data; boundary={boundary}"
    )


def test_a_file_goes_in_and_comes_out_byte_for_byte(client: FlaskClient) -> None:
    content = bytes(range(256)) * 5000
    made = upload(client, content, "Grüße.bin").get_json()
    assert made["object"] == "file"
    assert made["bytes"] == len(content)
    assert (made["filename"], made["purpose"]) == ("Grüße.bin", "assistants")
    assert client.get(f"/v1/files/{made['id']}").get_json() == made
    answer = client.get(f"/v1/files/{made['id']}/content")
    assert hashlib.sha256(answer.data).digest() == hashlib.sha256(content).digest()
    assert answer.mimetype == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "attachment" in answer.headers["Content-Disposition"]
    answer.close()


def test_a_deleted_file_is_gone(client: FlaskClient) -> None:
    file_id = upload(client, b"x").get_json()["id"]
    assert client.delete(f"/v1/files/{file_id}").get_json() == {
        "id": file_id, "object": "file", "deleted": True,
    }  # fmt: skip
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        answer = client.open(f"/v1/files/{file_id}{path}", method=method)
        assert answer.status_code == 404
        assert_error_object(answer)


def test_files_are_listed_by_purpose_and_in_pages(client: FlaskClient) -> None:
    ids = [upload(client, b"x", purpose=p).get_json()["id"] for p in ["batch", "vision"] * 60]
    listed = client.get("/v1/files").get_json()
    assert [f["id"] for f in listed["data"]] == ids[::-1]
    assert not listed["has_more"]
    part = client.get("/v1/files?purpose=vision&limit=59&order=asc").get_json()
    assert [f["id"] for f in part["data"]] == ids[1:-2:2]
    assert part["has_more"]
    rest = client.get(f"/v1/files?purpose=vision&order=asc&after={part['last_id']}").get_json()
    assert [f["id"] for f in rest["data"]] == ids[-1:]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=10001", "limit=x", "limit=-1", "order=up", "after=file-nope"]
)
def test_a_query_that_makes_no_sense_is_refused(client: FlaskClient, query: str) -> None:
    answer = client.get(f"/v1/files?{query}")
    assert answer.status_code == 400
    assert_error_object(answer)


@pytest.mark.parametrize(
    "fields",
    [
        {"purpose": None},
        {"purpose": "nonsense"},
        {"file": None},
        {"file": "no file"},
        {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3"},
        {"expires_after[anchor]": "now", "expires_after[seconds]": "3600"},
        {"expires_after": "3600"},
    ],
)
def test_a_form_that_makes_no_sense_is_refused(client: FlaskClient, fields: Any) -> None:
    answer = upload(client, b"x", **fields)
    assert answer.status_code == 400
    assert_error_object(answer)


def test_an_upload_is_a_form(client: FlaskClient) -> None:
    answer = client.post("/v1/files", json={"purpose": "assistants"})
    assert answer.status_code == 415
    assert_error_object(answer)


@pytest.mark.parametrize(("name", "kept"), [("../../etc/passwd", "passwd"), ("a\tb", "ab")])
def test_names_lose_folders_and_control_characters(
    client: FlaskClient, name: str, kept: str
) -> None:
    assert upload(client, b"x", name).get_json()["filename"] == kept


def test_files_have_a_limit_of_their_own_and_together(make_app: MakeApp) -> None:
    client = make_app(max_body_mb=0.01, max_file_mb=0.5, max_files_mb=1).test_client()
    # More than other bodies may have.
    assert upload(client, b"x" * 400_000).status_code == 200
    assert upload(client, b"x" * 600_000).status_code == 413
    assert upload(client, b"y" * 400_000).status_code == 200
    answer = upload(client, b"z" * 400_000)
    assert answer.status_code == 413
    assert_error_object(answer)


def test_a_file_whose_time_is_over_is_gone(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import time

    times = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    made = upload(client, b"x", **times).get_json()
    assert made["expires_at"] == made["created_at"] + 3600
    kept = upload(client, b"y").get_json()
    now = time.time()
    monkeypatch.setattr("oxibonsai.server.stores.files.time.time", lambda: now + 3601)
    assert [f["id"] for f in client.get("/v1/files").get_json()["data"]] == [kept["id"]]
    assert client.get(f"/v1/files/{made['id']}/content").status_code == 404


def contents(folder: Path) -> list[Path]:
    return [p for p in (folder / "files").glob("??/*") if p.is_file()]


@pytest.mark.parametrize("asked", [True, False])
def test_the_bytes_of_a_file_whose_time_is_over_go_too(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: bool
) -> None:
    times = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    made = upload(client, b"x", **times).get_json()
    upload(client, b"y")
    app.store.files.sweep()
    assert len(contents(tmp_path)) == 2
    monkeypatch.setattr("oxibonsai.server.stores.files.time.time", lambda: made["expires_at"] + 1.0)
    if asked:
        assert client.get(f"/v1/files/{made['id']}").status_code == 404
    else:
        app.store.files.sweep()
    assert [p.read_bytes() for p in contents(tmp_path)] == [b"y"]
