"""Servers that share a PostgreSQL database: any of them answers for what another has stored."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import own_database
from model_app import close_model_app, make_model_app
from named_events import read_events
from running_server import running_server, wait_until

from oxibonsai.errors import RequestError
from oxibonsai.server.batches import runner
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.stores import StoreError, blobs, peers
from oxibonsai.server.stores.database_lock import DatabaseLock
from oxibonsai.server.stores.peers import Peers

MakeServer = Callable[..., Server]
LONG = {"input": "hi", "max_output_tokens": 100_000, "ignore_eos": True, "background": True}


def test_a_file_is_no_store_to_share(tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match="--shared-store needs PostgreSQL, and the store sqlite:"
    ):
        load_settings({"shared_store": True, "state_dir": tmp_path})


@pytest.fixture
def database(postgresql: str) -> Iterator[str]:
    """An empty database of its own: locks are a database's."""
    with own_database(postgresql, "shared") as url:
        yield url


@pytest.fixture
def make_server(
    database: str, tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeServer]:
    """Makes one of several servers, each with a folder of its own, as if on machines of their own."""
    monkeypatch.setattr(peers, "_EVERY_SECONDS", 0.05)
    made: list[Server] = []

    def make(**values: Any) -> Server:
        folder = tmp_path / str(len(made))
        given = {"store": database, "shared_store": True, "context_shift": True, **values}
        made.append(make_model_app(tiny_path, folder, **given))
        return made[-1]

    yield make
    for app in made:
        leave(app)
        app.lifecycle.advance(Phase.STOPPED)
        app.backend.close()
    # What still runs ends now; it would open another connection if the store were closed before.
    wait_until(lambda: not any(app.lifecycle.background for app in made))
    wait_until(lambda: not any(t.name == "batches" for t in threading.enumerate()))
    for app in made:
        app.store.close()


def leave(app: Server) -> None:
    """What the end of its process does to a server's connections."""
    assert app.peers is not None
    app.peers.close()


def post(app: Server, path: str, **body: Any) -> Any:
    answer = app.test_client().post(path, json={"model": "tiny", **body})
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def status(app: Server, response_id: str) -> str:
    answer: str = app.test_client().get(f"/v1/responses/{response_id}").get_json()["status"]
    return answer


def text_of(response: Any) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


@pytest.mark.slow
def test_servers_of_one_folder_and_database_run_side_by_side(database: str, tmp_path: Path) -> None:
    flags = ("--store", database, "--shared-store")
    with running_server(tmp_path, *flags) as one, running_server(tmp_path, *flags) as other:
        assert one.ask("/readyz")[0] == other.ask("/readyz")[0] == 200
        (tmp_path / "alone").mkdir()
        with running_server(tmp_path / "alone", "--store", database, wait=False) as alone:
            assert alone.wait() == 1
            assert "is in use by oxibonsai on port" in alone.log.read_text()


@pytest.mark.slow
def test_a_conversation_goes_on_at_another_server(make_server: MakeServer) -> None:
    one, other = make_server(), make_server()
    fields = {"max_output_tokens": 8, "ignore_eos": True}
    begun = post(one, "/v1/responses", input="A story", **fields)
    go_on = {"input": "more", "previous_response_id": begun["id"], **fields}
    texts = [text_of(post(app, "/v1/responses", **go_on)) for app in (one, other)]
    assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"x", b"ab" * 1500])
def test_a_file_is_read_and_deleted_at_another_server(
    make_server: MakeServer, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "_PIECE", 1000)
    one, other = make_server(), make_server()
    form = {"purpose": "user_data", "file": (io.BytesIO(content), "a.bin")}
    file_id = one.test_client().post("/v1/files", data=form).get_json()["id"]
    path = f"/v1/files/{file_id}"
    with other.test_client().get(f"{path}/content") as answer:
        assert answer.data == content
    assert other.test_client().delete(path).status_code == 200
    assert one.test_client().get(f"{path}/content").status_code == 404


@pytest.mark.slow
def test_background_work_is_cancelled_and_followed_from_another_server(
    make_server: MakeServer,
) -> None:
    one, other = make_server(), make_server()
    response_id = post(one, "/v1/responses", **LONG)["id"]
    wait_until(lambda: status(other, response_id) == "in_progress")
    cancelled = other.test_client().post(f"/v1/responses/{response_id}/cancel").get_json()
    assert cancelled["status"] == "cancelled"

    short = {**LONG, "max_output_tokens": 200}
    response_id = post(one, "/v1/responses", **short)["id"]
    streamed = other.test_client().get(f"/v1/responses/{response_id}?stream=true").text
    (last,) = read_events(streamed)
    assert last[1]["response"] == one.test_client().get(f"/v1/responses/{response_id}").get_json()


@pytest.mark.slow
def test_the_work_of_a_server_that_is_gone_fails_and_no_other(make_server: MakeServer) -> None:
    gone, works, looks = make_server(), make_server(), make_server()
    lost = post(gone, "/v1/responses", **LONG)["id"]
    kept = post(works, "/v1/responses", **LONG)["id"]
    for response_id in (lost, kept):
        wait_until(lambda r=response_id: status(looks, r) == "in_progress")
    leave(gone)
    wait_until(lambda: status(looks, lost) == "failed")
    assert status(looks, kept) == "in_progress"
    works.test_client().post(f"/v1/responses/{kept}/cancel")


