"""What the store keeps, who sees it, and in which order."""

from __future__ import annotations

import hashlib
import io
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE

import pytest
from running_server import wait_until
from sqlalchemy import Connection

from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.server.stores import NoSuchObjectError, Store, StoreError, TooLargeError

A, B = "owner-a", "owner-b"


def test_an_object_comes_back_as_it_was_kept(store: Store) -> None:
    body = {"text": "é😀\0", "numbers": [1, 2.5, -3, 10**30], "none": None, "deep": [[[{}]]]}
    kept = store.responses.create(A, body)
    assert kept["id"].startswith("resp_")
    assert store.responses.get(A, kept["id"]) == {"id": kept["id"], **body}


def test_an_id_can_be_chosen_once(store: Store) -> None:
    store.responses.create(A, {"id": "resp_1"})
    with pytest.raises(RequestError, match="already"):
        store.responses.create(A, {"id": "resp_1"})


@pytest.mark.parametrize("wrong", ["", "a b", "é", "x" * 81, 7, "a\0b"])
def test_an_id_is_a_short_plain_word(store: Store, wrong: object) -> None:
    if wrong == "":
        assert store.responses.create(A, {"id": wrong})  # as if there were none
        return
    with pytest.raises(RequestError, match="id of a response"):
        store.responses.create(A, {"id": wrong})


@pytest.mark.parametrize("kind", ["responses", "assistants", "threads"])
def test_another_owner_meets_what_an_unknown_id_gives(store: Store, kind: str) -> None:
    collection = getattr(store, kind)
    mine = collection.create(A, {"x": 1})["id"]
    for wrong in (mine, "unknown", "a\0b", "é" * 500, ""):
        for call in (
            lambda i: collection.get(B, i),
            lambda i: collection.delete(B, i),
            lambda i: collection.change(B, i, lambda body: body),
        ):
            with pytest.raises(NoSuchObjectError):
                call(wrong)
        with pytest.raises(RequestError, match=r"is not in this list"):
            collection.list(B, after=wrong)
    assert collection.list(B).data == []
    assert collection.get(A, mine) == {"id": mine, "x": 1}


def test_two_owners_may_have_the_same_id(store: Store) -> None:
    store.responses.create(A, {"id": "resp_1", "of": "a"})
    store.responses.create(B, {"id": "resp_1", "of": "b"})
    store.responses.delete(A, "resp_1")
    assert store.responses.get(B, "resp_1")["of"] == "b"


def test_children_belong_to_a_parent_of_the_same_owner(store: Store) -> None:
    thread = store.threads.create(A, {})["id"]
    other = store.threads.create(A, {})["id"]
    message = store.messages.create(A, {"n": 1}, parent=thread)["id"]
    with pytest.raises(NoSuchObjectError, match="thread"):
        store.messages.create(B, {}, parent=thread)
    with pytest.raises(NoSuchObjectError):
        store.messages.get(A, message, parent=other)
    with pytest.raises(NoSuchObjectError):
        store.messages.list(B, parent=thread)
    run = store.runs.create(A, {}, parent=thread)["id"]
    step = store.run_steps.create(A, {}, parent=run)["id"]
    store.threads.delete(A, thread)
    for collection, gone in ((store.messages, message), (store.runs, run), (store.run_steps, step)):
        with pytest.raises(NoSuchObjectError):
            collection.get(A, gone)


def test_pages_cover_a_list_once_in_both_orders(store: Store) -> None:
    ids = [store.responses.create(A, {"n": n})["id"] for n in range(11)]
    store.responses.create(B, {})
    for order, expected in (("asc", ids), ("desc", ids[::-1])):
        seen: list[str] = []
        after = None
        while True:
            page = store.responses.list(A, after=after, limit=4, order=order)  # type: ignore[arg-type]
            seen += [item["id"] for item in page.data]
            after = page.to_json()["last_id"]
            if not page.has_more:
                break
        assert seen == expected
        page = store.responses.list(A, before=expected[9], limit=4, order=order)  # type: ignore[arg-type]
        assert [item["id"] for item in page.data] == expected[5:9]
        assert page.has_more
        page = store.responses.list(A, after=expected[1], before=expected[4], order=order)  # type: ignore[arg-type]
        assert [item["id"] for item in page.data] == expected[2:4]


def test_a_page_can_be_filtered(store: Store) -> None:
    for n in range(10):
        store.responses.create(A, {"n": n})
    page = store.responses.list(A, limit=3, order="asc", keep=lambda body: body["n"] % 2 == 1)
    assert [item["n"] for item in page.data] == [1, 3, 5]
    assert page.has_more


