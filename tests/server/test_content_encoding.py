"""Compressed bodies: read where they are well packed, bounded by what they hold, else refused."""

from __future__ import annotations

import gzip
import io
import json
import resource
import threading
import zlib
from pathlib import Path

import pytest
from fake_backend import MakeApp, Probe
from flask.testing import FlaskClient
from running_server import running_server, wait_until
from url_sweep import assert_error_object
from werkzeug.test import TestResponse

TEXT = json.dumps({"a": "b" * 1000}).encode()
MB = 2**20


def bare(data: bytes) -> bytes:
    """Deflate without zlib's header and checksum, as some clients send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "GZIP": gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:]),
    "deflate": zlib.compress(TEXT),
    " Deflate ": bare(TEXT),
    "identity": TEXT,
    "": TEXT,
}


@pytest.fixture
def client(make_app: MakeApp) -> FlaskClient:
    app = make_app(max_body_mb=1, max_file_mb=2)
    app.register_blueprint(Probe(app.lifecycle).blueprint())
    return app.test_client()


def send(client: FlaskClient, data: bytes, name: str) -> TestResponse:
    headers = {"Content-Encoding": name, "Content-Type": "application/json"}
    return client.post("/echo", data=data, headers=headers)


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_body_is_the_body(client: FlaskClient, name: str) -> None:
    assert send(client, PACKED[name], name).get_json()["body"] == json.loads(TEXT)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_the_limit_of_a_body_holds_unpacked(client: FlaskClient, name: str) -> None:
    pack = gzip.compress if name == "gzip" else zlib.compress
    room = MB - len(b'{"a": ""}')
    assert send(client, pack(b'{"a": "' + b"x" * room + b'"}'), name).status_code == 200
    answer = send(client, pack(b'{"a": "' + b"x" * (room + 1) + b'"}'), name)
    assert answer.status_code == 413
    assert_error_object(answer)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_bomb_takes_no_memory(client: FlaskClient, name: str) -> None:
    packer = zlib.compressobj(9, wbits=31 if name == "gzip" else 15)
    bomb = b"".join(packer.compress(bytes(MB)) for _ in range(128)) + packer.flush()
    send(client, PACKED["gzip"], "gzip")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert send(client, bomb, name).status_code == 413
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert grown < 32 * 1024


@pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_upload_may_be_packed_and_has_its_own_limit(client: FlaskClient) -> None:
    def upload(size: int) -> TestResponse:
        head = b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--x\r\n'
        head += b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        data = gzip.compress(head + b"y" * size + b"\r\n--x--\r\n")
        headers = {"Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=x"}
        return client.post("/v1/files", data=data, headers=headers)

    done = upload(3 * MB // 2)
    assert done.get_json()["bytes"] == 3 * MB // 2
    path = f"/v1/files/{done.get_json()['id']}/content"
    found = client.get(path, buffered=True).data
    assert found == b"y" * (3 * MB // 2)
    assert upload(4 * MB).status_code == 413


DAMAGED = {
    "not packed": ("gzip", TEXT),
    "cut": ("gzip", PACKED["gzip"][:-3]),
    "a wrong checksum": ("gzip", PACKED["gzip"][:-8] + bytes(8)),
    "more after the end": ("gzip", PACKED["gzip"] + b"more"),
    "deflate, cut": ("deflate", PACKED["deflate"][:-1]),
    "deflate, more after the end": ("deflate", PACKED["deflate"] + b"more"),
    "gzip as deflate": ("deflate", PACKED["gzip"]),
    "deflate of nothing": ("deflate", b""),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_body_is_400(client: FlaskClient, case: str) -> None:
    name, data = DAMAGED[case]
    answer = send(client, data, name)
    assert answer.status_code == 400
    assert "can't be decompressed" in answer.get_json()["error"]["message"]


@pytest.mark.parametrize("name", ["br", "zstd", "gzip, gzip", "compress", "evil"])
def test_another_encoding_is_415(client: FlaskClient, name: str) -> None:
    answer = send(client, TEXT, name)
    assert answer.status_code == 415
    assert_error_object(answer)
    assert "gzip or deflate" in answer.get_json()["error"]["message"]


def test_a_packed_body_that_the_worker_did_not_read_is_413(client: FlaskClient) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    length = {"CONTENT_LENGTH": str(10 * MB)}
    answer = client.post(
        "/echo", input_stream=io.BytesIO(), headers=headers, environ_overrides=length
    )
    assert answer.status_code == 413


def test_a_real_server_takes_them(tmp_path: Path) -> None:
    kind = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with running_server(tmp_path, "--max-body-mb", "1") as server:
        status, _, answer = server.ask("/echo", "POST", PACKED["gzip"], **kind)
        assert (status, answer["body"]) == (200, json.loads(TEXT))
        assert server.ask("/echo", "POST", gzip.compress(bytes(64 * MB)), **kind)[0] == 413


@pytest.mark.parametrize("name", ["gzip", "deflate", "identity"])
def test_a_long_packed_body_waits_for_its_turn_as_a_plain_one_does(
    make_app: MakeApp, name: str
) -> None:
    app = make_app(max_body_mb=4)
    app.register_blueprint(Probe(app.lifecycle).blueprint())
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[name]
    statuses: list[int] = []

    def post() -> None:
        body = pack(json.dumps({"a": "b" * 2 * MB}).encode())
        statuses.append(send(app.test_client(), body, name).status_code)

    thread = threading.Thread(target=post)
    with app.large_requests.turn():
        thread.start()
        wait_until(lambda: app.large_requests.waiting == 1)
        # A short one does not wait.
        assert send(app.test_client(), pack(TEXT), name).status_code == 200
        assert statuses == []
    thread.join()
    assert statuses == [200]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_8_packed_posts_of_4_mb_of_lists_take_less_than_500_mb(tmp_path: Path, name: str) -> None:
    pack = gzip.compress if name == "gzip" else zlib.compress
    body = pack(b'{"a": [' + b"[]," * (4 * MB // 3) + b"[]]}")
    kind = {"Content-Type": "application/json", "Content-Encoding": name}
    with running_server(tmp_path) as server:
        before = server.peak_memory()
        statuses: list[int] = []

        def post() -> None:
            statuses.append(server.ask("/v1/conversations", "POST", body, **kind)[0])

        threads = [threading.Thread(target=post) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [400] * 8  # more lists than a body may have
        assert server.peak_memory() - before < 500
