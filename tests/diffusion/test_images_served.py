"""``/v1/images``: pictures over HTTP, one at a time, with nothing left behind by those that fail."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import node_clients
import numpy as np
import pytest
from fake_backend import FakeBackend
from flask.testing import FlaskClient
from hostile_bodies import hostile_bodies
from PIL import Image
from real_server import real_server
from running_server import RunningServer, wait_until
from test_hostile_requests import HOSTILE_FORMS

from oxibonsai import ImagePipeline
from oxibonsai.diffusion.pixels import encode_png
from oxibonsai.diffusion.request import ImageRequest, png_texts, record_of
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.access import current_owner, owner_of
from oxibonsai.server.app import create_app
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.openai.schemas.files import GenerationBody
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings

ROOT = Path(__file__).resolve().parents[2]
SEEDLING = ROOT / "python" / "oxibonsai" / "seedling" / "seedling-ternary.gguf"
GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"
ASKED: dict[str, Any] = {"prompt": "a tree", "size": "96x64", "seed": 42}

MakeApp = Callable[..., Server]


@pytest.fixture
def make_app(image_folder: Path, tmp_path: Path) -> Iterator[MakeApp]:
    made = []

    def make(**values: Any) -> Server:
        given = {"state_dir": tmp_path / "state", "image_model": str(image_folder), "threads": 2}
        app = create_app(load_settings({**given, **values}), FakeBackend())
        app.lifecycle.advance(Phase.READY)
        made.append(app)
        return app

    yield make
    for app in made:
        app.store.close()


@pytest.fixture
def client(make_app: MakeApp) -> FlaskClient:
    return make_app().test_client()


def file_of(pipeline: ImagePipeline, request: ImageRequest) -> bytes:
    diffusion = pipeline.diffusion
    return encode_png(diffusion.draw(request), png_texts(record_of(request, diffusion.name)))


def pictures_in(answer: Any) -> list[bytes]:
    assert answer.status_code == 200, answer.text
    return [base64.b64decode(d["b64_json"]) for d in answer.get_json()["data"]]


def png(seed: int, width: int, height: int) -> bytes:
    random = np.random.default_rng(seed)
    return encode_png(random.integers(0, 256, (height, width, 3), dtype=np.uint8), {})


def form(*pictures: bytes, **fields: Any) -> dict[str, Any]:
    files = [(io.BytesIO(data), f"{i}.png") for i, data in enumerate(pictures)]
    texts = {name: str(value) for name, value in fields.items()}
    return {"data": {**texts, "image": files}, "content_type": "multipart/form-data"}


def refused(answer: Any, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.get_json()["error"]["message"])


def test_a_picture_has_the_bytes_of_the_command_line(
    client: FlaskClient, pipeline: ImagePipeline
) -> None:
    answer = client.post(GENERATIONS, json={**ASKED, "n": 2})
    expected = [file_of(pipeline, ImageRequest("a tree", s, 96, 64)) for s in (42, 43)]
    assert pictures_in(answer) == expected
    body = answer.get_json()
    assert body["size"] == "96x64"
    assert body["output_format"] == "png"
    assert [d["seed"] for d in body["data"]] == [42, 43]


def test_a_link_leads_to_the_stored_picture_until_it_expires(client: FlaskClient) -> None:
    answer = client.post(GENERATIONS, json={**ASKED, "response_format": "url"}).get_json()
    url = answer["data"][0]["url"]
    assert url.startswith("http://localhost/v1/files/file-")
    with client.get(url) as fetched:
        assert [fetched.data] == pictures_in(client.post(GENERATIONS, json=ASKED))
    stored = client.get("/v1/files").get_json()["data"]
    assert len(stored) == 1
    assert 3500 < stored[0]["expires_at"] - stored[0]["created_at"] <= 3600


def events_of(text: str) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix("data: "))
        for line in text.splitlines()
        if line.startswith("data: ")
    ]


def test_a_stream_shows_previews_and_then_the_picture(client: FlaskClient) -> None:
    answer = client.post(GENERATIONS, json={**ASKED, "stream": True, "partial_images": 2})
    assert answer.mimetype == "text/event-stream"
    events = events_of(answer.text)
    kinds = [e["type"] for e in events]
    assert kinds == ["image_generation.partial_image"] * 2 + ["image_generation.completed"]
    assert [e["partial_image_index"] for e in events[:2]] == [0, 1]
    whole = pictures_in(client.post(GENERATIONS, json=ASKED))[0]
    assert base64.b64decode(events[-1]["b64_json"]) == whole
    shown = [Image.open(io.BytesIO(base64.b64decode(e["b64_json"]))) for e in events]
    assert {image.size for image in shown} == {(96, 64)}
    assert events[0]["b64_json"] != events[1]["b64_json"]


def test_edits_look_at_all_pictures(client: FlaskClient, pipeline: ImagePipeline) -> None:
    one, two = png(0, 64, 80), png(1, 96, 64)
    given = tuple(Image.open(io.BytesIO(data)).convert("RGB") for data in (one, two))
    asked = ImageRequest("a tree", 42, 64, 80, 4, references=given)
    answer = client.post(EDITS, **form(one, two, prompt="a tree", seed=42))
    assert pictures_in(answer) == [file_of(pipeline, asked)]
    streamed = client.post(EDITS, **form(one, two, prompt="a tree", seed=42, stream="true"))
    assert [e["type"] for e in events_of(streamed.text)] == ["image_edit.completed"]


def test_strength_starts_from_the_picture(client: FlaskClient, pipeline: ImagePipeline) -> None:
    data = png(0, 96, 64)
    start = Image.open(io.BytesIO(data)).convert("RGB")
    asked = ImageRequest("a tree", 42, 96, 64, 4, start=start, strength=0.5)
    answer = client.post(EDITS, **form(data, strength=0.5, **ASKED))
    assert pictures_in(answer) == [file_of(pipeline, asked)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": "100x64"}, "width 100 is no multiple of 16"),
        ({"size": "8x64"}, "from 16 to 2048"),
        ({"size": "large"}, "size"),
        ({"size": "2048x2048"}, "more than the 1048576 pixels"),
        ({"n": 11}, "n: "),
        ({"prompt": ""}, "prompt: "),
        ({"prompt": 7}, "prompt: "),
        ({"seed": -1}, "seed: "),
        ({"steps": 0}, "steps: "),
        ({"output_format": "webp"}, "output_format is not supported"),
        ({"background": "transparent"}, "background is not supported"),
        ({"stream": True, "n": 2}, "n: a stream has one picture"),
        ({"partial_images": 1}, "partial_images: send stream"),
        ({"colour": "red"}, "colour: there is no such field"),
    ],
)
def test_fields_that_make_no_sense_are_named(
    client: FlaskClient, fields: dict[str, Any], message: str
) -> None:
    assert message in refused(client.post(GENERATIONS, json={**ASKED, **fields}))


@pytest.mark.parametrize("size", ["100x64", "64x100", "8x64", "large", "2048x2048"])
def test_a_wrong_size_is_told_as_the_field_size(client: FlaskClient, size: str) -> None:
    answer = client.post(GENERATIONS, json={**ASKED, "size": size})
    assert (answer.status_code, answer.get_json()["error"]["param"]) == (400, "size")


def test_fields_that_ask_for_nothing_else_are_fine(client: FlaskClient) -> None:
    neutral = {"quality": "auto", "output_format": "png", "background": "opaque", "user": "me"}
    answer = client.post(GENERATIONS, json={**ASKED, **neutral, "model": "gpt-image-1"})
    assert pictures_in(answer) == pictures_in(client.post(GENERATIONS, json=ASKED))


@pytest.mark.parametrize("field", [{"quality": "hd"}, {"style": "vivid"}, {"moderation": "strict"}])
def test_what_changes_no_picture_is_told_in_a_header(
    client: FlaskClient, field: dict[str, str]
) -> None:
    answer = client.post(GENERATIONS, json={**ASKED, **field})
    (name,) = field
    assert answer.headers["X-OxiBonsai-Warning"].startswith(f"{name} has no effect: ")
    assert pictures_in(answer) == pictures_in(client.post(GENERATIONS, json=ASKED))


def test_forms_that_make_no_sense_are_refused(client: FlaskClient) -> None:
    data = png(0, 96, 64)
    assert "image: send one to 8" in refused(client.post(EDITS, **form(prompt="a")))
    assert "picture" in refused(client.post(EDITS, **form(b"no picture", prompt="a")))
    assert "prompt" in refused(client.post(EDITS, **form(data)))
    assert "steps: " in refused(client.post(EDITS, **form(data, prompt="a", steps="many")))
    assert "one picture" in refused(
        client.post(EDITS, **form(data, data, prompt="a", strength=0.5))
    )
    assert "at least 64" in refused(client.post(EDITS, **form(png(0, 32, 32), prompt="a")))
    masked = form(data, prompt="a")
    masked["data"]["mask"] = (io.BytesIO(data), "mask.png")
    assert "mask is not supported" in refused(client.post(EDITS, **masked))
    assert "multipart" in refused(client.post(EDITS, json={"prompt": "a"}), 415)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_body_breaks_a_route(client: FlaskClient) -> None:
    valid = {"prompt": "a tree", "size": "64x64", "n": 1, "steps": 1, "seed": 3}
    count = 0
    for case in hostile_bodies(valid, GenerationBody):
        answer = client.post(GENERATIONS, data=case.text, content_type="application/json")
        assert answer.status_code in ({400, 413, 422} if case.refused else {200, 400}), case.name
        count += 1
    assert count > 50
    for data, kind in HOSTILE_FORMS.values():
        answer = client.post(EDITS, data=data, content_type=kind)
        assert answer.status_code in {400, 413, 415}, (data[:80], answer.text)


def test_a_server_without_a_picture_model_says_so(make_app: MakeApp) -> None:
    client = make_app(image_model=None).test_client()
    assert "--image-model" in refused(client.post(GENERATIONS, json=ASKED), 501)
    assert "--image-model" in refused(client.post(EDITS, **form(png(0, 96, 64), prompt="a")), 501)


def test_a_server_with_a_broken_picture_model_does_not_start(
    make_app: MakeApp, tmp_path: Path
) -> None:
    with pytest.raises(OxiBonsaiError, match="does not exist"):
        make_app(image_model=str(tmp_path / "nothing"))


def test_pictures_wait_for_each_other_and_too_many_are_refused(make_app: MakeApp) -> None:
    app = make_app(image_queue=1)
    entered, leave = threading.Event(), threading.Event()
    draw = app.image_worker._opened().draw  # packed before the clock of this test runs

    def slow(*arguments: Any) -> Any:
        entered.set()
        assert leave.wait(60)
        return draw(*arguments)

    app.image_worker._opened().draw = slow  # type: ignore[method-assign]
    answers: list[Any] = []

    def ask() -> None:
        answers.append(app.test_client().post(GENERATIONS, json=ASKED))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    wait_until(lambda: app.image_worker._queue.waiting == 1)
    assert "wait: try again later" in refused(app.test_client().post(GENERATIONS, json=ASKED), 503)
    leave.set()
    for thread in threads:
        thread.join(60)
    assert [a.status_code for a in answers] == [200, 200]
    assert answers[0].get_json()["data"] == answers[1].get_json()["data"]


def test_a_key_waits_for_one_step_of_anothers_picture(make_app: MakeApp) -> None:
    app = make_app(api_key=("a", "b"))
    diffusion = app.image_worker._opened()
    denoise, began, go_on = diffusion.transformer.velocity, threading.Event(), threading.Event()
    steps: list[str | None] = []

    def counted(*arguments: Any) -> Any:
        steps.append(current_owner())
        began.set()
        assert go_on.wait(60)
        return denoise(*arguments)

    diffusion.transformer.velocity = counted  # type: ignore[method-assign]
    answers: dict[str, Any] = {}

    def ask(key: str, count: int) -> None:
        headers = {"X-Api-Key": key}
        fields = {**ASKED, "steps": count}
        answers[key] = app.test_client().post(GENERATIONS, json=fields, headers=headers)

    threads = [threading.Thread(target=ask, args=one) for one in (("a", 3), ("b", 2))]
    threads[0].start()
    assert began.wait(60)
    threads[1].start()
    wait_until(lambda: app.image_worker._queue.waiting == 1)
    go_on.set()
    for thread in threads:
        thread.join(60)
    a, b = owner_of("a"), owner_of("b")
    assert steps == [a, b, a, b, a]
    diffusion.transformer.velocity = denoise  # type: ignore[method-assign]
    for key, count in (("a", 3), ("b", 2)):
        alone = app.test_client().post(
            GENERATIONS, json={**ASKED, "steps": count}, headers={"X-Api-Key": key}
        )
        assert pictures_in(answers[key]) == pictures_in(alone)


def test_too_much_work_is_refused_before_it_waits(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = 96 * 64 * 4 / 2**20  # of ASKED, in megapixels times steps
    app = make_app(image_max_work=2.5 * picture)
    monkeypatch.setattr(app.image_worker, "draw", lambda *_: np.zeros((64, 96, 3), np.uint8))
    client = app.test_client()
    for fields, param in (({"n": 3}, "n"), ({"steps": 11}, "steps")):
        answer = client.post(GENERATIONS, json={**ASKED, **fields})
        assert "--image-max-work" in refused(answer)
        assert answer.get_json()["error"]["param"] == param
    one = png(0, 96, 64)
    message = refused(client.post(EDITS, **form(one, one, prompt="a")))
    assert "1 picture of 96x64 with 2 references in 4 steps are 0.1 megapixels" in message
    for answer in (
        client.post(GENERATIONS, json={**ASKED, "n": 2}),
        client.post(GENERATIONS, json={**ASKED, "steps": 10}),
        client.post(EDITS, **form(one, prompt="a")),
    ):
        assert answer.status_code == 200, answer.text


def test_a_stopped_server_ends_a_drawing_between_two_steps(make_app: MakeApp) -> None:
    app = make_app()
    diffusion = app.image_worker._opened()
    denoise, seen = diffusion.transformer.velocity, []

    def counted(*arguments: Any) -> Any:
        seen.append(1)
        app.lifecycle.advance(Phase.STOPPED)
        return denoise(*arguments)

    diffusion.transformer.velocity = counted  # type: ignore[method-assign]
    answer = app.test_client().post(GENERATIONS, json={**ASKED, "steps": 10})
    assert "stopped" in refused(answer, 503)
    assert len(seen) == 1


@pytest.fixture(scope="module")
def running(
    image_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served")
    flags = ("--image-model", str(image_folder), "--threads", "2", "--parity", "off")
    with real_server(SEEDLING, folder, *flags) as server:
        yield server


@pytest.mark.slow
def test_openais_client_draws_edits_and_streams(
    running: RunningServer, pipeline: ImagePipeline
) -> None:
    from openai import OpenAI

    client = OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0)
    size: Any = "96x64"
    extra = {"seed": 42}
    expected = file_of(pipeline, ImageRequest("a tree", 42, 96, 64))
    drawn = client.images.generate(prompt="a tree", size=size, extra_body=extra)
    assert drawn.data is not None
    assert base64.b64decode(drawn.data[0].b64_json or "") == expected
    events = list(
        client.images.generate(
            prompt="a tree", size=size, stream=True, partial_images=1, extra_body=extra
        )
    )
    kinds = [e.type for e in events]
    assert kinds == ["image_generation.partial_image", "image_generation.completed"]
    assert base64.b64decode(events[-1].b64_json) == expected
    data = png(0, 96, 64)
    edited = client.images.edit(
        image=[("a.png", data), ("b.png", expected)], prompt="a tree", extra_body=extra
    )
    given = tuple(Image.open(io.BytesIO(d)).convert("RGB") for d in (data, expected))
    asked = ImageRequest("a tree", 42, 96, 64, references=given)
    assert edited.data is not None
    assert base64.b64decode(edited.data[0].b64_json or "") == file_of(pipeline, asked)
    linked = client.images.generate(
        prompt="a tree", size=size, response_format="url", extra_body=extra
    )
    assert linked.data is not None
    file_id = str(linked.data[0].url).split("/")[-2]
    assert client.files.content(file_id).read() == expected


@pytest.mark.suite
def test_openais_javascript_client_draws_edits_and_streams(
    running: RunningServer, pipeline: ImagePipeline, tmp_path: Path
) -> None:
    node = node_clients.install(tmp_path)
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for i, path in enumerate(paths):
        path.write_bytes(png(i, 96, 64))
    url = f"http://127.0.0.1:{running.port}/v1"
    found = node_clients.run(node, "images.mjs", url, *paths)
    drawn = file_of(pipeline, ImageRequest("a tree", 42, 96, 64))
    given = tuple(Image.open(path).convert("RGB") for path in paths)
    edited = file_of(pipeline, ImageRequest("a tree", 42, 96, 64, references=given))
    assert base64.b64decode(found["drawn"]) == drawn
    assert base64.b64decode(found["edited"]) == edited
    streamed, edit = found["streamed"], found["editedStream"]
    assert streamed["kinds"] == ["image_generation.partial_image", "image_generation.completed"]
    assert edit["kinds"][-1] == "image_edit.completed"
    assert base64.b64decode(streamed["picture"]) == drawn
    assert base64.b64decode(edit["picture"]) == edited


@pytest.mark.slow
def test_a_client_that_leaves_ends_its_picture(running: RunningServer) -> None:
    """Sixty steps would take far longer than the picture that comes after."""
    body = json.dumps({"prompt": "a", "size": "1024x1024", "steps": 60}).encode()
    head = (
        f"POST {GENERATIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    sock = running.connect(head.encode() + body)
    time.sleep(0.5)
    sock.close()
    fields = json.dumps(ASKED).encode()
    status, _, answer = running.ask(
        GENERATIONS, "POST", fields, **{"Content-Type": "application/json"}
    )
    assert status == 200, answer
    assert running.ask("/v1/chat/completions", "POST", json.dumps(
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    ).encode(), **{"Content-Type": "application/json"})[0] == 200  # fmt: skip