@pytest.mark.parametrize("limit", [0, -1, 101])
def test_a_limit_out_of_range_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(RequestError, match="1 to 100"):
        store.responses.list(A, limit=limit)


def test_an_empty_page_has_no_ends(store: Store) -> None:
    assert store.responses.list(A).to_json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


def test_changes_from_many_threads_are_all_kept(store: Store) -> None:
    run = store.responses.create(A, {"n": 0})["id"]

    def add() -> None:
        for _ in range(10):
            store.responses.change(A, run, lambda body: {**body, "n": body["n"] + 1})

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.responses.get(A, run)["n"] == 80


def test_a_change_that_fails_changes_nothing(store: Store) -> None:
    run = store.responses.create(A, {"status": "queued"})["id"]

    def fail(body: dict[str, object]) -> dict[str, object]:
        raise RequestError("it is done already")

    with pytest.raises(RequestError, match="done already"):
        store.responses.change(A, run, fail)
    assert store.responses.get(A, run)["status"] == "queued"


def test_old_responses_are_forgotten(store: Store) -> None:
    store.responses.create(A, {})
    assert store.forget_old(3600) == 0
    assert store.forget_old(-1) == 1


def test_a_file_comes_back_whole(store: Store) -> None:
    content = bytes(range(256)) * 39
    kept = store.files.upload(A, {"filename": "a.bin"}, io.BytesIO(content))
    assert kept["bytes"] == len(content)
    with store.files.open(A, kept["id"]) as file:
        assert file.read() == content
    with pytest.raises(NoSuchObjectError):
        store.files.open(B, kept["id"])


def test_equal_contents_are_kept_once_and_as_long_as_a_file_has_them(
    store: Store, tmp_path: Path
) -> None:
    ids = [store.files.upload(who, {}, io.BytesIO(b"same"))["id"] for who in (A, B)]
    digest = hashlib.sha256(b"same").hexdigest()
    blob = tmp_path / "files" / digest[:2] / digest
    assert blob.read_bytes() == b"same"
    store.files.delete(A, ids[0])
    with store.files.open(B, ids[1]) as file:
        assert file.read() == b"same"
    store.files.delete(B, ids[1])
    assert not blob.exists()


def test_too_large_files_leave_nothing_behind(store: Store, tmp_path: Path) -> None:
    with pytest.raises(TooLargeError, match="10000"):
        store.files.upload(A, {}, io.BytesIO(b"x" * 10_001))
    for n in range(2):
        store.files.upload(A, {}, io.BytesIO(bytes([n]) * 10_000))
    with pytest.raises(TooLargeError, match="25000"):
        store.files.upload(A, {}, io.BytesIO(b"z" * 10_000))
    store.files.upload(B, {}, io.BytesIO(b"z" * 10_000))
    assert len([p for p in (tmp_path / "files").rglob("*") if p.is_file()]) == 3
    assert len(store.files.list(A).data) == 2


def test_sweeping_keeps_what_files_have(store: Store, tmp_path: Path) -> None:
    kept = store.files.upload(A, {}, io.BytesIO(b"kept"))["id"]
    orphan = tmp_path / "files" / "ab" / ("ab" + "0" * 62)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"left by a process that died")
    store.files.sweep()
    assert not orphan.exists()
    with store.files.open(A, kept) as file:
        assert file.read() == b"kept"


UPLOAD = """
import io, sys
from pathlib import Path
from oxibonsai.server.stores.blobs import BlobFolder

source = sys.stdin.buffer if sys.argv[2] == "written" else io.BytesIO(b"whole")
with BlobFolder(Path(sys.argv[1])).receive(source, 10**9):
    print("received", flush=True)
    sys.stdin.buffer.read()
"""


@pytest.mark.parametrize("state", ["written", "whole"])
def test_an_upload_is_swept_as_soon_as_its_process_is_killed(
    store: Store, tmp_path: Path, state: str
) -> None:
    """Not a day later, and never before."""
    incoming = tmp_path / "files" / "incoming"
    command = [sys.executable, "-c", UPLOAD, str(tmp_path / "files"), state]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as uploading:
        assert uploading.stdin is not None
        assert uploading.stdout is not None
        if state == "whole":
            assert uploading.stdout.readline() == b"received\n"
        else:
            uploading.stdin.write(b"x" * 2**21)
            uploading.stdin.flush()
            wait_until(lambda: any(p.stat().st_size for p in incoming.iterdir()))
        store.files.sweep()
        assert len(list(incoming.iterdir())) == 1
        uploading.kill()
        uploading.wait()
    store.files.sweep()
    assert list(incoming.iterdir()) == []


