"""``/v1/batches`` and ``/v1/messages/batches``."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import MakeApp
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from official import anthropic_client, openai_client
from running_server import running_server

from oxibonsai.server.batches import batch_files, records, runner
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.server import Server
from oxibonsai.server.stores import StoreError

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
ENDED = ("completed", "failed", "expired", "cancelled")


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path_factory.mktemp("state"), api_key=["key", "other"])
    yield made
    close_model_app(made)


def line(name: str, body: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": CHAT, "body": body or {}, **fields}


def upload(client: FlaskClient, *lines: dict[str, Any] | str) -> str:
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines)
    form = {"purpose": "batch", "file": (io.BytesIO(text.encode()), "in.jsonl")}
    return str(client.post("/v1/files", data=form).get_json()["id"])


def create(client: FlaskClient, *lines: dict[str, Any] | str, status: int = 200) -> Any:
    body = {
        "input_file_id": upload(client, *lines), "endpoint": CHAT, "completion_window": "24h",
    }  # fmt: skip
    answer = client.post("/v1/batches", json=body)
    assert answer.status_code == status, answer.text
    return answer.get_json()


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (value := found()) is not None:
            return value
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def ended(client: FlaskClient, batch_id: str) -> Any:
    def look() -> Any:
        batch = client.get(f"/v1/batches/{batch_id}").get_json()
        return batch if batch["status"] in ENDED else None

    return until(look)


def has_ended(app: Server, batch_id: str) -> bool:
    return app.test_client().get(f"/v1/batches/{batch_id}").get_json()["status"] in ENDED


def lines_of(client: FlaskClient, file_id: str) -> dict[str, Any]:
    """The lines of a file by their names."""
    with client.get(f"/v1/files/{file_id}/content") as answer:
        lines = answer.text.splitlines()
    return {one["custom_id"]: one for one in map(json.loads, lines)}


def test_openais_client_has_the_requests_of_a_file_answered(app: Server) -> None:
    client = openai_client(app)
    body = {"model": "tiny", "messages": HI, "max_tokens": 3, "temperature": 0}
    lines = [line("good", body), line("bad", {**body, "temperature": "warm"}), line("same", body)]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"a": "b"}
    )
    assert batch.status == "validating"
    batch = until(lambda: b if (b := client.batches.retrieve(batch.id)).status in ENDED else None)
    assert batch.status == "completed", batch.errors
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3, 2, 1)
    assert batch.metadata == {"a": "b"}
    outputs = client.files.content(batch.output_file_id).text.splitlines()
    by_name = {one["custom_id"]: one for one in map(json.loads, outputs)}
    direct = client.chat.completions.create(**body).choices[0].model_dump()
    for name in ("good", "same"):
        answer = by_name[name]["response"]
        assert answer["status_code"] == 200
        assert answer["request_id"].startswith("req_")
        assert answer["body"]["choices"][0]["message"]["content"] == direct["message"]["content"]
    (error,) = map(json.loads, client.files.content(batch.error_file_id).text.splitlines())
    assert error["custom_id"] == "bad"
    assert error["response"]["status_code"] == 400
    assert error["response"]["body"]["error"]["param"] == "temperature"
    assert [b.id for b in client.batches.list()] == [batch.id]
    assert list(openai_client(app, "other").batches.list()) == []


def test_anthropics_client_has_messages_answered(app: Server) -> None:
    client = anthropic_client(app)
    params = {"model": "tiny", "messages": HI, "max_tokens": 3}
    requests = [
        {"custom_id": "good", "params": {**params, "temperature": 0}},
        {"custom_id": "bad", "params": {**params, "max_tokens": 0}},
    ]
    batch = client.messages.batches.create(requests=requests)
    assert batch.processing_status == "in_progress"
    assert batch.request_counts.processing == 2

    def look() -> Any:
        found = client.messages.batches.retrieve(batch.id)
        return found if found.processing_status == "ended" else None

    counts = until(look).request_counts
    assert (counts.succeeded, counts.errored, counts.processing) == (1, 1, 0)
    results = {one.custom_id: one.result for one in client.messages.batches.results(batch.id)}
    direct = client.messages.create(**params, extra_body={"temperature": 0})
    assert results["good"].message.content == direct.content
    assert results["bad"].error.error.type == "invalid_request_error"
    assert [b.id for b in client.messages.batches.list()] == [batch.id]
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    assert list(client.messages.batches.list()) == []


class Answers:
    """Stands for the routes: answers when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.free = threading.Event()
        self.busy = 0
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(
        self, app: Server, owner: str, path: str, body: str, withdrawn: Callable[[], bool]
    ) -> tuple[Any, bool]:
        number = json.loads(body)["n"]
        with self._lock:
            self.begun.append(number)
            self.running += 1
            self.most = max(self.most, self.running)
        while not (self.free.is_set() or withdrawn()):
            time.sleep(0.005)
        with self._lock:
            self.running -= 1
            busy, self.busy = self.busy > 0, self.busy - 1
        status = 503 if busy else 499 if withdrawn() else 200
        return {"status": status, "request_id": "req_1", "body": {"n": number}}, busy


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    made = Answers()
    monkeypatch.setattr(runner, "answer_request", made)
    monkeypatch.setattr(runner, "_RETRY_SECONDS", (0.01, 0.01))
    yield made
    made.free.set()


