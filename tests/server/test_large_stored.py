"""Large stored objects: pages have a budget, and few objects are in memory at the same time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from real_server import real_server
from running_server import RunningServer, wait_until

from oxibonsai.server.openai.responses import history
from oxibonsai.server.server import Server
from oxibonsai.server.stores import Store

A = "owner-a"
MB = 2**20


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_page_ends_at_its_budget_and_all_pages_cover_the_list_once(
    store: Store, order: Any
) -> None:
    ids = [store.responses.create(A, {"n": n, "x": "x" * (3 * MB // 2)})["id"] for n in range(5)]
    expected = ids if order == "asc" else ids[::-1]
    pages = []
    after = None
    while not pages or pages[-1].has_more:
        pages.append(store.responses.list(A, after=after, order=order, limit=100))
        after = pages[-1].data[-1]["id"]
    assert [[item["id"] for item in page.data] for page in pages] == [
        expected[:2], expected[2:4], expected[4:],
    ]  # fmt: skip
    page = store.responses.list(A, before=expected[4], order=order, limit=100)
    assert [item["id"] for item in page.data] == expected[2:4]
    assert page.has_more


def test_a_page_has_one_object_however_large(store: Store) -> None:
    ids = [store.responses.create(A, {"x": "x" * 6 * MB})["id"] for _ in range(2)]
    page = store.responses.list(A, order="asc")
    assert [item["id"] for item in page.data] == ids[:1]
    assert page.has_more
    odd = store.responses.list(A, order="asc", keep=lambda item: item["id"] == ids[1])
    assert [item["id"] for item in odd.data] == ids[1:]
    assert not odd.has_more


def test_only_before_large_objects_are_read_something_may_wait(store: Store) -> None:
    waits: list[None] = []
    store.before_large_objects(lambda: waits.append(None))
    small = store.threads.create(A, {"x": "x" * 1000})["id"]
    store.threads.get(A, small)
    store.threads.list(A)
    assert waits == []
    large = store.threads.create(A, {"x": "x" * 2 * MB})["id"]
    store.threads.get(A, large)
    assert len(waits) == 1
    store.threads.list(A)
    assert len(waits) > 1
    del waits[:]
    for _ in range(30):  # a page that is large, of small objects
        store.messages.create(A, {"x": "x" * 60_000}, parent=small)
    store.messages.list(A, parent=small, limit=100)
    assert waits != []


def test_objects_that_are_searched_are_read_one_after_another(store: Store) -> None:
    ids = [store.responses.create(A, {"status": "queued", "n": n})["id"] for n in range(3)]
    found = store.responses.search('"status":"queued"')
    assert next(found) == (A, {"id": ids[0], "status": "queued", "n": 0})
    store.responses.delete(A, ids[1])
    assert [body["id"] for _, body in found] == [ids[2]]


@pytest.fixture
def app(tiny_path: Path, tmp_path: Path) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path, ctx_size=512, max_body_mb=4)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


def message(text: str, role: str = "user") -> dict[str, str]:
    return {"type": "message", "role": role, "content": text}


def conversation(client: FlaskClient, *items: dict[str, str]) -> str:
    made = str(client.post("/v1/conversations", json={}).get_json()["id"])
    for item in items:
        answer = client.post(f"/v1/conversations/{made}/items", json={"items": [item]})
        assert answer.status_code == 200
    return made


def test_requests_read_large_objects_one_at_a_time(app: Server, client: FlaskClient) -> None:
    path = f"/v1/conversations/{conversation(client, message('x' * 2 * MB))}/items"
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(app.test_client().get(path).status_code))
        for _ in range(2)
    ]
    with app.large_requests.turn():
        for thread in threads:
            thread.start()
        wait_until(lambda: app.large_requests.waiting == 2)
        assert statuses == []
        small = f"/v1/conversations/{conversation(client, message('x'))}/items"
        assert client.get(small).status_code == 200
    for thread in threads:
        thread.join()
    assert statuses == [200, 200]


def test_a_list_of_items_is_a_page_that_says_that_there_are_more(client: FlaskClient) -> None:
    made = conversation(client, *[message(str(n) * 3 * MB) for n in range(3)])
    path = f"/v1/conversations/{made}/items"
    seen: list[str] = []
    page = {"has_more": True, "last_id": ""}
    while page["has_more"]:
        page = client.get(f"{path}?order=asc&limit=100&after={page['last_id']}").get_json()
        seen += [item["content"][0]["text"][0] for item in page["data"]]
        assert len(page["data"]) == 1
    assert seen == ["0", "1", "2"]


def test_a_conversation_that_is_too_long_is_not_read_to_its_end(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = conversation(client, *[message("a b " * 10_000) for _ in range(8)])
    read: list[int] = []
    monkeypatch.setattr(history, "json_size", lambda item: read.append(1) or 1)
    body = {"input": "hi", "conversation": made, "max_output_tokens": 1}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 400
    error = answer.get_json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "the conversation has 40000 bytes or more" in error["message"]
    assert len(read) == 1
    cut = client.post("/v1/responses", json={**body, "truncation": "auto"})
    assert cut.status_code == 200, cut.text
    assert len(read) == 2


def test_a_chain_of_responses_that_is_too_long_is_not_read_to_its_end(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain: list[str | None] = [None]
    for n in range(4):
        body = {"input": f"{n}", "previous_response_id": chain[-1], "max_output_tokens": 1}
        chain.append(client.post("/v1/responses", json=body).get_json()["id"])
    last = chain[-1]
    long = [message("a b " * 10_000)]
    for response in filter(None, chain):
        app.store.responses.change("anonymous", response, lambda record: {**record, "input": long})
    read: list[int] = []
    monkeypatch.setattr(history, "json_size", lambda item: read.append(1) or 1)
    body = {"input": "hi", "previous_response_id": last, "max_output_tokens": 1}
    answer = client.post("/v1/responses", json=body)
    assert answer.get_json()["error"]["code"] == "context_length_exceeded"
    # The answer of the last one, and what it was asked.
    assert len(read) == 2
    assert client.post("/v1/responses", json={**body, "truncation": "auto"}).status_code == 200


def test_no_more_of_a_conversation_is_read_than_a_body_may_have(client: FlaskClient) -> None:
    # Earlier answers may be left out by a template, so their length proves nothing.
    made = conversation(client, *[message("x" * 2 * MB, "assistant") for _ in range(3)])
    body = {"input": "hi", "conversation": made, "max_output_tokens": 1}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 400
    error = answer.get_json()["error"]
    assert (error["code"], error["param"]) == ("conversation_too_large", "conversation")
    assert "--max-body-mb" in error["message"]
    assert client.post("/v1/responses", json={**body, "truncation": "auto"}).status_code == 200
    asked = {"conversation": made}
    assert client.post("/v1/responses/input_tokens", json=asked).status_code == 400
    # A summary without the oldest would be a wrong one.
    summary = {**asked, "truncation": "auto"}
    assert client.post("/v1/responses/compact", json=summary).status_code == 400


def test_no_more_of_a_thread_is_read_than_a_body_may_have(client: FlaskClient) -> None:
    assistant = client.post("/v1/assistants", json={"model": "tiny"}).get_json()["id"]
    thread = client.post("/v1/threads", json={}).get_json()["id"]
    path = f"/v1/threads/{thread}"
    for text in ("x" * 3 * MB, "y" * 3 * MB, "hi"):
        said = {"role": "user", "content": text}
        assert client.post(f"{path}/messages", json=said).status_code == 200
    body = {"assistant_id": assistant, "max_completion_tokens": 1}
    newest = {"type": "last_messages", "last_messages": 1}
    two = {"type": "last_messages", "last_messages": 3}
    answer = client.post(f"{path}/runs", json={**body, "truncation_strategy": two})
    assert answer.status_code == 400
    assert answer.get_json()["error"]["code"] == "conversation_too_large"
    for strategy in (newest, {"type": "auto"}):
        run = client.post(f"{path}/runs", json={**body, "truncation_strategy": strategy})
        assert run.status_code == 200, run.text
        one = f"{path}/runs/{run.get_json()['id']}"
        wait_until(
            lambda one=one: client.get(one).get_json()["status"] in ("completed", "incomplete")
        )


@pytest.fixture
def server(tiny_path: Path, tmp_path: Path) -> Iterator[RunningServer]:
    with real_server(tiny_path, tmp_path, "--parity", "off", "--threads", "1") as running:
        yield running


@pytest.mark.release
def test_a_conversation_of_100_mb_takes_less_than_250_mb(server: RunningServer) -> None:
    kind = {"Content-Type": "application/json"}

    def post(path: str, body: Any) -> Any:
        return server.ask(path, "POST", json.dumps(body).encode(), **kind)

    made = post("/v1/conversations", {})[2]["id"]
    path = f"/v1/conversations/{made}/items"
    before = server.peak_memory()
    for _ in range(10):
        assert post(path, {"items": [message("a b " * (10 * MB // 4))]})[0] == 200
    page = server.ask(path)[2]
    assert len(page["data"]) == 1
    assert page["has_more"]
    statuses: list[int] = []

    def respond() -> None:
        body = {"input": "hi", "conversation": made, "max_output_tokens": 1}
        statuses.append(post("/v1/responses", body)[0])

    threads = [threading.Thread(target=respond) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [400] * 4
    assert server.peak_memory() - before < 250
