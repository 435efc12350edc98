"""A disk that is full, a database that is locked, read-only, damaged: a clear error, and no loss."""

from __future__ import annotations

import ctypes
import io
import os
import resource
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import MakeApp
from flask.testing import FlaskClient
from running_server import running_server
from sqlalchemy import event
from url_sweep import assert_error_object

from oxibonsai.errors import FormatError
from oxibonsai.server.stores import Store, StoreError
from oxibonsai.server.stores.collection import Collection
from oxibonsai.server.stores.database import Permits

A = "owner-a"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path / "files")
    yield store
    store.close()


def test_a_locked_database_is_a_clear_error_and_reads_go_on(
    opened: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = opened.responses.create(A, {"x": 1})["id"]
    opened.close()
    monkeypatch.setattr("oxibonsai.server.stores.database._BUSY_SECONDS", 0.2)
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path / "files")
    other = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="can't be used now: database is locked"):
        store.responses.create(A, {})
    assert store.responses.get(A, kept)["x"] == 1
    other.execute("ROLLBACK")
    other.close()
    store.responses.create(A, {})
    store.close()


def limited_write(tmp_path: Path, code: str, file_size: int) -> str:
    """Runs code in a process whose files can't grow past ``file_size`` bytes: a full disk."""
    program = f"""
    import io, resource, signal
    from pathlib import Path
    from oxibonsai.server.stores import Store, StoreError
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = Store("sqlite:///{tmp_path}/store.sqlite", Path("{tmp_path}/files"))
    resource.setrlimit(resource.RLIMIT_FSIZE, ({file_size}, {file_size}))
    {code}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_full_disk_refuses_objects_and_keeps_those_it_has(tmp_path: Path) -> None:
    limit = 600_000  # bytes; the log of creating the tables takes about 250,000
    code = """
    kept = 0
    try:
        while True:
            store.responses.create("owner-a", {"text": "x" * 5000})
            kept += 1
    except StoreError as e:
        print(kept, e)
    """
    out = limited_write(tmp_path, textwrap.indent(textwrap.dedent(code), "    ").strip(), limit)
    assert "can't be used now" in out
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path / "files")
    assert len(all_ids(store.responses)) == int(out.split()[0]) > 5
    store.responses.create(A, {})
    store.close()


def all_ids(collection: Collection) -> list[str]:
    ids: list[str] = []
    after = None
    while True:
        page = collection.list(A, limit=100, after=after)
        ids += [item["id"] for item in page.data]
        if not page.has_more:
            return ids
        after = ids[-1]


def test_a_full_disk_refuses_a_file_and_leaves_no_part_of_it(tmp_path: Path) -> None:
    code = """
    try:
        store.files.upload("owner-a", {}, io.BytesIO(b"x" * 3_000_000))
    except StoreError as e:
        print(e)
    """
    out = limited_write(tmp_path, textwrap.indent(textwrap.dedent(code), "    ").strip(), 1_000_000)
    assert "cannot use" in out
    assert "File too large" in out
    assert [p for p in (tmp_path / "files").rglob("*") if p.is_file()] == []


def as_anyone(work: Callable[[], None]) -> None:
    """Runs it in a thread without root's right to write where the mode forbids it."""
    failed: list[BaseException] = []

    def run() -> None:
        header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0
        try:
            work()
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir(0o500)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("name", ["store.sqlite", "new/store.sqlite"])
def test_a_read_only_folder_is_refused(read_only: Path, tmp_path: Path, name: str) -> None:
    def work() -> None:
        with pytest.raises(StoreError, match=r"Permission denied|unable to open"):
            Store(f"sqlite:///{read_only / name}", tmp_path / "files")

    as_anyone(work)


def test_a_read_only_folder_of_files_refuses_files_and_gives_those_it_has(
    opened: Store, tmp_path: Path
) -> None:
    kept = opened.files.upload(A, {}, io.BytesIO(b"content"))["id"]
    folders = [p for p in (tmp_path / "files").rglob("*") if p.is_dir()]
    for folder in folders:
        folder.chmod(0o500)

    def work() -> None:
        with pytest.raises(StoreError, match="Permission denied"):
            opened.files.upload(A, {}, io.BytesIO(b"more"))
        with opened.files.open(A, kept) as file:
            assert file.read() == b"content"

    as_anyone(work)
    for folder in folders:
        folder.chmod(0o700)
    assert [f["id"] for f in opened.files.list(A).data] == [kept]


def test_a_folder_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot make the folder"):
        Store(f"sqlite:///{tmp_path / 'file' / 'store.sqlite'}", tmp_path / "files")
    with pytest.raises(StoreError, match="cannot use"):
        Store(f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path / "file" / "files")