def some_lines(count: int) -> list[dict[str, Any]]:
    return [line(f"line-{n}", {"n": str(n)}) for n in range(count)]


def test_no_more_requests_run_at_once_than_the_server_allows(
    make_app: MakeApp, answers: Answers
) -> None:
    client = make_app(batch_parallel=2).test_client()
    batch = create(client, *some_lines(6))
    until(lambda: True if answers.running == 2 else None)
    answers.free.set()
    done = ended(client, batch["id"])
    assert done["request_counts"] == {"total": 6, "completed": 6, "failed": 0}
    assert answers.most == 2
    assert sorted(answers.begun) == list("012345")
    assert list(lines_of(client, done["output_file_id"])) == [f"line-{n}" for n in range(6)]
    assert done["error_file_id"] is None


def test_the_keys_take_turns(make_app: MakeApp, answers: Answers) -> None:
    app = make_app(batch_parallel=1, api_key=["a", "b"])
    one, other = app.test_client(), app.test_client()
    one.environ_base["HTTP_X_API_KEY"], other.environ_base["HTTP_X_API_KEY"] = "a", "b"
    first = create(one, *some_lines(4))
    until(lambda: True if answers.running == 1 else None)
    more = create(one, *some_lines(4))
    late = create(other, line("late", {"n": "late"}))
    answers.free.set()
    ended(other, late["id"])
    for batch in (first, more):
        assert ended(one, batch["id"])["status"] == "completed"
    # While the other key's file was read, the first key had one more answer.
    assert answers.begun.index("late") == 2


def test_a_cancelled_batch_keeps_what_it_has(make_app: MakeApp, answers: Answers) -> None:
    client = make_app(batch_parallel=1).test_client()
    answers.free.set()
    quick = create(client, *some_lines(1))
    assert ended(client, quick["id"])["status"] == "completed"
    answers.free.clear()
    batch = create(client, *some_lines(3))
    until(lambda: True if answers.running == 1 else None)
    stopping = client.post(f"/v1/batches/{batch['id']}/cancel").get_json()
    assert stopping["status"] == "cancelling"
    done = ended(client, batch["id"])
    assert done["status"] == "cancelled"
    assert done["request_counts"] == {"total": 3, "completed": 0, "failed": 0}
    assert done["output_file_id"] is None
    assert done["error_file_id"] is None
    again = client.post(f"/v1/batches/{batch['id']}/cancel")
    assert again.status_code == 400


