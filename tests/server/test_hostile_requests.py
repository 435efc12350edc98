"""Every field of every body, one thing wrong at a time: refused or answered, never a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from hostile_bodies import hostile_bodies
from model_app import close_model_app, make_model_app
from url_sweep import assert_error_object
from valid_bodies import VALID_BODIES, make_objects, valid_body
from werkzeug.test import TestResponse

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.operations import OPERATIONS
from oxibonsai.server.server import Server

# What a wrong body may get. A field's value may also name an object that is not there.
REFUSALS = {400, 403, 404, 409, 413, 415, 422}
# Routes of models that draw or rank, which test_images_served.py and test_rerank.py have.
OTHER_MODELS = {e for e, o in OPERATIONS.items() if o.needs in (Feature.IMAGES, Feature.RANKING)}


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # A small context ends every answer soon, whatever a request allows.
    made = make_model_app(
        tiny_path,
        tmp_path_factory.mktemp("hostile"),
        ctx_size=128,
        parallel=1,
        n_predict=2,
        slot_save_path=tmp_path_factory.mktemp("slots"),
        max_batches=10_000,  # of many tests at once
    )
    yield made
    close_model_app(made)


@pytest.fixture(scope="module")
def client(app: Server) -> FlaskClient:
    return app.test_client()


@pytest.fixture(scope="module")
def ids(client: FlaskClient) -> dict[str, str]:
    return make_objects(client)


def json_routes(app: Server) -> dict[str, str]:
    """The first path of every endpoint that reads a JSON body."""
    rules: dict[str, str] = {}
    for rule in app.url_map.iter_rules():
        if OPERATIONS[rule.endpoint].body is not None:
            path = rules.setdefault(rule.endpoint, rule.rule)
            rules[rule.endpoint] = max(path, rule.rule)  # /v1/... before a bare alias
    return rules


def path_of(rule: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        rule = rule.replace(f"<{name}>", value)
    assert "<" not in rule, rule
    return rule + ("?action=save" if rule.startswith("/slots/") else "")


def test_every_route_with_a_body_is_tried(app: Server) -> None:
    assert set(json_routes(app)) == set(VALID_BODIES)


def test_there_are_enough_cases() -> None:
    count = 0
    for endpoint, valid in VALID_BODIES.items():
        model = OPERATIONS[endpoint].body
        assert model is not None
        count += sum(1 for _ in hostile_bodies(valid, model))
    assert count >= 1200


def assert_refused(answer: TestResponse, endpoint: str) -> None:
    assert answer.status_code in REFUSALS, (answer.status_code, answer.text)
    if not endpoint.startswith("messages."):
        assert_error_object(answer)
        return
    told = answer.get_json()
    assert told["type"] == "error"
    assert told["error"]["message"]
    assert told["error"]["type"].endswith(("_error", "_too_large"))


@pytest.mark.long("sends every value of a list in place of every field")
@pytest.mark.parametrize("endpoint", sorted(VALID_BODIES.keys() - OTHER_MODELS))
def test_no_body_breaks_a_route(
    app: Server, client: FlaskClient, ids: dict[str, str], endpoint: str
) -> None:
    path = path_of(json_routes(app)[endpoint], ids)
    model = OPERATIONS[endpoint].body
    assert model is not None
    failures = []
    for case in hostile_bodies(valid_body(endpoint, ids), model):
        answer = client.post(path, data=case.text, content_type="application/json")
        try:
            if case.refused or answer.status_code != 200:
                assert_refused(answer, endpoint)
            else:
                assert "Internal" not in answer.text  # also reads a stream to its end
        except AssertionError as e:
            failures.append(f"{case.name}: {e}"[:400])
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("endpoint", sorted(VALID_BODIES.keys() - OTHER_MODELS))
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b"null", "application/json"),
        (b'"words"', "application/json"),
        (b"{", "application/json"),
        (b'{"a": 1}{"b": 2}', "application/json"),
        (b"\xff\xfe{}", "application/json"),
        ('{"a": "é"}'.encode("utf-16"), "application/json"),
        (b"{}", "text/plain"),
        (b"{}", ""),
        (b"a=1", "application/x-www-form-urlencoded"),
    ],
)
def test_what_is_no_json_object_is_refused(
    app: Server, client: FlaskClient, ids: dict[str, str], endpoint: str, data: bytes, kind: str
) -> None:
    if endpoint == "threads.create" and not data:
        pytest.skip("a thread may begin without a body")
    path = path_of(json_routes(app)[endpoint], ids)
    assert_refused(client.post(path, data=data, content_type=kind), endpoint)


FORM = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
FILE = PART % (b"file", b'; filename="a"', b"content")
END = b"--x--\r\n"
HOSTILE_FORMS = {
    "nothing": (b"", ""),
    "JSON": (b"{}", "application/json"),
    "10,000 levels": (b"[" * 10_000, "application/json"),
    "noise": (bytes(range(256)) * 10, "application/octet-stream"),
    "no boundary": (FILE + END, "multipart/form-data"),
    "long boundary": (b"x", "multipart/form-data; boundary=" + "x" * 5000),
    "boundary of no characters": (b"x", "multipart/form-data; boundary=\xe9\xff"),
    "empty form": (END, FORM),
    "no end": (FILE, FORM),
    "half a head": (b"--x\r\nContent-Dispo", FORM),
    "head without a name": (b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n" + END, FORM),
    "file alone": (FILE + END, FORM),
    "purpose alone": (PART % (b"purpose", b"", b"assistants") + END, FORM),
    "file as a text": (
        PART % (b"file", b"", b"a") + PART % (b"purpose", b"", b"assistants") + END,
        FORM,
    ),
    "purpose of no UTF-8": (FILE + PART % (b"purpose", b"", b"\xff\xfe") + END, FORM),
    "unknown purpose": (FILE + PART % (b"purpose", b"", b"evil") + END, FORM),
    "5,000 fields": (b"".join(PART % (b"f%d" % i, b"", b"") for i in range(5000)) + END, FORM),
    "10 MB in a field": (PART % (b"purpose", b"", b"x" * 10_000_000) + END, FORM),
    "field of a field": (
        FILE
        + PART % (b"purpose", b"", b"assistants")
        + PART % (b"purpose[a][b]", b"", b"x")
        + PART % (b"expires_after[seconds]", b"", b"1" * 5000)
        + END,
        FORM,
    ),
}


# Werkzeug leaves the file of a part without its end to be closed by the garbage collection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", HOSTILE_FORMS)
def test_no_body_breaks_a_post_that_reads_no_json(
    app: Server, client: FlaskClient, ids: dict[str, str], kind: str
) -> None:
    data, content_type = HOSTILE_FORMS[kind]
    rules = [r for r in app.url_map.iter_rules() if "POST" in (r.methods or ())]
    others = [r for r in rules if OPERATIONS[r.endpoint].body is None]
    others = [r for r in others if r.endpoint not in OTHER_MODELS]
    assert {"files.upload", "responses.cancel", "runs.cancel"} <= {r.endpoint for r in others}
    for rule in others:
        answer = client.post(path_of(rule.rule, ids), data=data, content_type=content_type)
        # To cancel needs no body, so that one that comes along is not read.
        if answer.status_code != 200 or rule.endpoint == "files.upload":
            assert_refused(answer, rule.endpoint)


PICTURE = "data:image/png;base64,iVBORw0KGgo="
_URL = {"type": "image_url", "image_url": {"url": PICTURE}}
_INPUT = {"type": "input_image", "image_url": PICTURE}
_SOURCE = {"type": "image", "source": {"type": "url", "url": "http://x.example"}}
_STORED = {"type": "image_file", "image_file": {"file_id": "file-1"}}


def _said(part: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": _said(_URL)}),
        ("/v1/responses", {"input": _said(_INPUT)}),
        (
            "/v1/responses",
            {"input": [{"type": "function_call_output", "call_id": "a", "output": [_INPUT]}]},
        ),
        ("/v1/messages", {"model": "m", "max_tokens": 2, "messages": _said(_SOURCE)}),
        (
            "/v1/messages",
            {
                "model": "m",
                "max_tokens": 2,
                "messages": _said(
                    {"type": "tool_result", "tool_use_id": "a", "content": [_SOURCE]}
                ),
            },
        ),
        ("/v1/chat/completions", {"messages": _said(_STORED)}),
    ],
)
def test_a_picture_is_refused_in_the_same_words_by_every_api(
    client: FlaskClient, path: str, body: object
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    message = answer.get_json()["error"]["message"]
    assert "image input is not supported: the model reads text only" in message
    assert "content" in message or "output" in message  # where it is


@pytest.mark.parametrize("part", [_URL, _STORED])
def test_threads_hold_no_pictures(client: FlaskClient, part: object) -> None:
    answer = client.post("/v1/threads", json={"messages": _said(part)})
    assert answer.status_code == 400
    assert "threads hold no pictures" in answer.get_json()["error"]["message"]


_HI = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [_HI] * 5000}),
        ("/v1/responses", {"input": [_HI] * 5000}),
        (
            "/v1/responses",
            {"input": [{**_HI, "content": [{"type": "input_text", "text": "a"}] * 5000}]},
        ),
        ("/v1/messages", {"model": "m", "max_tokens": 2, "messages": [_HI] * 5000}),
        ("/v1/threads", {"messages": [_HI] * 5000}),
    ],
)
def test_more_messages_than_any_context_holds_are_refused_before_they_are_read(
    client: FlaskClient, path: str, body: object
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert "at most 4096 items" in answer.get_json()["error"]["message"]


@pytest.mark.parametrize("endpoint", sorted(VALID_BODIES.keys() - OTHER_MODELS))
def test_the_valid_body_is_accepted(app: Server, client: FlaskClient, endpoint: str) -> None:
    ids = make_objects(client)
    answer = client.post(path_of(json_routes(app)[endpoint], ids), json=valid_body(endpoint, ids))
    # No run waits for the outputs of tools, and the question for a summary is longer than this
    # context; the model fills no gaps, nobody may pull, and there are no tools: the bodies themselves
    # are sound.
    sound = {
        "runs.submit": (400, "status"),
        "responses.compact": (400, "context size"),
        "native_completion.infill": (400, "fill-in-the-middle"),
        "ollama_models.pull": (403, "--allow-pull"),
        "router.download": (403, "--allow-pull"),
        "tools.call_tool": (404, "--mcp-servers-config"),
    }
    status, text = sound.get(endpoint, (200, ""))
    assert answer.status_code == status, answer.text
    assert text in answer.text


def test_nothing_is_left_running(app: Server) -> None:
    pool = app.submitter.pool
    assert pool.waiting == 0
    assert pool.running == 0