def test_a_read_only_database_still_answers_reads(opened: Store, tmp_path: Path) -> None:
    kept = opened.responses.create(A, {"x": 1})["id"]
    with opened._database.write() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="readonly database"):
        opened.responses.create(A, {})
    assert opened.responses.get(A, kept)["x"] == 1


def fill(path: Path) -> list[str]:
    """Makes a store with fifty responses; their ids."""
    store = Store(f"sqlite:///{path}", path.parent / "files")
    ids = [store.responses.create(A, {"text": "x" * 3000})["id"] for _ in range(50)]
    store.close()
    return ids


@pytest.mark.parametrize("page", [1, 2, 5])
def test_a_damaged_database_is_a_clear_error(tmp_path: Path, page: int) -> None:
    path = tmp_path / "store.sqlite"
    ids = fill(path)
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 4096)
    try:
        damaged = Store(f"sqlite:///{path}", tmp_path / "files")
    except FormatError as e:
        assert "damaged" in str(e)  # noqa: PT017
        return
    for object_id in ids:
        try:
            assert damaged.responses.get(A, object_id)["text"] == "x" * 3000
        except (StoreError, LookupError):
            continue
    damaged.close()


@pytest.mark.parametrize("kept", [0, 100, 5000, 40_000])
def test_a_database_that_was_cut_is_a_clear_error(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "store.sqlite"
    ids = fill(path)
    os.truncate(path, kept)
    try:
        cut = Store(f"sqlite:///{path}", tmp_path / "files")
    except FormatError as e:
        assert "damaged" in str(e)  # noqa: PT017
        return
    for object_id in ids:
        with pytest.raises((StoreError, LookupError)):
            cut.responses.get(A, object_id)
    cut.close()


@pytest.mark.parametrize("damage", ["gone", "cut", "noise"])
def test_a_damaged_log_of_the_database_loses_no_older_object(tmp_path: Path, damage: str) -> None:
    """What a process that was killed has left beside the database."""
    limited_write(tmp_path, 'store.responses.create("owner-a", {"id": "old"})', 10**9)
    code = 'store.responses.create("owner-a", {"id": "new"}); import os; os._exit(0)'
    limited_write(tmp_path, code, 10**9)
    log = tmp_path / "store.sqlite-wal"
    if damage == "gone":
        log.unlink()
    elif damage == "cut":
        os.truncate(log, log.stat().st_size - 100)
    else:
        log.write_bytes(os.urandom(log.stat().st_size))
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path / "files")
    assert store.responses.get(A, "old") == {"id": "old"}
    assert set(all_ids(store.responses)) <= {"old", "new"}
    store.responses.create(A, {})
    store.close()


YEAR = 366 * 24 * 3600.0


