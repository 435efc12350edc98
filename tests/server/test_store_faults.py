"""A disk that is full, a database that is locked, read-only, damaged: a clear error, and no loss."""

from __future__ import annotations

import io
import os
import resource
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import MakeApp

from oxibonsai.errors import FormatError
from oxibonsai.server.stores import Store, StoreError
from oxibonsai.server.stores.collection import Collection

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
    limit = 400_000
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match=r"Permission denied|unable to open"):
        Store(f"sqlite:///{tmp_path / 'new' / 'store.sqlite'}", tmp_path / "files")
    tmp_path.chmod(0o700)


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


@pytest.mark.parametrize("page", [1, 2, 5])
def test_a_damaged_database_is_a_clear_error(tmp_path: Path, page: int) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(f"sqlite:///{path}", tmp_path / "files")
    ids = [store.responses.create(A, {"text": "x" * 3000})["id"] for _ in range(50)]
    store.close()
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
