"""``/slots``: who runs where, and what the cache holds of a text on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from busy_engines import engines_busy
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app

from oxibonsai.errors import RequestError
from oxibonsai.server.server import Server

LONG = "once upon a time there was a knight " * 6  # some pages of 64 tokens, a token a byte
MINE, OTHER = {"X-Api-Key": "a"}, {"X-Api-Key": "b"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slots").mkdir()
    return tmp_path / "slots"


@pytest.fixture
def app(tiny_path: Path, tmp_path: Path, folder: Path) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path, slot_save_path=folder, parallel=2)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


def complete(client: FlaskClient, **fields: Any) -> Any:
    body = {"prompt": LONG, "n_predict": 4, "temperature": 0, **fields}
    answer = client.post("/completion", json=body, headers=MINE)
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def act(
    client: FlaskClient, slot: int, action: str, name: str | None = "a.bin", **more: Any
) -> Any:
    body = None if name is None else {"filename": name}
    return client.post(f"/slots/{slot}?action={action}", json=body, **more)


def test_a_slot_tells_its_latest_request(client: FlaskClient) -> None:
    assert all("params" not in s for s in client.get("/slots").get_json())
    answer = complete(client, id_slot=1, n_predict=4)
    assert answer["id_slot"] == 1
    idle, used = client.get("/slots").get_json()
    assert set(idle) == {"id", "n_ctx", "speculative", "is_processing"}
    assert (used["id"], used["is_processing"], used["id_task"]) == (1, False, 0)
    assert used["n_prompt_tokens"] == answer["tokens_evaluated"]
    assert used["params"] == {**answer["generation_settings"]}
    (token,) = used["next_token"]
    # llama-server's own tests want an idle slot without a budget.
    assert (token["n_decoded"], token["n_remain"], token["has_next_token"]) == (0, -1, False)
    assert "prompt" not in used


def test_requests_take_the_slot_that_was_idle_for_longest(client: FlaskClient) -> None:
    assert [complete(client)["id_slot"] for _ in range(4)] == [0, 1, 0, 1]


def test_busy_slots_say_so_and_are_left_alone(app: Server, client: FlaskClient) -> None:
    assert client.get("/slots?fail_on_no_slot=1").status_code == 200
    with engines_busy(app):
        assert [s["is_processing"] for s in client.get("/slots").get_json()] == [True, True]
        assert client.get("/slots?fail_on_no_slot=1").status_code == 503
        assert act(client, 0, "save").status_code == 409
    assert [s["is_processing"] for s in client.get("/slots").get_json()] == [False, False]


def test_prompts_are_shown_where_it_is_allowed_and_to_their_key_alone(
    tiny_path: Path, tmp_path: Path
) -> None:
    app = make_model_app(tiny_path, tmp_path, slots_text=True, api_key=["a", "b"])
    try:
        client = app.test_client()
        answer = complete(client, id_slot=0)
        shown = client.get("/slots", headers=MINE).get_json()[0]
        assert (shown["prompt"], shown["generated"]) == (LONG, answer["content"])
        assert "params" not in client.get("/slots", headers=OTHER).get_json()[0]
    finally:
        close_model_app(app)


def test_a_saved_slot_spares_the_prompt_in_another_server(
    app: Server, client: FlaskClient, folder: Path, tiny_path: Path, tmp_path: Path
) -> None:
    first = complete(client, id_slot=1)
    saved = act(client, 1, "save").get_json()
    assert saved["n_saved"] == first["tokens_evaluated"] // 64 * 64 > 0
    assert saved["n_written"] == (folder / "a.bin").stat().st_size
    fresh = make_model_app(tiny_path, tmp_path / "fresh", slot_save_path=folder)
    try:
        other = fresh.test_client()
        restored = act(other, 0, "restore").get_json()
        assert restored["n_restored"] == saved["n_saved"]
        assert restored["n_read"] == saved["n_written"]
        again = complete(other)
        assert again["content"] == first["content"]
        assert again["timings"]["cache_n"] == saved["n_saved"]
    finally:
        close_model_app(fresh)


def test_an_erased_slot_computes_its_prompt_again(client: FlaskClient) -> None:
    first = complete(client, id_slot=0)
    assert complete(client, id_slot=0)["timings"]["cache_n"] > 0
    erased = act(client, 0, "erase", None).get_json()
    assert erased == {"id_slot": 0, "n_erased": first["tokens_evaluated"] // 64 * 64}
    after = complete(client, id_slot=0)
    assert (after["timings"]["cache_n"], after["content"]) == (0, first["content"])


@pytest.mark.parametrize(
    "name", ["../a", "a/b", "/etc/passwd", "", ".", "..", ".hidden", "a\\b", "a\0", "x" * 129]
)
def test_names_stay_inside_the_folder(client: FlaskClient, folder: Path, name: str) -> None:
    complete(client, id_slot=0)
    for action in ("save", "restore"):
        assert act(client, 0, action, name).status_code == 400
    assert list(folder.iterdir()) == []


def test_only_whole_files_of_the_folder_are_read(
    client: FlaskClient, folder: Path, tmp_path: Path
) -> None:
    complete(client, id_slot=0)
    assert act(client, 0, "restore", "none.bin").status_code == 404
    act(client, 0, "save", "a.bin")
    outside = tmp_path / "outside.bin"
    outside.write_bytes((folder / "a.bin").read_bytes())
    (folder / "link.bin").symlink_to(outside)
    assert act(client, 0, "restore", "link.bin").status_code == 404
    (folder / "cut.bin").write_bytes(outside.read_bytes()[:-1])
    refused = act(client, 0, "restore", "cut.bin")
    assert refused.status_code == 400
    assert str(folder) not in refused.text


def test_what_makes_no_sense_is_refused(client: FlaskClient) -> None:
    assert act(client, 2, "save").status_code == 404
    assert act(client, 0, "save").status_code == 404, "nothing ran on it"
    assert act(client, 0, "copy").status_code == 400
    assert client.post("/slots/0").status_code == 400


def test_a_full_folder_takes_no_more(app: Server, client: FlaskClient) -> None:
    complete(client, id_slot=0)
    assert act(client, 0, "save", "a.bin").status_code == 200
    app.settings = app.settings.model_copy(update={"max_files_mb": 0.001})
    assert act(client, 0, "save", "b.bin").status_code == 413
    assert act(client, 0, "save", "a.bin").status_code == 200, "in place of the old one"


def test_a_key_acts_on_its_own_slots_and_files(
    tiny_path: Path, tmp_path: Path, folder: Path
) -> None:
    app = make_model_app(tiny_path, tmp_path, slot_save_path=folder, api_key=["a", "b"])
    try:
        client = app.test_client()
        complete(client, id_slot=0)
        for action in ("save", "erase"):
            assert act(client, 0, action, headers=OTHER).status_code == 404
        assert act(client, 0, "save", headers=MINE).status_code == 200
        assert act(client, 0, "restore", headers=OTHER).status_code == 404
        assert act(client, 1, "restore", headers=MINE).status_code == 200
    finally:
        close_model_app(app)


def test_without_a_folder_nothing_is_saved(model_client: FlaskClient) -> None:
    assert act(model_client, 0, "save").status_code == 501


def test_a_folder_that_is_not_there_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--slot-save-path"):
        make_model_app(tiny_path, tmp_path, slot_save_path=tmp_path / "none")
