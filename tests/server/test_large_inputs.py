"""Large inputs of requests: bounded, one at a time, and given up when the client leaves."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import g
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from real_server import real_server
from running_server import RunningServer, read_all, wait_until

from oxibonsai.chat import ChatRequest
from oxibonsai.errors import CapacityError
from oxibonsai.sampling import SamplingParams
from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server import inputs
from oxibonsai.server.http.client import ClientGoneError
from oxibonsai.server.limits import ANONYMOUS
from oxibonsai.server.server import Server
from oxibonsai.structured import Structure

WORDS = "hello, world "
MB = 2**20


@pytest.fixture
def app(tiny_path: Path, tmp_path: Path) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path, parallel=1, queue_size=1, ctx_size=512)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


def talk(size: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": "x" * size}]


TOO_LONG: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": WORDS * 20_000}),
    ("/v1/completions", {"prompt": ["a", WORDS * 20_000]}),
    ("/completion", {"prompt": [1, WORDS * 20_000]}),
    ("/v1/embeddings", {"input": [WORDS * 20_000]}),
    ("/v1/chat/completions", {"messages": talk(300_000)}),
    ("/v1/chat/completions", {"messages": talk(8_000_000)}),
    ("/v1/chat/completions", {"messages": talk(2000) * 4000}),
    ("/v1/messages", {"model": "tiny", "messages": talk(8_000_000), "max_tokens": 4}),
    ("/v1/responses", {"input": "x" * 8_000_000}),
    ("/v1/responses", {"input": "x" * 8_000_000, "truncation": "auto"}),
]


@pytest.mark.parametrize(("path", "body"), TOO_LONG)
def test_what_no_context_holds_is_refused_by_its_length(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    monkeypatch.setattr("oxibonsai.tokenizer.byte_level.ByteLevelBpe.encode_text", _never_for_long)
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    error = answer.get_json()["error"]
    assert "exceeds the available context size" in error["message"]
    assert " bytes, which are at least " in error["message"]
    assert "the context 512" in error["message"]


def _never_for_long(_: Any, text: str, **__: Any) -> Iterator[list[int]]:
    assert len(text) < 1000
    yield [5] * len(text)


def test_a_prompt_of_too_many_tokens_is_not_tokenized_to_its_end(client: FlaskClient) -> None:
    # As many as the length allows: the longest token of this vocabulary has 22 bytes.
    answer = client.post("/v1/completions", json={"prompt": "a b " * 2000})
    error = answer.get_json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] >= 512


def test_tokens_of_any_text_are_told(client: FlaskClient, app: Server) -> None:
    text = WORDS * 30_000
    ids = app.submitter.engine.tokenizer.encode(text, add_special=False)
    answer = client.post("/tokenize", json={"content": text})
    assert answer.get_json() == {"tokens": ids}
    pieces = client.post("/tokenize", json={"content": text, "with_pieces": True}).get_json()
    assert [t["id"] for t in pieces["tokens"]] == ids
    assert "".join(t["piece"] for t in pieces["tokens"]) == text
    counted = client.post("/v1/chat/completions/input_tokens", json={"messages": talk(90_000)})
    assert counted.get_json()["input_tokens"] > 90_000


def test_a_text_without_a_place_to_cut_it_is_refused(client: FlaskClient) -> None:
    answer = client.post("/tokenize", json={"content": "a" * 200_000})
    assert answer.status_code == 400
    assert "more than 131072 characters" in answer.get_json()["error"]["message"]


def test_tokens_of_a_huge_text_are_refused(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, max_body_mb=0.1)
    try:
        words = app.submitter.engine.tokenizer
        longest = max(range(words.vocab_size), key=lambda i: len(words.token_bytes(i)))
        answer = app.test_client().post("/detokenize", json={"tokens": [longest] * 20_000})
        assert answer.status_code == 400
        assert answer.get_json()["error"]["param"] == "tokens"
    finally:
        close_model_app(app)


def test_a_client_that_left_stops_the_work_on_its_input(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def is_gone(_: Any) -> bool:
        looks.append(1)
        return True

    monkeypatch.setattr(inputs, "client_is_gone", is_gone)
    monkeypatch.setattr(inputs, "_LOOK_SECONDS", 0.0)
    for path, body in (
        ("/tokenize", {"content": WORDS * 100}),
        ("/detokenize", {"tokens": [5, 6]}),
        ("/apply-template", {"messages": talk(9)}),
        ("/v1/chat/completions", {"messages": talk(9)}),
        ("/v1/embeddings", {"input": WORDS}),
        ("/v1/completions", {"prompt": WORDS}),
    ):
        before = len(looks)
        assert client.post(path, json=body).status_code == 499, path
        assert len(looks) == before + 1


def test_the_rendering_of_a_template_is_stopped_as_the_client_leaves(app: Server) -> None:
    class Watch(inputs.InputWatch):
        def __call__(self, tokens: int) -> None:
            raise ClientGoneError

    from oxibonsai.chat import render

    with pytest.raises(ClientGoneError):
        render(app.submitter.engine, ChatRequest(talk(9)), watch=Watch())


def test_large_requests_are_read_one_at_a_time(
    app: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[int] = []
    most: list[int] = []
    read = inputs.read_text

    def counted(*given: Any, **named: Any) -> list[int]:
        inside.append(1)
        most.append(len(inside))
        try:
            return read(*given, **named)
        finally:
            inside.pop()

    monkeypatch.setattr("oxibonsai.server.llama_server.tokenize.read_text", counted)
    body = json.dumps({"content": WORDS * (3 * MB // (2 * len(WORDS)))})
    answers: list[int] = []

    def post() -> None:
        client = app.test_client()
        answer = client.post("/tokenize", data=body, content_type="application/json")
        answers.append(answer.status_code)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 4
    assert max(most) == 1


def test_a_large_request_lets_the_next_one_in_before_its_answer_is_made(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(SerialQueue, "_leave", lambda self, ticket: left.append(self.name))
    queue_up = app.submitter.pool.queue_up
    before: list[list[str]] = []

    def observed(*arguments: Any) -> Any:
        before.append(list(left))
        return queue_up(*arguments)

    monkeypatch.setattr(app.submitter.pool, "queue_up", observed)
    body = {"prompt": "a", "max_tokens": 2, "user": "x" * (2 * MB)}
    assert client.post("/v1/completions", json=body).status_code == 200
    assert before == [["long texts", "large requests"]]


def test_too_many_that_wait_are_refused() -> None:
    queue = SerialQueue("things", 1)
    leave = queue.enter()
    waiting = threading.Thread(target=lambda: queue.enter()())
    waiting.start()
    while queue.waiting == 0:
        pass
    with pytest.raises(CapacityError, match="1 things wait: try again later"):
        queue.enter()
    leave()
    leave()
    waiting.join()
    with queue.turn():
        assert queue.waiting == 0


def test_who_waits_can_give_up() -> None:
    queue = SerialQueue("things", 4)

    def look() -> None:
        raise ClientGoneError

    with queue.turn():
        with pytest.raises(ClientGoneError):
            queue.enter(look)
        assert queue.waiting == 0
    with queue.turn():
        pass


def test_a_structure_is_compiled_before_an_engine_is_taken(
    app: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitter, compiler = app.submitter, app.submitter.engine.structures
    running: list[int] = []
    compile_one = compiler._compile

    def observed(*given: Any) -> Any:
        running.append(submitter.pool.running)
        return compile_one(*given)

    monkeypatch.setattr(compiler, "_compile", observed)
    request = ChatRequest(talk(3), structure=Structure.json_schema({"const": "a"}))
    with submitter.chat(request, SamplingParams(max_tokens=4)) as answers:
        answers.wait({})
    assert running == [0]


def test_replicas_share_what_is_compiled(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, replicas=2, threads=2)
    try:
        first, second = app.submitter.pool.engines
        assert first.structures is second.structures
    finally:
        close_model_app(app)


@pytest.fixture
def server(tiny_path: Path, tmp_path: Path) -> Iterator[RunningServer]:
    with real_server(tiny_path, tmp_path, "--parity", "off", "--threads", "1") as running:
        yield running


def _post(server: RunningServer, body: bytes) -> socket.socket:
    head = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    kind = "Content-Type: application/json\r\nConnection: close\r\n\r\n"
    return server.connect(f"{head}{kind}".encode() + body, timeout=120)


@pytest.mark.release
def test_six_posts_of_15_mb_take_less_than_600_mb(server: RunningServer) -> None:
    before = server.peak_memory()
    body = json.dumps({"content": WORDS * (15_000_000 // len(WORDS))}).encode()
    clients = [_post(server, body) for _ in range(6)]
    for client in clients:
        assert read_all(client, 120).startswith(b"HTTP/1.1 200")
        client.close()
    assert server.peak_memory() - before < 600


def _waits(queue: SerialQueue, work: Callable[[], Any]) -> bool:
    """Whether work waits for a turn that is not free, and ends when it is."""
    thread = threading.Thread(target=work)
    with queue.turn():
        thread.start()
        wait_until(lambda: queue.waiting == 1 or not thread.is_alive())
        waited = thread.is_alive()
    thread.join()
    return waited


@pytest.mark.parametrize(("size", "waits"), [(1000, False), (20_000, True)])
def test_long_texts_are_parsed_one_at_a_time(app: Server, size: int, waits: bool) -> None:
    statuses: list[int] = []

    def post() -> None:
        body = {"content": "a b " * (size // 4)}
        statuses.append(app.test_client().post("/tokenize", json=body).status_code)

    assert _waits(app.long_texts, post) == waits
    assert statuses == [200]


@pytest.mark.parametrize(("size", "waits"), [(1000, False), (20_000, True)])
def test_long_texts_are_tokenized_one_at_a_time(app: Server, size: int, waits: bool) -> None:
    engine = app.submitter.engine

    def read(work: Callable[[], Any]) -> Callable[[], None]:
        def in_request() -> None:
            with app.test_request_context():
                g.owner = ANONYMOUS
                work()

        return in_request

    text = "a b " * (size // 4)
    asked = ChatRequest([{"role": "user", "content": text}])
    assert _waits(app.long_texts, read(lambda: inputs.read_text(text, engine.tokenizer))) == waits
    assert _waits(app.long_texts, read(lambda: app.submitter.read_chat(asked))) == waits


@pytest.mark.release
def test_150_posts_of_1_mb_are_answered_and_none_was_sent_too_slowly(server: RunningServer) -> None:
    kind = {"Content-Type": "application/json"}
    body = json.dumps({"content": (WORDS * MB)[: MB - 100]}).encode()
    statuses: list[int] = []

    def post() -> None:
        # A busy machine takes minutes for them all.
        statuses.append(server.ask("/tokenize", "POST", body, patience=600, **kind)[0])

    threads = [threading.Thread(target=post) for _ in range(150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 150
    assert set(statuses) <= {200, 503}
