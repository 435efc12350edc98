"""A step of the engine that fails ends the worker, and the next one serves."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fake_backend import MakeApp, free_port
from running_server import PATIENCE, RunningServer

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


def test_service_returns_after_a_failure_of_the_engine(tiny_path: Path, tmp_path: Path) -> None:
    order, log, port = tmp_path / "break", tmp_path / "log", free_port()
    main = str(Path(__file__).with_name("breaking_server.py"))
    flags = ["-m", str(tiny_path), "--port", str(port), "--threads", "1", "--parity", "off"]
    environment = {**os.environ, "BREAK": str(order), "OXIBONSAI_STATE_DIR": str(tmp_path / "s")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, main, *flags], stdout=output, stderr=output, env=environment
        )
    server = RunningServer(process, port, log)
    try:
        server.wait_for("/readyz", 200)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        first = children.read_text()
        good = server.ask("/v1/completions", "POST", BODY, **JSON)
        assert good[0] == 200
        order.touch()
        status, _, failed = server.ask("/v1/completions", "POST", BODY, **JSON)
        assert status in (500, 503), failed
        assert "error" in failed
        deadline = time.monotonic() + PATIENCE
        # No answer says that all is well before the next worker does.
        while children.read_text() == first:
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert server.ask("/health")[0] == 503 or children.read_text() != first
            assert time.monotonic() < deadline, log.read_text()
        server.wait_for("/readyz", 200)
        again = server.ask("/v1/completions", "POST", BODY, **JSON)
        assert again[2]["choices"] == good[2]["choices"]
        assert "as the test wishes" in log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