def test_a_batch_goes_on_after_a_restart(make_app: MakeApp, answers: Answers) -> None:
    first = make_app(batch_parallel=1)
    batch = create(first.test_client(), *some_lines(3))
    until(lambda: True if answers.begun else None)
    answers.free.set()
    until(lambda: True if len(answers.begun) >= 2 else None)
    first.lifecycle.advance(Phase.STOPPED)  # as when the process is told to end
    until(lambda: True if answers.running == 0 else None)
    client = make_app(batch_parallel=1).test_client()
    done = ended(client, batch["id"])
    assert done["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    assert set(lines_of(client, done["output_file_id"])) == {"line-0", "line-1", "line-2"}


def test_a_request_that_stops_the_server_again_and_again_is_given_up(
    make_app: MakeApp, answers: Answers
) -> None:
    app = make_app(batch_parallel=1)
    app.lifecycle.advance(Phase.READY)
    batch = create(app.test_client(), *some_lines(1))
    until(lambda: True if answers.begun else None)
    for _ in range(records.MOST_STARTS):
        app.lifecycle.advance(Phase.STOPPED)
        until(lambda: True if answers.running == 0 else None)
        answers.begun.clear()
        app = make_app(batch_parallel=1)
        until(lambda app=app: True if answers.begun or has_ended(app, batch["id"]) else None)
    done = ended(app.test_client(), batch["id"])
    assert done["request_counts"]["failed"] == 1
    (error,) = lines_of(app.test_client(), done["error_file_id"]).values()
    assert error["response"]["status_code"] == 500


def test_while_the_server_is_busy_a_request_is_tried_again(
    make_app: MakeApp, answers: Answers
) -> None:
    client = make_app().test_client()
    answers.free.set()
    answers.busy = 2
    done = ended(client, create(client, *some_lines(1))["id"])
    assert done["request_counts"]["completed"] == 1
    assert len(answers.begun) == 3


def test_a_batch_that_takes_too_long_expires(
    make_app: MakeApp, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "WINDOW_SECONDS", 0)
    client = make_app().test_client()
    done = ended(client, create(client, *some_lines(2))["id"])
    assert done["status"] == "expired"
    errors = lines_of(client, done["error_file_id"])
    assert {one["error"]["code"] for one in errors.values()} == {"batch_expired"}
    assert len(errors) == 2


def test_a_key_has_a_limited_number_of_batches(make_app: MakeApp, answers: Answers) -> None:
    client = make_app(max_batches=1).test_client()
    first = create(client, *some_lines(1))
    refused = create(client, *some_lines(1), status=429)
    assert refused["error"]["code"] == "too_many_batches"
    answers.free.set()
    ended(client, first["id"])
    create(client, *some_lines(1))


@pytest.mark.parametrize(
    ("lines", "code", "number"),
    [
        (["{"], "invalid_json_line", 1),
        ([line("a", {"n": 1}), "[]"], "invalid_json_line", 2),
        ([line("a", {"n": 1}), "", line("a", {"n": 1})], "duplicate_custom_id", 3),
        ([line("a", {"n": 1}, url="/v1/embeddings")], "mismatched_endpoint", 1),
        ([line("a", {"n": 1}, method="GET")], "invalid_method", 1),
        ([line("a", {"stream": True})], "invalid_request", 1),
        ([{"method": "POST", "url": CHAT, "body": {}}], "missing_required_parameter", 1),
        (["x" * 10 + "[" * 100_000], "invalid_json_line", 1),
        ([" "], "empty_file", None),
    ],
)
def test_a_file_that_is_no_batch_fails_with_the_line(
    make_app: MakeApp, answers: Answers, lines: list[Any], code: str, number: int | None
) -> None:
    client = make_app().test_client()
    done = ended(client, create(client, *lines)["id"])
    assert done["status"] == "failed"
    (error,) = done["errors"]["data"]
    assert (error["code"], error["line"]) == (code, number)
    assert answers.begun == []


def test_bodies_that_are_no_batch_are_refused(make_app: MakeApp) -> None:
    client = make_app().test_client()
    form = {"purpose": "assistants", "file": (io.BytesIO(b"{}"), "a.jsonl")}
    file = client.post("/v1/files", data=form).get_json()["id"]
    body = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
    for wrong, status in (
        (body, 400), ({**body, "input_file_id": "file-1"}, 404),
        ({**body, "endpoint": "/v1/videos"}, 400), ({**body, "completion_window": "1h"}, 400),
    ):  # fmt: skip
        assert client.post("/v1/batches", json=wrong).status_code == status, wrong
    one = {"custom_id": "a", "params": {}}
    for wrong in (
        [], [one, one], [{"custom_id": "a b", "params": {}}],
        [{"custom_id": "a", "params": {"stream": True}}],
    ):  # fmt: skip
        answer = client.post("/v1/messages/batches", json={"requests": wrong})
        assert answer.status_code == 400, wrong
        assert answer.get_json()["type"] == "error"


def test_a_batch_of_messages_is_cancelled(make_app: MakeApp, answers: Answers) -> None:
    client = make_app(batch_parallel=1).test_client()
    requests = [{"custom_id": f"r{n}", "params": {"n": str(n)}} for n in range(3)]
    batch = client.post("/v1/messages/batches", json={"requests": requests}).get_json()
    path = f"/v1/messages/batches/{batch['id']}"
    assert client.get(f"{path}/results").status_code == 404
    assert client.delete(path).status_code == 400
    assert client.get(f"/v1/batches/{batch['id']}").status_code == 404  # of the other API
    until(lambda: True if answers.begun else None)
    assert client.post(f"{path}/cancel").get_json()["processing_status"] == "canceling"
    done = until(
        lambda: b if (b := client.get(path).get_json())["processing_status"] == "ended" else None
    )
    assert done["request_counts"]["canceled"] == 3
    results = client.get(f"{path}/results").text.splitlines()
    assert [json.loads(r) for r in results] == [
        {"custom_id": f"r{n}", "result": {"type": "canceled"}} for n in range(3)
    ]


def test_a_line_that_is_too_long_fails_the_batch_with_its_number(
    make_app: MakeApp, answers: Answers
) -> None:
    client = make_app(max_body_mb=0.01).test_client()
    done = ended(client, create(client, line("a", {"n": 1}), line("b", {"n": "x" * 20_000}))["id"])
    assert done["status"] == "failed"
    (error,) = done["errors"]["data"]
    assert (error["code"], error["line"]) == ("line_too_long", 2)
    assert "--max-body-mb" in error["message"]
    assert answers.begun == []
    assert client.application.store.batch_requests.list("anonymous", parent=done["id"]).data == []


def test_the_requests_of_a_file_are_read_one_at_a_time() -> None:
    class File(io.BytesIO):
        lines = 0

        def readline(self, size: int | None = -1) -> bytes:
            self.lines += 1
            return super().readline(size)

    text = "\n".join(json.dumps(line(f"line-{n}", {"n": n})) for n in range(4))
    file = File(text.encode())
    found = batch_files.read_requests(file, CHAT, 1000, contextlib.nullcontext)
    assert file.lines == 0
    for n in range(4):
        assert next(found)["custom_id"] == f"line-{n}"
        assert file.lines == n + 1


def test_a_large_line_is_read_in_the_turn_of_large_requests(
    make_app: MakeApp, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_files, "_LARGE_BYTES", 1000)
    answers.free.set()
    app = make_app()
    client = app.test_client()
    with app.large_requests.turn():
        batch = create(client, line("a", {"n": "1", "x": "x" * 1000}))
        until(lambda: True if app.large_requests.waiting == 1 else None)
        assert answers.begun == []
    assert ended(client, batch["id"])["request_counts"]["completed"] == 1


class StoppedServer:
    """Stands for a file on which the server dies, after so many of its requests."""

    def __init__(self, after: int) -> None:
        self.starts = 0
        self._after = after
        self._read = runner.read_requests

    def __call__(self, *given: Any) -> Iterator[Any]:
        self.starts += 1
        yield from itertools.islice(self._read(*given), self._after)
        self.app.lifecycle.advance(Phase.STOPPED)
        raise StoreError("the process was killed")

    app: Server


def restarted(make_app: MakeApp, stopped: StoppedServer, times: int) -> Server:
    for n in range(times):
        until(lambda n=n: True if stopped.starts == n + 1 else None)
        until(lambda: True if stopped.app.lifecycle.phase == Phase.STOPPED else None)
        stopped.app = make_app(batch_parallel=1)
    return stopped.app


def test_a_file_that_stops_the_server_again_and_again_is_given_up(
    make_app: MakeApp, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = StoppedServer(after=0)
    monkeypatch.setattr(runner, "read_requests", stopped)
    stopped.app = make_app(batch_parallel=1)
    batch = create(stopped.app.test_client(), *some_lines(2))
    app = restarted(make_app, stopped, records.MOST_STARTS)
    done = ended(app.test_client(), batch["id"])
    assert done["status"] == "failed"
    (error,) = done["errors"]["data"]
    assert "stopped 5 times while it read the input file" in error["message"]
    assert stopped.starts == records.MOST_STARTS


def test_a_file_that_was_read_in_part_is_read_again_and_no_request_is_there_twice(
    make_app: MakeApp, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.free.set()
    stopped = StoppedServer(after=2)
    monkeypatch.setattr(runner, "_GROUP", 1)
    monkeypatch.setattr(runner, "read_requests", stopped)
    stopped.app = make_app(batch_parallel=1)
    batch = create(stopped.app.test_client(), *some_lines(3))
    until(lambda: True if stopped.starts == 1 else None)
    until(lambda: True if stopped.app.lifecycle.phase == Phase.STOPPED else None)
    monkeypatch.undo()
    monkeypatch.setattr(runner, "answer_request", answers)
    done = ended(make_app(batch_parallel=1).test_client(), batch["id"])
    assert done["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    assert sorted(answers.begun) == ["0", "1", "2"]


def test_a_request_that_an_earlier_version_has_stored_is_answered() -> None:
    body = {"messages": HI}
    assert json.loads(records.body_of({"body": body})) == body
    assert json.loads(records.body_of(records.new_request("a", body, CHAT))) == body


@pytest.mark.slow
def test_a_file_of_one_line_of_64_mb_takes_less_than_100_mb(tmp_path: Path) -> None:
    lines = b"[" + b"[]," * (2**26 // 3) + b"[]]\n"
    batch, used = batch_of_a_real_server(tmp_path, lines)
    assert batch["status"] == "failed"
    (error,) = batch["errors"]["data"]
    assert (error["code"], error["line"]) == ("line_too_long", 1)
    assert used < 100


@pytest.mark.release
def test_a_file_of_40_mb_of_small_values_takes_less_than_150_mb(tmp_path: Path) -> None:
    one = line("NAME", {"messages": [{"role": "user", "content": [{}] * 2500}]})
    text = json.dumps(one, separators=(",", ":")) + "\n"
    lines = "".join(text.replace("NAME", f"line-{n}") for n in range(5000)).encode()
    batch, used = batch_of_a_real_server(tmp_path, lines)
    assert batch["status"] == "in_progress"
    assert batch["request_counts"]["total"] == 5000
    assert used < 150


def batch_of_a_real_server(folder: Path, lines: bytes) -> tuple[Any, int]:
    """A batch whose input file has been read, and how many MiB more the server has used for it."""
    form = b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
    form += b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    with running_server(folder) as server:
        before = server.peak_memory()
        file = server.ask("/v1/files", "POST", form + lines + b"\r\n--x--\r\n", **kind)[2]["id"]
        body = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        kind = {"Content-Type": "application/json"}
        batch = server.ask("/v1/batches", "POST", json.dumps(body).encode(), **kind)[2]

        def look() -> Any:
            found = server.ask(f"/v1/batches/{batch['id']}")[2]
            begun = found["request_counts"]["total"] or found["status"] == "failed"
            return found if begun else None

        return until(look), server.peak_memory() - before