@pytest.mark.parametrize("jump", [-20 * YEAR, -3600.0, 3600.0, 20 * YEAR])
def test_a_clock_that_jumps_changes_no_order_and_takes_no_object(
    opened: Store, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    real = time.time
    before = [opened.responses.create(A, {"n": n})["id"] for n in range(3)]
    file = opened.files.upload(A, {"expires_at": real() + 30 * YEAR}, io.BytesIO(b"x"))["id"]
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    after = [opened.responses.create(A, {"n": n})["id"] for n in range(3)]
    opened.files.sweep()
    opened.forget_old(30 * YEAR)
    monkeypatch.undo()
    opened.files.sweep()
    opened.forget_old(30 * YEAR)
    assert [r["id"] for r in opened.responses.list(A, order="asc").data] == before + after
    with opened.files.open(A, file) as content:
        assert content.read() == b"x"


def test_an_upload_outlives_a_sweep_and_a_jump_of_the_clock(
    opened: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Jumping(io.BytesIO):
        """The clock jumps, and a sweep runs, while the bytes come."""

        def read(self, size: int | None = -1) -> bytes:
            piece = super().read(size)
            if not piece:
                real = time.time
                monkeypatch.setattr(time, "time", lambda: real() + YEAR)
                opened.files.sweep()
            return piece

    kept = opened.files.upload(A, {}, Jumping(b"content"))["id"]
    with opened.files.open(A, kept) as content:
        assert content.read() == b"content"


def assert_unavailable_but_reading(client: FlaskClient, kept: str) -> None:
    answer = client.post("/v1/threads", json={"metadata": {"a": "x" * 500}})
    assert answer.status_code == 503, answer.text
    assert_error_object(answer)
    assert answer.headers["Retry-After"] == "5"
    assert client.get(f"/v1/threads/{kept}").status_code == 200
    assert client.get("/health").status_code == 200


def test_a_locked_database_is_503_and_reads_and_health_go_on(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oxibonsai.server.stores.database._BUSY_SECONDS", 0.2)
    client = make_app().test_client()
    kept = client.post("/v1/threads", json={}).get_json()["id"]
    (path,) = tmp_path.rglob("*.sqlite")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert_unavailable_but_reading(client, kept)
    other.execute("ROLLBACK")
    other.close()
    assert client.post("/v1/threads", json={}).status_code == 200


def test_a_full_disk_is_503_and_reads_and_health_go_on(make_app: MakeApp) -> None:
    app = make_app()
    client = app.test_client()
    kept = client.post("/v1/threads", json={}).get_json()["id"]
    # SQLite's own "database or disk is full".
    with app.store._database.read() as connection:
        (pages,) = connection.exec_driver_sql("PRAGMA page_count").one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    body = {"metadata": {"a": "x" * 500}}
    while client.post("/v1/threads", json=body).status_code == 200:
        pass
    assert_unavailable_but_reading(client, kept)


def wait_until_ready(client: FlaskClient) -> None:
    deadline = time.monotonic() + 60
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def assert_not_ready(client: FlaskClient) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.get_json()["error"]["code"] == "store"
    assert answer.headers["Retry-After"] == "5"
    assert client.get("/health").status_code == 200


def test_a_server_with_a_full_disk_is_not_ready_until_there_is_room(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oxibonsai.server.stores.store._PROBE_SECONDS", 0.05)
    app = make_app()
    client = app.test_client()

    most_pages = 100_000

    @event.listens_for(app.store._database._engine, "checkout")
    def limit(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {most_pages}")

    assert client.get("/readyz").status_code == 200
    most_pages = 1
    body = {"metadata": {"a": "x" * 500}}
    while client.post("/v1/threads", json=body).status_code == 200:
        pass
    assert_not_ready(client)
    most_pages = 100_000
    wait_until_ready(client)
    assert client.post("/v1/threads", json=body).status_code == 200
    assert app.store.responses.list("-").data == []


def test_a_server_that_can_keep_no_file_is_not_ready(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oxibonsai.server.stores.store._PROBE_SECONDS", 0.05)
    client = make_app().test_client()

    def upload() -> int:
        form = {"purpose": "assistants", "file": (io.BytesIO(b"x"), "a.txt")}
        return client.post("/v1/files", data=form).status_code

    incoming = tmp_path / "files" / "incoming"
    incoming.rmdir()
    assert upload() == 503
    assert_not_ready(client)
    incoming.mkdir()
    wait_until_ready(client)
    assert upload() == 200


def test_what_a_client_did_wrong_leaves_the_server_ready(make_app: MakeApp) -> None:
    client = make_app(max_file_mb=0.001).test_client()
    form = {"purpose": "assistants", "file": (io.BytesIO(b"x" * 5000), "a.txt")}
    assert client.post("/v1/files", data=form).status_code == 413
    assert client.get("/v1/threads/unknown").status_code == 404
    assert client.get("/readyz").status_code == 200


def test_a_content_that_is_gone_is_a_clear_error(opened: Store, tmp_path: Path) -> None:
    kept = opened.files.upload(A, {}, io.BytesIO(b"content"))["id"]
    for path in (tmp_path / "files").glob("??/*"):
        path.unlink()
    with pytest.raises(StoreError, match="No such file"):
        opened.files.open(A, kept)
    opened.files.delete(A, kept)


def test_clients_do_not_see_where_the_store_is(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app()

    @app.get("/fault")
    def fault() -> str:
        raise StoreError(f"cannot use {tmp_path}")

    answer = app.test_client().get("/fault")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    assert str(tmp_path) not in answer.text


@pytest.mark.slow
def test_health_answers_while_many_wait_for_a_locked_database(tmp_path: Path) -> None:
    with running_server(tmp_path, "--http-threads=4") as server:
        (path,) = tmp_path.rglob("*.sqlite")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        kind = {"Content-Type": "application/json"}
        statuses: list[int] = []

        def write() -> None:
            statuses.append(server.ask("/v1/threads", "POST", b"{}", **kind)[0])

        writers = [threading.Thread(target=write) for _ in range(40)]
        for writer in writers:
            writer.start()
        for _ in range(3):
            server.check_health()
        other.execute("ROLLBACK")
        other.close()
        for writer in writers:
            writer.join()
        assert set(statuses) <= {200, 503}
        assert server.ask("/v1/threads", "POST", b"{}", **kind)[0] == 200


def test_a_write_waits_for_quick_ones_and_not_behind_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oxibonsai.server.stores.database.PATIENCE_SECONDS", 1)
    permits = Permits(1, "s")
    done = []

    def quick() -> None:
        with permits.one():
            time.sleep(0.05)
            done.append(1)

    threads = [threading.Thread(target=quick) for _ in range(30)]  # longer than one's patience
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 30
    with permits.one():
        for _ in range(2):
            with pytest.raises(StoreError, match=r"another write has waited for more than 1 s"):
                permits.one().__enter__()
    quick()