class HeldAnswers:
    """Stands for the routes: answers "go" at once, and "hold" when its server is let go."""

    def __init__(self) -> None:
        self.let_go: defaultdict[Server, threading.Event] = defaultdict(threading.Event)
        self.held: set[Server] = set()

    def __call__(
        self, app: Server, owner: str, path: str, body: str, withdrawn: Callable[[], bool]
    ) -> tuple[Any, bool]:
        asked = json.loads(body)
        if asked["input"] == "hold":
            self.held.add(app)
        while asked["input"] == "hold" and not (self.let_go[app].is_set() or withdrawn()):
            time.sleep(0.005)
        return {"status": 200, "request_id": "req_1", "body": {}}, False


@pytest.fixture
def answers(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> HeldAnswers:
    made = HeldAnswers()
    monkeypatch.setattr(runner, "answer_request", made)
    return made


def begin_batch(app: Server) -> str:
    """A batch of two requests, of which the second is held."""
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/responses", "body": {"input": name}}
        for name in ("go", "hold")
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    form = {"purpose": "batch", "file": (io.BytesIO(content), "in.jsonl")}
    file_id = app.test_client().post("/v1/files", data=form).get_json()["id"]
    body = {
        "input_file_id": file_id, "endpoint": "/v1/responses", "completion_window": "24h",
    }  # fmt: skip
    batch_id: str = app.test_client().post("/v1/batches", json=body).get_json()["id"]
    return batch_id


def batch_at(app: Server, batch_id: str) -> Any:
    return app.test_client().get(f"/v1/batches/{batch_id}").get_json()


def wait_for_counts(app: Server, batch_id: str, completed: int) -> None:
    counts = {"total": 2, "completed": completed, "failed": 0}
    wait_until(lambda: batch_at(app, batch_id)["request_counts"] == counts)


def output_of(app: Server, batch: Any) -> list[str]:
    """Names of the requests that were answered."""
    with app.test_client().get(f"/v1/files/{batch['output_file_id']}/content") as answer:
        return [json.loads(line)["custom_id"] for line in answer.text.splitlines()]


@pytest.mark.slow
def test_a_batch_is_counted_and_cancelled_at_another_server(
    make_server: MakeServer, answers: HeldAnswers
) -> None:
    one, other = make_server(), make_server()
    batch_id = begin_batch(one)
    wait_for_counts(other, batch_id, completed=1)
    listed = other.test_client().get("/v1/batches").get_json()["data"]
    assert [batch["id"] for batch in listed] == [batch_id]
    stopping = other.test_client().post(f"/v1/batches/{batch_id}/cancel").get_json()
    assert stopping["status"] == "cancelling"
    wait_until(lambda: batch_at(other, batch_id)["status"] == "cancelled")
    assert output_of(other, batch_at(other, batch_id)) == ["go"]


@pytest.mark.slow
def test_a_batch_goes_on_at_another_server_and_only_there(
    make_server: MakeServer, answers: HeldAnswers, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = make_server(), make_server()
    batch_id = begin_batch(one)
    wait_for_counts(other, batch_id, completed=1)
    leave(one)  # or its connection broke: it goes on answering
    wait_until(lambda: {one, other} <= answers.held)
    answers.let_go[one].set()
    wait_until(lambda: "another server has taken over" in caplog.text)
    assert batch_at(other, batch_id)["status"] == "in_progress"
    answers.let_go[other].set()
    wait_until(lambda: batch_at(other, batch_id)["status"] == "completed")
    wait_for_counts(other, batch_id, completed=2)
    assert output_of(other, batch_at(other, batch_id)) == ["go", "hold"]


@pytest.mark.slow
def test_a_rate_limit_is_that_of_all_servers_together(make_server: MakeServer) -> None:
    limits = {"rate_limit": 0.01, "rate_burst": 5}
    servers = [make_server(**limits), make_server(**limits)]
    statuses = [servers[i % 2].test_client().get("/v1/models").status_code for i in range(6)]
    assert statuses == [200] * 5 + [429]
    refused = servers[1].test_client().get("/v1/models")
    assert 60 < int(refused.headers["Retry-After"]) <= 100


@pytest.mark.slow
def test_counts_of_requests_survive_a_restart_where_there_is_a_database(
    database: str, tiny_path: Path, tmp_path: Path
) -> None:
    keys = ["sk-a", "sk-b"]
    rates = {"sk-a": {"capacity": 3, "rate": "1/hour"}, "sk-b": {"capacity": 5, "rate": "1/hour"}}

    def statuses(count: int, key: str) -> list[int]:
        app = make_model_app(
            tiny_path, tmp_path, store=database, api_key=keys, per_key_rate_limits=rates
        )
        client, headers = app.test_client(), {"X-Api-Key": key}
        found = [client.get("/v1/models", headers=headers).status_code for _ in range(count)]
        app.lifecycle.advance(Phase.STOPPED)
        close_model_app(app)
        return found

    assert statuses(2, "sk-a") == [200, 200]
    assert statuses(4, "sk-b") == [200] * 4
    assert statuses(2, "sk-a") == [200, 429]
    assert statuses(2, "sk-b") == [200, 429]


@pytest.mark.slow
def test_a_shared_database_is_no_server_s_own(database: str) -> None:
    def nothing() -> None: ...

    alone = DatabaseLock(database, 1, nothing)
    with pytest.raises(StoreError, match="in use by oxibonsai on port 1"):
        Peers(database, 2, nothing)
    alone.close()
    sharing = [Peers(database, port, nothing) for port in (2, 3)]
    with pytest.raises(StoreError, match=r"in use by oxibonsai on port [23]"):
        DatabaseLock(database, 1, nothing)
    for one in sharing:
        one.close()
    DatabaseLock(database, 1, nothing).close()
