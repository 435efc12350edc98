"""Two servers never touch each other's work: one at a time uses a store."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from fake_backend import free_port
from running_server import RunningServer, running_server
from sqlalchemy import create_engine, text

from oxibonsai.errors import CapacityError
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.settings import Settings
from oxibonsai.server.state_lock import locked_state
from oxibonsai.server.stores import Store, StoreError
from oxibonsai.server.stores import database_lock as database_lock_module
from oxibonsai.server.stores.database_lock import DatabaseLock

WORK = {"id": "resp_1", "response": {"status": "in_progress", "background": True}, "input": []}


def settings(**values: object) -> Settings:
    return load_settings(values, {})


def begin_work(state: Path) -> None:
    """What a server keeps of a response that it is working on."""
    store = Store(f"sqlite:///{state / 'store.sqlite'}", state / "files")
    store.responses.create("owner", WORK)
    store.close()


def status_of_work(state: Path) -> str:
    store = Store(f"sqlite:///{state / 'store.sqlite'}", state / "files")
    status: str = store.responses.get("owner", "resp_1")["response"]["status"]
    store.close()
    return status


def second(folder: Path, *arguments: str) -> tuple[int, str]:
    """Starts a server beside a running one until it ends: its exit code and log."""
    (folder / "second").mkdir(exist_ok=True)
    state = ("--state-dir", str(folder / "state"))
    with running_server(folder / "second", *state, *arguments, wait=False) as server:
        return server.wait(), server.log.read_text()


def refusal(path: Path, server: RunningServer) -> str:
    return (
        f"{path} is in use by the server with process id {server.process.pid} on port {server.port}"
    )


def test_a_second_server_on_a_state_folder_is_refused_and_fails_no_work(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running_server(tmp_path) as first:
        begin_work(state)
        code, log = second(tmp_path)
        assert code == 1
        assert refusal(state / "files", first) in log
        assert "--state-dir" in log
        assert status_of_work(state) == "in_progress"
        assert first.ask("/readyz")[0] == 200


def test_a_second_server_on_a_database_is_refused(tmp_path: Path) -> None:
    database = tmp_path / "state" / "store.sqlite"
    with running_server(tmp_path) as first:
        own = ("--state-dir", str(tmp_path / "other"), "--store", f"sqlite:///{database}")
        code, log = second(tmp_path, *own)
        assert code == 1
        assert refusal(database, first) in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_server_may_use_the_folder_and_ends_what_the_last_one_left(
    tmp_path: Path, number: signal.Signals
) -> None:
    with running_server(tmp_path) as first:
        begin_work(tmp_path / "state")
        first.signal(number)
        first.wait()
    with running_server(tmp_path):
        assert status_of_work(tmp_path / "state") == "failed"


def test_a_worker_that_is_replaced_goes_on_with_the_store(tmp_path: Path) -> None:
    with running_server(tmp_path) as first:
        worker = first.worker_pid()
        os.kill(worker, signal.SIGKILL)
        while first.process.poll() is None and _worker(first) in (worker, None):
            time.sleep(0.02)
        first.wait_for("/readyz", 200)
        assert second(tmp_path)[0] == 1


def _worker(server: RunningServer) -> int | None:
    try:
        return server.worker_pid()
    except ValueError:
        return None


def test_servers_of_one_user_on_different_ports_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = settings(), settings(port=8081)
    assert one.state_dir == tmp_path / "oxibonsai"
    assert other.state_dir == tmp_path / "oxibonsai" / "port-8081"
    assert settings(port=8081, state_dir="/srv/state").state_dir == Path("/srv/state")
    with locked_state(one), locked_state(other):
        pass
    with (
        locked_state(one),
        pytest.raises(CapacityError, match=f"process id {os.getpid()} on port 8080"),
        locked_state(settings()),
    ):
        pass


@pytest.mark.parametrize(
    ("store", "file"),
    [
        (None, "/srv/state/store.sqlite"),
        ("sqlite:////data/a.sqlite", "/data/a.sqlite"),
        ("sqlite+pysqlite:////data/a.sqlite?timeout=1", "/data/a.sqlite"),
        ("sqlite:///:memory:", None),
        ("postgresql+psycopg://u@h/name", None),
    ],
)
def test_the_file_of_a_database_is_known(store: str | None, file: str | None) -> None:
    found = settings(state_dir="/srv/state", **({"store": store} if store else {})).store_file
    assert found == (file and Path(file))


def test_a_folder_that_can_not_be_locked_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    wrong = settings(state_dir=tmp_path / "file" / "state")
    with pytest.raises(CapacityError, match=r"cannot lock .*files: "), locked_state(wrong):
        pass


@pytest.mark.slow
def test_a_second_server_on_a_postgresql_database_is_refused(
    postgresql: str, tmp_path: Path
) -> None:
    with running_server(tmp_path, "--store", postgresql) as first:
        own = ("--state-dir", str(tmp_path / "other"), "--store", postgresql)
        code, log = second(tmp_path, *own)
        assert code == 1
        assert f"is in use by oxibonsai on port {first.port}, process {first.worker_pid()}" in log
    with running_server(tmp_path, "--store", postgresql):
        pass


class Sessions:
    """Looks at a database's sessions from one of its own."""

    def __init__(self, url: str, port: int) -> None:
        self._connection = create_engine(url, isolation_level="AUTOCOMMIT").connect()
        self._name = f"oxibonsai on port {port},%"

    def of_lock(self) -> list[int]:
        find = text("SELECT pid FROM pg_stat_activity WHERE application_name LIKE :name")
        return list(self._connection.execute(find, {"name": self._name}).scalars())

    def cut(self) -> None:
        for pid in self.of_lock():
            self._connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    def wait_for_lock(self) -> None:
        """Takes the lock as soon as it is free."""
        key = database_lock_module.KEY
        self._connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": key})

    def close(self) -> None:
        self._connection.close()
        self._connection.engine.dispose()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_lock_module, "_EVERY_SECONDS", 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_lock_whose_connection_broke_is_taken_again(postgresql: str) -> None:
    port, lost = free_port(), threading.Event()
    lock, sessions = DatabaseLock(postgresql, port, lost.set), Sessions(postgresql, port)
    before = sessions.of_lock()
    sessions.cut()
    while sessions.of_lock() in ([], before):
        time.sleep(0.02)
    with pytest.raises(StoreError, match=f"in use by oxibonsai on port {port},"):
        DatabaseLock(postgresql, port + 1, lost.set)
    assert not lost.is_set()
    lock.close()
    sessions.close()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_server_is_told_that_another_one_has_taken_its_lock(postgresql: str) -> None:
    port, lost = free_port(), threading.Event()
    lock = DatabaseLock(postgresql, port, lost.set)
    sessions, other = Sessions(postgresql, port), Sessions(postgresql, port)
    waiting = threading.Thread(target=other.wait_for_lock)
    waiting.start()
    queued = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    while sessions._connection.execute(queued).scalar_one() == 0:
        time.sleep(0.02)
    sessions.cut()
    assert lost.wait(20)
    waiting.join()
    for open_one in (lock, sessions, other):
        open_one.close()
