"""Keys beside each other: each has its share of the server, and none learns what another has sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app

from oxibonsai.errors import CapacityError
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.access import acting_for, current_owner, owner_of
from oxibonsai.server.generation import Generation
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.openai.background_tasks import BackgroundTask, BackgroundTasks
from oxibonsai.server.server import Server

PROMPT = "to be, or not to be: that is the question; " * 4
ONE, LONG = SamplingParams(max_tokens=1), SamplingParams(max_tokens=None, ignore_eos=True)
KEYS = ("a", "b")


@pytest.fixture
def app(tiny_path: Path, tmp_path: Path) -> Iterator[Server]:
    app = make_model_app(tiny_path, tmp_path, api_key=KEYS, parallel=2, queue_size=4)
    yield app
    close_model_app(app)


def client_of(app: Server, key: str | None) -> FlaskClient:
    client = app.test_client()
    if key is not None:
        client.environ_base["HTTP_X_API_KEY"] = key
    return client


def cached(client: FlaskClient, path: str = "/v1/completions", **fields: Any) -> int:
    """How many tokens of a prompt the answer says were found in the cache."""
    body = {"max_tokens": 1, "temperature": 0, "prompt": PROMPT, **fields}
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.get_json()
    if path == "/completion":
        return int(answer.get_json()["timings"]["cache_n"])
    return int(answer.get_json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/completion"])
def test_a_key_finds_in_the_cache_only_what_it_has_sent(app: Server, path: str) -> None:
    a, b = (client_of(app, key) for key in KEYS)
    assert cached(a, path) == 0
    assert cached(a, path) > 0
    assert cached(b, path) == 0
    assert cached(b, path) == cached(a, path) > 0


def test_what_goes_on_in_the_background_is_its_keys_too(app: Server) -> None:
    a, b = (client_of(app, key) for key in KEYS)

    def in_background(client: FlaskClient) -> int:
        asked = {"model": "tiny", "input": PROMPT, "background": True, "max_output_tokens": 1}
        done = client.post("/v1/responses", json=asked).get_json()
        while done["status"] in ("queued", "in_progress"):
            time.sleep(0.01)
            done = client.get(f"/v1/responses/{done['id']}").get_json()
        assert done["status"] in ("completed", "incomplete")
        return int(done["usage"]["input_tokens_details"]["cached_tokens"])

    assert in_background(a) == 0
    assert in_background(a) > 0
    assert in_background(b) == 0


def test_a_setting_shares_the_cache(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, api_key=KEYS, share_prefix_cache=True)
    a, b = (client_of(app, key) for key in KEYS)
    assert cached(a) == 0
    assert cached(b) > 0
    # A request may keep its own apart all the same.
    assert cached(b, cache_salt="mine") == 0
    assert cached(a, cache_salt="mine") > 0
    close_model_app(app)


def test_without_keys_all_share_unless_a_request_has_a_salt(
    tiny_path: Path, tmp_path: Path
) -> None:
    app = make_model_app(tiny_path, tmp_path)
    client = client_of(app, None)
    assert [cached(client) > 0 for _ in range(2)] == [False, True]
    for path in ("/v1/completions", "/v1/chat/completions", "/completion"):
        for salt in ("mine", "yours"):
            found = [cached(client, path, cache_salt=salt + path) > 0 for _ in range(2)]
            assert found == [False, True]
    answer = client.post("/v1/completions", json={"prompt": "a", "cache_salt": ""})
    assert answer.status_code == 400
    assert answer.get_json()["error"]["param"] == "cache_salt"
    close_model_app(app)


def test_a_salt_separates_the_requests_of_one_key_and_joins_no_two_keys(app: Server) -> None:
    a, b = (client_of(app, key) for key in KEYS)
    assert cached(a, cache_salt="s") == 0
    assert cached(a, cache_salt="t") == 0
    assert cached(b, cache_salt="s") == 0
    assert cached(a, cache_salt="s") > 0


def begin(app: Server, key: str, params: SamplingParams = LONG) -> Generation:
    with acting_for(owner_of(key)):
        return app.submitter.text([1, 2, 3], params)


def test_a_key_that_fills_the_server_keeps_no_other_out(app: Server) -> None:
    of_a = [begin(app, "a") for _ in range(2 + 4)]
    pool = app.submitter.pool
    assert (pool.running, pool.waiting) == (2, 4)
    with pytest.raises(CapacityError):
        begin(app, "a")
    refused = client_of(app, "a").post("/v1/completions", json={"prompt": "a"})
    assert refused.status_code == 503
    answer = client_of(app, "b").post("/v1/completions", json={"prompt": "a", "max_tokens": 3})
    assert answer.status_code == 200
    assert answer.get_json()["usage"]["completion_tokens"] == 3
    for answers in of_a:
        answers.close()
    assert (pool.running, pool.waiting) == (0, 0)


def test_a_paused_request_gives_its_slot_away_and_takes_one_again(app: Server) -> None:
    of_a = [begin(app, "a") for _ in range(2)]
    slots = app.submitter.slots.slots
    assert [s.owner for s in slots] == [owner_of("a")] * 2
    of_b = begin(app, "b")
    assert {s.owner for s in slots} == {owner_of("a"), owner_of("b")}
    assert all(s.busy for s in slots)
    assert of_b.slot_id == of_a[1].slot_id
    of_b.close()
    assert [s.busy for s in slots].count(True) == 1
    list(of_a[1].poll())  # it goes on
    assert [s.owner for s in slots if s.busy] == [owner_of("a")] * 2
    for answers in of_a:
        answers.close()
    assert not any(s.busy for s in slots)


def test_slots_that_a_key_restores_are_its_own(tiny_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    app = make_model_app(tiny_path, tmp_path, api_key=KEYS, parallel=1, slot_save_path=folder)
    a, b = (client_of(app, key) for key in KEYS)
    assert cached(a) == 0
    kept = cached(a)
    assert a.post("/slots/0?action=save", json={"filename": "x"}).status_code == 200
    assert a.post("/slots/0?action=erase").get_json()["n_erased"] >= kept
    assert cached(b) == 0
    assert a.post("/slots/0?action=restore", json={"filename": "x"}).status_code == 200
    assert cached(a) == kept
    close_model_app(app)


def test_background_work_is_shared_out_by_owner() -> None:
    tasks = BackgroundTasks(Lifecycle(), running=2, waiting=4)
    go_on, began = threading.Event(), []
    changed = threading.Condition()

    def work(task: BackgroundTask) -> None:
        with changed:
            began.append(current_owner())
            changed.notify_all()
        assert go_on.wait(60)

    def submit(owner: str, number: int) -> BackgroundTask:
        key = (owner, str(number))
        task = tasks.reserve(key)
        tasks.start(key, task, work)
        return task

    started = [submit("a", i) for i in range(6)]
    with pytest.raises(CapacityError):
        tasks.reserve(("a", "more"))
    with changed:
        assert changed.wait_for(lambda: len(began) == 2, 60)
    started += [submit("b", i) for i in range(2)]
    with changed:
        assert changed.wait_for(lambda: len(began) == 3, 60)
        assert began == ["a", "a", "b"]
    go_on.set()
    assert all(task.wait(60) for task in started)
    assert sorted(str(o) for o in began) == ["a"] * 6 + ["b"] * 2
    assert current_owner() is None
