"""What `oxibonsai serve` says on a terminal: a greeting and plain lines; elsewhere JSON."""

from __future__ import annotations

import json
import logging
import os
import pty
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from fake_backend import free_port
from running_server import PATIENCE, RunningServer

from oxibonsai.server.admin.logs import PlainFormatter, configure_logs, logs_to_terminal
from oxibonsai.server.settings import Settings


class OnTerminal:
    """`oxibonsai serve` with a terminal for stderr, and what it shows there."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        self.shown = ""
        ours, theirs = pty.openpty()
        line = ["serve", *arguments, "--port", str(self.port), "--state-dir", str(folder / "state")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oxibonsai", *line], stdin=subprocess.DEVNULL, stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,))
        self._reader.start()

    def _read(self, stream: int) -> None:
        try:
            while piece := os.read(stream, 4096):
                self.shown += piece.decode().replace("\r", "")
        except OSError:  # the command has ended
            pass
        os.close(stream)

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


def test_a_server_on_a_terminal_greets_and_logs_plain_lines(
    tmp_path: Path, tiny_path: Path
) -> None:
    server = OnTerminal(
        tmp_path, str(tiny_path), "-c", "100000", "-ngl", "99", "-np", "2", "-t", "1", "-a", "tiny"
    )
    asked = RunningServer(server.process, server.port, tmp_path / "none")  # type: ignore[arg-type]
    asked.wait_for("/readyz", 200)
    asked.ask("/v1/models")
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    address = f"http://127.0.0.1:{server.port}"
    for said in (
        "is ready; Ctrl-C ends it\n  model    tiny (qwen3)\n",
        "2 at a time, contexts of 512 tokens in f32\n  threads  1, device cpu\n",
        f"  page     {address}/\n  API      {address}/v1\n  key      none: ",
        "ctx_size is 100000, and this model takes 512 positions at most: it is 512\n",
        " GET /v1/models 200, ",
    ):
        assert said in server.shown
    assert server.shown.count("the model runs on the CPU: ") == 1
    assert "{" not in server.shown
    assert "gunicorn" not in server.shown


def test_a_missing_model_is_one_sentence(tmp_path: Path) -> None:
    server = OnTerminal(tmp_path, str(tmp_path / "none.gguf"))
    assert server.end() == 3
    (line,) = server.shown.splitlines()
    assert "error: " in line
    assert "none.gguf does not exist; name a GGUF file" in line


def test_elsewhere_the_log_is_json_and_a_missing_model_one_line_of_it(tmp_path: Path) -> None:
    line = ["serve", str(tmp_path / "none.gguf"), "--port", str(free_port())]
    done = subprocess.run(
        [sys.executable, "-m", "oxibonsai", *line, "--state-dir", str(tmp_path / "state")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert ["none.gguf" in line["message"] for line in lines if line["level"] == "error"] == [True]


@pytest.mark.parametrize(
    ("name", "level", "message", "extra", "line"),
    [
        ("oxibonsai.server", logging.INFO, "model loaded", {"id": "a"}, "model loaded, id a"),
        ("oxibonsai.server", logging.WARNING, "the disk is full", {}, "warning: the disk is full"),
        (
            "oxibonsai.access",
            logging.INFO,
            "request",
            {"method": "POST", "path": "/v1/chat", "status": 200, "seconds": 1.234, "client": "x"},
            "POST /v1/chat 200, 1.23 s",
        ),
    ],
)
def test_a_plain_line_is_the_time_and_what_happened(
    name: str, level: int, message: str, extra: dict[str, object], line: str
) -> None:
    record = logging.makeLogRecord({"name": name, "levelno": level, "msg": message, **extra})
    record.levelname = logging.getLevelName(level)
    time, _, rest = PlainFormatter().format(record).partition(" ")
    assert rest == line
    assert len(time.split(":")) == 3


def test_a_log_file_is_json_even_beside_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert logs_to_terminal(Settings(state_dir=tmp_path))
    file = tmp_path / "log"
    settings = Settings(state_dir=tmp_path, log_file=file)
    assert not logs_to_terminal(settings)
    shown = warnings.showwarning
    try:
        configure_logs(settings)
        warnings.showwarning(UserWarning("too large"), UserWarning, "file", 1)
    finally:
        warnings.showwarning = shown
        configure_logs(Settings(state_dir=tmp_path))
    (line,) = file.read_text().splitlines()
    assert (json.loads(line)["level"], json.loads(line)["message"]) == ("warning", "too large")
