"""A step of the engine that fails ends the worker, and the next one serves: also what that has lost."""

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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fake_backend import MakeApp, free_port
from running_server import PATIENCE, RunningServer

from oxibonsai.server.http.handover import Handover

BODY = json.dumps({"prompt": "ab", "max_tokens": 8, "temperature": 0}).encode()
JSON = {"Content-Type": "application/json"}


def test_a_failed_server_is_alive_but_not_healthy(make_app: MakeApp) -> None:
    app = make_app()
    client = app.test_client()
    assert client.get("/health").status_code == 200
    app.lifecycle.fail()
    for path in ("/health", "/readyz", "/v1/models"):
        answer = client.get(path)
        assert (answer.status_code, answer.get_json()["error"]["code"]) == (503, "failed")
        assert int(answer.headers["Retry-After"]) >= 1
    assert client.get("/livez").status_code == 200


class Breaking:
    """A server whose engine fails as a test orders."""

    def __init__(self, server: RunningServer, order: Path) -> None:
        self.server, self._order = server, order
        self._children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")

    def breaks(self, how: str, call: Callable[[], Any]) -> Any:
        """What a call returns in which the engine fails; afterwards another worker is ready."""
        self.server.wait_for("/readyz", 200)
        first = self._children.read_text()
        self._order.write_text(how)
        with ThreadPoolExecutor(1) as threads:
            answer = threads.submit(call)
            deadline = time.monotonic() + PATIENCE
            # No answer says that all is well before the next worker does.
            while self._children.read_text() == first:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    status = self.server.ask("/health")[0]
                    healthy = self._order.exists() or status == 503
                    assert healthy or answer.running() or self._children.read_text() != first
                assert time.monotonic() < deadline, self.server.log.read_text()
            found = answer.result(PATIENCE)
        self.server.wait_for("/readyz", 200)
        return found

    def repeated(self) -> float:
        """How many requests the present worker has done again."""
        lines = self.server.ask("/metrics")[2].decode().splitlines()
        (line,) = (x for x in lines if x.startswith("oxibonsai_requests_repeated_total "))
        return float(line.split()[1])


@pytest.fixture
def breaking(tiny_path: Path, tmp_path: Path) -> Iterator[Breaking]:
    order, log, port = tmp_path / "break", tmp_path / "log", free_port()
    main = str(Path(__file__).with_name("breaking_server.py"))
    flags = ["-m", str(tiny_path), "--port", str(port), "--threads", "1", "--parity", "off"]
    environment = {**os.environ, "BREAK": str(order), "OXIBONSAI_STATE_DIR": str(tmp_path / "s")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, main, *flags, "--metrics"],
            stdout=output, stderr=output, env=environment,
        )  # fmt: skip
    server = RunningServer(process, port, log)
    try:
        server.wait_for("/readyz", 200)
        yield Breaking(server, order)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_a_request_that_a_failure_of_the_engine_lost_is_done_again(breaking: Breaking) -> None:
    def ask() -> Any:
        return breaking.server.ask("/v1/completions", "POST", BODY, **JSON)

    good = ask()
    assert good[0] == 200
    assert breaking.repeated() == 0
    status, _, again = breaking.breaks("once", ask)
    assert status == 200, again
    assert again["choices"] == good[2]["choices"]
    assert breaking.repeated() == 1
    assert ask()[2]["choices"] == good[2]["choices"]
    assert "as the test wishes" in breaking.server.log.read_text()


@pytest.mark.release
def test_what_is_done_again_fails_for_good_or_was_begun(breaking: Breaking) -> None:
    def ask(path: str, **body: Any) -> Any:
        sent = json.dumps({"max_tokens": 8, "temperature": 0, **body}).encode()
        return breaking.server.ask(path, "POST", sent, **JSON)

    # A stream of which nothing was sent.
    prompt = {"prompt": "ab", "stream": True}
    good = ask("/v1/completions", **prompt)
    status, _, again = breaking.breaks("once", lambda: ask("/v1/completions", **prompt))
    assert (status, text_of(again)) == (200, text_of(good[2]))
    # One that has begun, with the role of the message.
    chat = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    _, _, begun = breaking.breaks("once", lambda: ask("/v1/chat/completions", **chat))
    assert b'"role":"assistant"' in begun
    assert b'"code":"work_lost"' in begun
    assert breaking.repeated() == 0
    # What may have stored something is not done twice.
    status, _, _ = breaking.breaks("once", lambda: ask("/v1/responses", input="hi"))
    assert status == 500
    assert breaking.repeated() == 0
    # A request is done again once, and no more.
    status, _, failed = breaking.breaks("twice", lambda: ask("/v1/completions", prompt="ab"))
    assert (status, failed["error"]["code"]) == (500, "work_lost")


def text_of(stream: bytes) -> str:
    frames = [line[6:] for line in stream.decode().splitlines() if line.startswith("data: {")]
    return "".join(choice["text"] for f in frames for choice in json.loads(f)["choices"])


def test_the_connections_of_lost_requests_reach_the_next_worker() -> None:
    handover = Handover()
    pairs = [socket.socketpair() for _ in range(3)]
    for i, (mine, _) in enumerate(pairs):
        assert handover.send(mine, b"%d" % i * 100_000)
        mine.close()
    found = list(handover.receive())
    assert [request for _, request in found] == [b"%d" % i * 100_000 for i in range(3)]
    for i, (sock, _) in enumerate(found):
        sock.sendall(b"to %d" % i)
        sock.close()
    assert [other.recv(100) for _, other in pairs] == [b"to 0", b"to 1", b"to 2"]
    assert [other.recv(100) for _, other in pairs] == [b""] * 3
    for _, other in pairs:
        other.close()
    assert list(handover.receive()) == []
    handover.close()