def test_a_store_is_the_same_after_it_was_closed(store_url: str, tmp_path: Path) -> None:
    first = Store(store_url, tmp_path / "files")
    kept = first.threads.create(A, {"x": 1})
    first.close()
    second = Store(store_url, tmp_path / "files")
    assert second.threads.get(A, kept["id"]) == kept
    second.close()


def test_a_store_of_a_newer_version_is_refused(store_url: str, tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    Store(store_url, tmp_path / "files").close()
    engine = create_engine(store_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE schema_version SET version = 7"))
    engine.dispose()
    with pytest.raises(UnsupportedError, match=r"schema version 7, .*up to 4: use the oxibonsai"):
        Store(store_url, tmp_path / "files")


def test_a_store_of_the_first_version_is_upgraded(store_url: str, tmp_path: Path) -> None:
    from sqlalchemy import create_engine, inspect, text

    first = Store(store_url, tmp_path / "files")
    kept = first.responses.create(A, {"x": 1})
    first.close()
    engine = create_engine(store_url)
    shared = ("file_contents", "rate_limits", "cancellations", "token_budgets")
    with engine.begin() as connection:
        for table in shared:
            connection.execute(text(f"DROP TABLE {table}"))
        _drop_sizes(connection)
        connection.execute(text("UPDATE schema_version SET version = 1"))
    upgraded = Store(store_url, tmp_path / "files")
    assert upgraded.responses.get(A, kept["id"]) == kept
    upgraded.close()
    assert set(shared) <= set(inspect(engine).get_table_names())
    engine.dispose()


def test_what_an_earlier_version_stored_counts_towards_the_limit(
    store_url: str, tmp_path: Path
) -> None:
    from sqlalchemy import create_engine, text

    first = Store(store_url, tmp_path / "files")
    first.responses.create(A, {"x": "é" * 2000})
    first.close()
    engine = create_engine(store_url)
    with engine.begin() as connection:
        _drop_sizes(connection)
        connection.execute(text("UPDATE schema_version SET version = 2"))
    engine.dispose()
    upgraded = Store(store_url, tmp_path / "files", max_total_bytes=12_000)
    with pytest.raises(TooLargeError):  # an escaped é takes six bytes
        upgraded.check_room(A)
    upgraded.close()


def _drop_sizes(connection: Connection) -> None:
    """Takes out what version 3 of the schema added."""
    from sqlalchemy import text

    from oxibonsai.server.stores.tables import OBJECTS

    for table in OBJECTS:
        connection.execute(text(f"DROP INDEX ix_{table.name}_size"))
        connection.execute(text(f"ALTER TABLE {table.name} DROP COLUMN body_size"))


def test_all_objects_of_an_owner_together_have_a_limit(store: Store) -> None:
    thread = store.threads.create(A, {"x": 1})
    store.check_room(A)
    store.messages.create_all(A, [{"x": "y" * 13_000}, {}], parent=thread["id"])
    store.check_room(A)
    kept = store.chat_completions.create(A, {"x": 1})
    store.chat_completions.change(A, kept["id"], lambda o: {**o, "x": "y" * 13_000})
    with pytest.raises(TooLargeError, match=r"of 25000 .*delete some of it"):
        store.check_room(A)
    store.check_room(B)
    store.threads.delete(A, thread["id"])
    store.check_room(A)


def test_two_processes_may_open_a_new_store_at_once(store_url: str, tmp_path: Path) -> None:
    opened: list[Store] = []
    failed: list[Exception] = []

    def start() -> None:
        try:
            opened.append(Store(store_url, tmp_path / "files"))
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    kept = opened[0].responses.create(A, {})
    assert opened[3].responses.get(A, kept["id"]) == kept
    for one in opened:
        one.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "not a database URL"),
        ("nonsense", "not a database URL"),
        ("mysql://x/y", "mysql"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
def test_other_urls_are_refused(url: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=words):
        Store(url, tmp_path)


def test_the_password_of_a_database_is_in_no_message(tmp_path: Path) -> None:
    url = "postgresql+psycopg://user:secret@127.0.0.1:1/none"
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed")
    with pytest.raises(StoreError) as error:
        Store(url, tmp_path)
    assert "secret" not in str(error.value)


def test_order_does_not_depend_on_the_clock(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for now in (2e9, 1e9, 1.5e9):
        monkeypatch.setattr("oxibonsai.server.stores.collection.time.time", lambda now=now: now)
        ids.append(store.responses.create(A, {})["id"])
    assert [item["id"] for item in store.responses.list(A, order="asc").data] == ids


def test_sqlite_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(f"sqlite:///{path}", tmp_path / "files")
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    store.close()


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"\xff" * 8192])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="damaged: move it away"):
        Store(f"sqlite:///{path}", tmp_path / "files")
    assert path.read_bytes() == content
