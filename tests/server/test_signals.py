"""How the server starts and ends: loading, draining, signals, exit codes."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from running_server import (
    PATIENCE,
    RunningServer,
    read_all,
    running_server,
    status_of,
    wait_until,
)

# What runs lasts longer than anybody waits: that a server ends at all shows that it was cut off.
ENDLESS = 100_000

EITHER = pytest.mark.parametrize("http", ["gunicorn", "waitress"])
EITHER_SLOWLY = pytest.mark.parametrize(
    "http", ["gunicorn", pytest.param("waitress", marks=pytest.mark.slow)]
)


def stream(
    server: RunningServer, count: int, gap: float, until: Path | None = None
) -> socket.socket:
    """A stream that has begun; it ends when the file ``until`` is there."""
    path = f"/stream?count={count}&gap={gap}&until={until or ''}"
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sock = server.connect(request.encode(), timeout=PATIENCE)
    assert status_of(sock.recv(64)) == 200
    return sock


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_while_the_model_loads_the_server_is_alive_but_not_ready(tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    with running_server(tmp_path, load_until=loaded, wait=False) as server:
        server.wait_for("/livez", 200)
        for path in ("/health", "/readyz", "/v1/models"):
            status, headers, body = server.ask(path)
            assert (status, body["error"]["message"]) == (503, "Loading model")
            assert int(headers["retry-after"]) >= 1
        loaded.touch()
        server.wait_for("/readyz", 200)
        assert server.ask("/v1/models")[2]["data"][0]["id"] == "fake"


@EITHER
def test_sigterm_lets_streams_end_and_refuses_new_work(tmp_path: Path, http: str) -> None:
    with running_server(tmp_path, f"--http-server={http}") as server:
        go_on = tmp_path / "go_on"
        sock = stream(server, 1, 0, until=go_on)
        server.signal(signal.SIGTERM)
        server.wait_for("/readyz", 503)
        assert server.ask("/livez")[0] == 200
        assert server.ask("/health")[0] == 200
        status, headers, body = server.ask("/v1/models")
        assert (status, body["error"]["code"]) == (503, "draining")
        assert "retry-after" in headers
        go_on.touch()
        answer = read_all(sock)
        sock.close()
        assert b'data: "the end"' in answer
        assert b"error" not in answer
        assert server.wait() == 0


def test_an_idle_server_ends_at_once(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.connect() as idle:
        worker = server.worker_pid()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert is_gone(worker)
        assert read_all(idle) == b""


@EITHER_SLOWLY
def test_streams_that_take_too_long_end_with_an_error_event(tmp_path: Path, http: str) -> None:
    with running_server(tmp_path, f"--http-server={http}", "--drain-timeout=3") as server:
        sock = stream(server, ENDLESS, 0.1)
        silent = stream(server, ENDLESS, 60)
        server.signal(signal.SIGTERM)
        for one in (sock, silent):
            answer = read_all(one)
            assert b"event: error\n" in answer
            assert b'"code":"stopped"' in answer
            one.close()
        assert server.wait() == 0


def test_work_that_never_ends_is_cut_off_in_time(tmp_path: Path) -> None:
    with running_server(tmp_path, "--drain-timeout=2") as server:
        with server.connect(
            b"GET /slow?seconds=%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % ENDLESS
        ) as sock:
            wait_until(lambda: server.ask("/calls")[2]["begun"] != [])
            worker = server.worker_pid()
            server.signal(signal.SIGTERM)
            assert status_of(read_all(sock)) == 0
        assert server.wait() == 0
        assert is_gone(worker)


@EITHER_SLOWLY
def test_the_second_sigterm_ends_it_at_once(tmp_path: Path, http: str) -> None:
    with running_server(tmp_path, f"--http-server={http}") as server:
        sock = stream(server, ENDLESS, 0.1)
        worker = server.worker_pid()
        server.signal(signal.SIGTERM)
        server.wait_for("/readyz", 503)
        server.signal(signal.SIGTERM)
        assert server.wait() == 143
        assert is_gone(worker)
        sock.close()


@EITHER
def test_ctrl_c_ends_it_at_once(tmp_path: Path, http: str) -> None:
    with running_server(tmp_path, f"--http-server={http}") as server:
        sock = stream(server, ENDLESS, 0.1)
        worker = server.worker_pid()
        # A terminal sends it to both.
        os.kill(worker, signal.SIGINT)
        server.signal(signal.SIGINT)
        assert server.wait() == 130
        assert is_gone(worker)
        sock.close()


@EITHER
def test_ctrl_c_keeps_state_where_there_is_a_folder_for_it(tmp_path: Path, http: str) -> None:
    flags = f"--http-server={http}", f"--slot-save-path={tmp_path}"
    with running_server(tmp_path, *flags) as server:
        sock = stream(server, ENDLESS, 0.1)
        worker = server.worker_pid()
        server.signal(signal.SIGINT)
        if worker != server.process.pid:
            os.kill(worker, signal.SIGINT)
        assert server.wait() == 130
        assert is_gone(worker)
        assert (tmp_path / "state" / "closing").exists()
        sock.close()


@EITHER_SLOWLY
def test_a_second_ctrl_c_does_not_wait_for_state(tmp_path: Path, http: str) -> None:
    flags = f"--http-server={http}", f"--slot-save-path={tmp_path}"
    with running_server(tmp_path, *flags) as server:
        (tmp_path / "state" / "keep-closing").touch()
        worker = server.worker_pid()
        server.signal(signal.SIGINT)
        wait_until((tmp_path / "state" / "closing").exists)
        server.signal(signal.SIGINT)
        assert server.wait() == 130
        assert is_gone(worker)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_can_be_ended_while_the_model_loads(tmp_path: Path, number: int, code: int) -> None:
    with running_server(tmp_path, load_until=tmp_path / "never", wait=False) as server:
        server.wait_for("/livez", 200)
        server.signal(number)
        assert server.wait() == code


def test_sigterm_under_load_loses_no_answer(tmp_path: Path) -> None:
    """Each request is answered whole, refused with a reason, or never accepted."""
    outcomes: list[str] = []

    def client(server: RunningServer) -> None:
        while server.process.poll() is None:
            try:
                status, _, body = server.ask("/slow?seconds=0.05")
                outcomes.append("done" if (status, body) == (200, "done") else str(status))
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException, ValueError) as e:
                outcomes.append(f"lost: {e!r}")
                return

    with running_server(tmp_path) as server:
        clients = [threading.Thread(target=client, args=(server,)) for _ in range(8)]
        for one in clients:
            one.start()
        wait_until(lambda: len(outcomes) > 10)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        for one in clients:
            one.join()
    # A connection that the kernel took after the last accept is reset: nothing was read of it.
    lost = [o for o in outcomes if o.startswith("lost") and "reset" not in o.lower()]
    assert lost == []
    assert set(outcomes) - {"done", "503"} <= {o for o in outcomes if o.startswith("lost")}


def test_sighup_reads_the_keys_again_and_restarts_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    with running_server(tmp_path, f"--api-key-file={keys}") as server:
        worker = server.worker_pid()
        sock = server.connect(
            b"GET /stream?count=10&gap=0.1 HTTP/1.1\r\nHost: localhost\r\n"
            b"X-Api-Key: first\r\nConnection: close\r\n\r\n"
        )
        assert status_of(sock.recv(64)) == 200
        assert server.ask("/v1/models", Authorization="Bearer first")[0] == 200
        keys.write_text("second\n")
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.ask("/v1/models", Authorization="Bearer second")[0] == 200)
        assert server.ask("/v1/models", Authorization="Bearer first")[0] == 401
        assert b'"i":9' in read_all(sock)
        sock.close()
        assert server.worker_pid() == worker


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        worker = server.worker_pid()
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: is_gone(worker))
        assert server.process.poll() is None
        server.wait_for("/readyz", 200)
        assert server.worker_pid() != worker


def test_a_worker_does_not_outlive_its_arbiter(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        worker = server.worker_pid()
        server.signal(signal.SIGKILL)
        server.wait()
        wait_until(lambda: is_gone(worker))


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("FormatError", 3),
        ("SourceError", 3),
        ("UnsupportedError", 3),
        ("RequestError", 2),
        ("CapacityError", 1),
        ("kill", 1),
    ],
)
def test_a_model_that_can_not_be_used_ends_the_server(
    tmp_path: Path, failure: str, code: int
) -> None:
    with running_server(tmp_path, fail=failure, wait=False) as server:
        assert server.wait() == code
        if failure != "kill":
            assert "the model can't be used" in server.log.read_text()


def test_a_store_that_can_not_be_used_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"no database" * 100)
    with running_server(tmp_path, f"--store=sqlite:///{tmp_path}/store", wait=False) as server:
        assert server.wait() == 3
        assert "is damaged" in server.log.read_text()


def test_a_taken_port_ends_the_server(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        other = tmp_path / "other"
        other.mkdir()
        with running_server(other, f"--port={server.port}", wait=False) as second:
            assert second.wait() == 1
            assert "in use" in second.log.read_text()
        assert server.ask("/readyz")[0] == 200


def test_signals_that_would_change_the_number_of_workers_do_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        worker = server.worker_pid()
        for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2):
            server.signal(number)
        time.sleep(0.5)
        assert server.worker_pid() == worker
        assert server.ask("/readyz")[0] == 200
