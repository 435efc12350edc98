"""Pictures in requests: every form of every API shows the model the same rows; hostile ones are refused."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient
from hostile_pictures import HOSTILE
from model_app import close_model_app, make_model_app
from odd_pictures import drawn, saved
from PIL import Image
from toy_tower import ToyTower, write_model

from oxibonsai.engine import Engine, Options
from oxibonsai.engine.sequence import Sequence
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.server import Server
from oxibonsai.vision import ImageLimits, ImageReader, PlacedImage
from oxibonsai.vision.web import ImageFetcher

PICTURE = saved(Image.fromarray(drawn(16, 24)))
BASE64 = base64.b64encode(PICTURE).decode()
URL = f"data:image/png;base64,{BASE64}"
ROWS = 6
TEXT = {"type": "text", "text": "What is this?"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sees")
    write_model(folder / "model.gguf")
    made = make_model_app(folder / "model.gguf", folder, ctx_size=256, parallel=1)
    made.submitter.engine.image_reader = ImageReader.of_tower(ToyTower())
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[PlacedImage]:
    """The pictures that reach the engine."""
    found: list[PlacedImage] = []
    make = Engine.make_sequence

    def make_sequence(
        self: Engine, prompt: list[int], params: SamplingParams, options: Options
    ) -> Sequence:
        found.extend(options.images)
        return make(self, prompt, params, options)

    monkeypatch.setattr(Engine, "make_sequence", make_sequence)
    return found


def upload(client: FlaskClient, data: bytes = PICTURE) -> str:
    form = {"purpose": "vision", "file": (io.BytesIO(data), "cat.png")}
    answer = client.post("/v1/files", data=form, content_type="multipart/form-data")
    assert answer.status_code == 200, answer.text
    return str(answer.get_json()["id"])


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}], "max_tokens": 2}


def responses(*parts: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [*parts]}], "max_output_tokens": 2}


def messages(*parts: Any) -> dict[str, Any]:
    return {**chat(*parts), "model": "m"}


def image_url(url: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def input_image(**fields: Any) -> dict[str, Any]:
    return {"type": "input_image", **fields}


def block(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


SOURCE = block(type="base64", media_type="image/png", data=BASE64)
OUTPUT = [
    {"role": "user", "content": "hi"},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": [input_image(image_url=URL)]},
]
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [SOURCE], "is_error": True}
FORMS = {
    "chat": ("/v1/chat/completions", chat(TEXT, image_url(URL, detail="auto"))),
    "chat with the address itself": (
        "/v1/chat/completions",
        chat({"type": "image_url", "image_url": URL}, TEXT),
    ),
    "responses": (
        "/v1/responses",
        responses(
            {"type": "input_text", "text": "What?"}, input_image(image_url=URL, detail="high")
        ),
    ),
    "responses, a tool's output": ("/v1/responses", {"input": OUTPUT, "max_output_tokens": 2}),
    "messages": ("/v1/messages", messages(SOURCE, TEXT)),
    "messages, an address": ("/v1/messages", messages(block(type="url", url=URL))),
    "messages, a tool's result": ("/v1/messages", messages(RESULT)),
    "completion": (
        "/completion",
        {
            "prompt": {"prompt_string": "See <__media__> there", "multimodal_data": [BASE64]},
            "n_predict": 2,
        },
    ),
    "completions": (
        "/v1/completions",
        {
            "prompt": [{"prompt_string": "<__media__>", "multimodal_data": [BASE64]}],
            "max_tokens": 2,
        },
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_the_model_the_same_rows(
    client: FlaskClient, shown: list[PlacedImage], form: str
) -> None:
    path, body = FORMS[form]
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    [placed] = {id(p.embedding): p for p in shown}.values()
    expected = ToyTower().encode(_pixels())[1]
    assert not isinstance(expected, str)
    assert placed.embedding.digest == expected.digest
    assert placed.embedding.rows.tobytes() == expected.rows.tobytes()


def _pixels() -> Any:
    from oxibonsai.vision.decoding import decode_image

    return ToyTower.processor.prepare(decode_image(PICTURE))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_stored_file_is_a_picture(
    client: FlaskClient, shown: list[PlacedImage], api: str
) -> None:
    file_id = upload(client)
    path, body = {
        "chat": (
            "/v1/chat/completions",
            chat({"type": "image_file", "image_file": {"file_id": file_id}}),
        ),
        "responses": ("/v1/responses", responses(input_image(file_id=file_id, detail="low"))),
        "messages": ("/v1/messages", messages(block(type="file", file_id=file_id))),
    }[api]
    assert client.post(path, json=body).status_code == 200
    assert len(shown[0].embedding) == ROWS
    assert client.delete(f"/v1/files/{file_id}").status_code == 200
    missing = client.post(path, json=body)
    assert missing.status_code == 404
    assert "No file found" in missing.get_json()["error"]["message"]


def test_a_stored_file_has_the_detail_beside_its_id(client: FlaskClient) -> None:
    inner = {"file_id": upload(client), "detail": "fine"}
    answer = client.post(
        "/v1/chat/completions", json=chat({"type": "image_file", "image_file": inner})
    )
    assert (answer.status_code, "'fine'" in answer.text) == (400, True)


def test_too_many_stored_files_are_refused_before_they_are_read(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    opened = app.store.files.open
    monkeypatch.setattr(
        app.store.files, "open", lambda owner, name: read.append(name) or opened(owner, name)
    )
    part = input_image(file_id=upload(client))
    answer = client.post("/v1/responses", json=responses(*[part] * 40))
    assert (answer.status_code, "more than 32" in answer.text) == (400, True)
    assert not read
    assert client.post("/v1/responses", json=responses(part, part)).status_code == 200
    assert len(read) == 1


def test_a_stored_file_that_is_no_picture_is_refused(app: Server, client: FlaskClient) -> None:
    file_id = upload(client, b"{}")
    answer = client.post("/v1/responses", json=responses(input_image(file_id=file_id)))
    assert (answer.status_code, "no picture" in answer.text) == (400, True)
    reader = app.submitter.engine.image_reader
    assert reader is not None
    app.submitter.engine.image_reader = replace(reader, limits=ImageLimits(max_bytes=100))
    try:
        answer = client.post(
            "/v1/responses", json=responses(input_image(file_id=upload(client, bytes(5000))))
        )
    finally:
        app.submitter.engine.image_reader = reader
    assert (answer.status_code, "more than 100" in answer.text) == (400, True)


def test_pictures_are_part_of_counts_and_usage(
    client: FlaskClient, shown: list[PlacedImage]
) -> None:
    whole = client.post("/v1/chat/completions", json=chat(TEXT, image_url(URL))).get_json()
    shorter = client.post("/v1/chat/completions", json=chat(TEXT)).get_json()
    around = 2  # the tokens before and behind a picture
    used = whole["usage"]["prompt_tokens"] - shorter["usage"]["prompt_tokens"]
    assert used == ROWS + around
    counted = client.post("/v1/messages/count_tokens", json=_count(SOURCE, TEXT)).get_json()
    plain = client.post("/v1/messages/count_tokens", json=_count(TEXT)).get_json()
    assert counted["input_tokens"] - plain["input_tokens"] == ROWS + around
    counted = client.post(
        "/v1/responses/input_tokens",
        json={
            "input": responses(input_image(image_url=URL), {"type": "input_text", "text": "a"})[
                "input"
            ]
        },
    ).get_json()
    plain = client.post("/v1/responses/input_tokens", json={"input": "a"}).get_json()
    assert counted["input_tokens"] - plain["input_tokens"] == ROWS + around


def _count(*parts: Any) -> dict[str, Any]:
    body = messages(*parts)
    del body["max_tokens"]
    return body


def test_pictures_beyond_the_context_are_refused_before_they_are_encoded(
    app: Server, client: FlaskClient
) -> None:
    reader = app.submitter.engine.image_reader
    assert reader is not None
    tower = reader.tower
    assert isinstance(tower, ToyTower)
    large = saved(Image.fromarray(drawn(64, 256)))
    url = "data:image/png;base64," + base64.b64encode(large).decode()
    app.submitter.engine.image_reader = replace(
        reader, processor=replace(ToyTower.processor, max_pixels=1 << 20)
    )
    before = tower.encoded
    try:
        answer = client.post("/v1/chat/completions", json=chat(image_url(url)))
    finally:
        app.submitter.engine.image_reader = reader
    assert answer.status_code == 400
    assert answer.get_json()["error"]["code"] == "context_length_exceeded"
    assert tower.encoded == before
    many = client.post("/v1/chat/completions", json=chat(*[image_url(URL)] * 33))
    assert (many.status_code, "33 pictures" in many.text) == (400, True)


def test_a_template_is_shown_with_markers(client: FlaskClient) -> None:
    answer = client.post(
        "/apply-template", json={"messages": chat(TEXT, image_url(URL))["messages"]}
    )
    assert "<|image_pad|>" in answer.get_json()["prompt"]
    props = client.get("/props").get_json()
    assert props["modalities"]["vision"] is True
    assert props["media_marker"] == "<__media__>"


@pytest.mark.parametrize("name", [n for n in HOSTILE if n != "too many bytes"])
def test_a_hostile_picture_is_one_clear_error(client: FlaskClient, name: str) -> None:
    data = "data:image/png;base64," + base64.b64encode(HOSTILE[name]).decode()
    answer = client.post("/v1/chat/completions", json=chat(image_url(data)))
    assert answer.status_code == 400
    assert "picture" in answer.get_json()["error"]["message"]


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data", "https://example.org/a.png", "file:///etc/passwd",
     "/etc/passwd", "http://[::1]/", "ftp://example.org", ""],
)  # fmt: skip
def test_nothing_is_fetched_where_it_is_not_allowed(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("it connects")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    bodies = (
        ("/v1/chat/completions", chat(image_url(url))),
        ("/v1/responses", responses(input_image(image_url=url))),
        ("/v1/messages", messages(block(type="url", url=url))),
    )
    for path, body in bodies:
        answer = client.post(path, json=body)
        assert answer.status_code == 400, answer.text


def test_what_is_fetched_is_public(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch, shown: list[PlacedImage]
) -> None:
    def refuse(address: str, port: int, seconds: float) -> Any:
        raise AssertionError(f"it connects to {address}")

    reader = app.submitter.engine.image_reader
    assert reader is not None
    fetcher = ImageFetcher(1 << 20, connect=refuse)
    monkeypatch.setattr(app.submitter.engine, "image_reader", replace(reader, fetch=fetcher.fetch))
    for host in ("127.0.0.1", "localhost", "169.254.169.254", "10.0.0.8", "[::1]", "2130706433"):
        answer = client.post("/v1/chat/completions", json=chat(image_url(f"http://{host}/a.png")))
        assert answer.status_code == 400
        assert "public" in answer.get_json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", responses(input_image())),
        ("/v1/responses", responses(input_image(image_url=URL, file_id="file-1"))),
        ("/v1/responses", responses(input_image(image_url=URL, detail="huge"))),
        ("/v1/messages", messages(block(type="base64", media_type="image/jpeg", data=BASE64))),
        ("/v1/messages", messages(block(type="base64", media_type="image/tiff", data=BASE64))),
        ("/v1/messages", messages(block(type="base64", media_type="image/png", data="?"))),
        ("/v1/chat/completions", chat(image_url(URL, detail="huge"))),
        ("/v1/chat/completions", chat({"type": "image_file", "image_file": {}})),
        ("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": [BASE64]}}),
        ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": "x"}}),
        ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [3]}}),
        ("/completion", {"prompt": {"prompt_string": 3, "multimodal_data": [BASE64]}}),
        ("/completion", {"prompt": {"prompt_string": "<__media__>" * 2, "multimodal_data": [BASE64]}}),
        ("/v1/completions", {**FORMS["completions"][1], "echo": True}),
        ("/v1/completions", {**FORMS["completions"][1], "prompt_logprobs": 1}),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(client: FlaskClient, path: str, body: Any) -> None:
    assert client.post(path, json=body).status_code == 400
