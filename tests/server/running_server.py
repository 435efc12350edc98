"""A real server process with a fake model, and raw sockets to talk to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_backend import free_port

_MAIN = Path(__file__).with_name("fake_server.py")


# Seconds after which something is taken to hang. What a test is about lasts far longer, or for ever,
# where it goes wrong: how fast the machine is decides nothing.
PATIENCE = 120


def wait_until(
    condition: Callable[[], object],
    problem: Callable[[], object] = lambda: "",
    seconds: float = PATIENCE,
) -> None:
    """Looks again and again; what never comes is a failure."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, problem()
        time.sleep(0.02)


@dataclass
class RunningServer:
    """One server; ``process`` is gunicorn's arbiter, or waitress."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def connect(self, data: bytes = b"", timeout: float = PATIENCE) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        if data:
            sock.sendall(data)
        return sock

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        *,
        patience: float = PATIENCE,
        **headers: str,
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers, JSON body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            fields = {k.lower(): v for k, v in answer.getheaders()}
            is_json = fields.get("content-type") == "application/json"
            return answer.status, fields, json.loads(data) if data and is_json else data or None
        finally:
            connection.close()

    def check_health(self) -> None:
        assert self.ask("/health")[0] == 200

    def wait_for(self, path: str, status: int, seconds: float = PATIENCE) -> None:
        def is_there() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.ask(path)[0] == status
            return False

        wait_until(is_there, lambda: f"{path} is not {status}\n{self.log.read_text()}", seconds)

    def worker_pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        (pid,) = children.split() or [self.process.pid]  # waitress has no other process
        return int(pid)

    def peak_memory(self) -> int:
        """The most memory that the worker has used so far, in MiB."""
        status = Path(f"/proc/{self.worker_pid()}/status").read_text()
        (line,) = (row for row in status.splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) // 1024

    def written_bytes(self) -> int:
        """The bytes that the worker has written so far, into files and to clients."""
        counts = Path(f"/proc/{self.worker_pid()}/io").read_text()
        (line,) = (row for row in counts.splitlines() if row.startswith("wchar:"))
        return int(line.split()[1])

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)


@contextlib.contextmanager
def running_server(
    folder: Path, *arguments: str, load_until: Path | None = None, wait: bool = True, fail: str = ""
) -> Iterator[RunningServer]:
    """Starts a server, with flags of ``oxibonsai serve``; it is gone at the end.

    Its model is loaded when the file ``load_until`` is there.
    """
    port = free_port()
    log = folder / "server.log"
    environment = {
        **os.environ,
        "OXIBONSAI_STATE_DIR": str(folder / "state"),
        "FAKE_LOAD_UNTIL": str(load_until or ""),
        "FAKE_FAILURE": fail,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(_MAIN), "--port", str(port), *arguments],
            stdout=output,
            stderr=output,
            env=environment,
        )
    server = RunningServer(process, port, log)
    try:
        if wait:
            server.wait_for("/readyz", 200)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"the server did not end:\n{log.read_text()}") from None


def read_all(sock: socket.socket, seconds: float = PATIENCE) -> bytes:
    """What comes until the server closes; what came, if that takes too long."""
    sock.settimeout(seconds)
    data = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while piece := sock.recv(65536):
            data += piece
    return data


def status_of(answer: bytes) -> int:
    """0 for a connection that was closed without a word."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0
