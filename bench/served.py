"""Servers for measurements: ours and the one of llama-cpp-python, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALIAS = "measured"
_START_SECONDS = 180


@dataclass(frozen=True)
class Served:
    """One running server.

    Attributes:
        name: Whose it is.
        url: The API's base.
        pid: Of the process that was started.
        start_s: Seconds from the start of the process to the first healthy answer.
        body: Fields that make it write answers of full length.
    """

    name: str
    url: str
    pid: int
    start_s: float
    body: dict[str, Any] = field(default_factory=dict)


def oxibonsai_command(
    model: Path, port: int, *, streams: int, ctx_size: int, threads: int
) -> list[str]:
    """Our server with room for so many streams."""
    return [
        sys.executable, "-m", "oxibonsai.serve", "--model", str(model), "--alias", ALIAS,
        "--port", str(port), "--parallel", str(streams), "--ctx-size", str(ctx_size),
        "--threads", str(threads),
    ]  # fmt: skip


def llama_cpp_command(
    python: str, model: Path, port: int, *, ctx_size: int, threads: int
) -> list[str]:
    """The peer; it runs one request at a time, and by default ends it for the next one."""
    return [
        python, "-m", "llama_cpp.server", "--model", str(model), "--model_alias", ALIAS,
        "--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(ctx_size),
        "--n_threads", str(threads), "--n_threads_batch", str(threads),
        "--interrupt_requests", "false", "--verbose", "false",
    ]  # fmt: skip


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def serving(name: str, command: Sequence[str], port: int, body: dict[str, Any]) -> Iterator[Served]:
    """Runs a server until the block ends.

    Raises:
        RuntimeError: It ended, or gave no list of models in three minutes; with its output.
    """
    url = f"http://127.0.0.1:{port}/v1"
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryFile() as log:
        environment = {**os.environ, "OXIBONSAI_STATE_DIR": state}
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            while not _answers(url + "/models"):
                if process.poll() is not None or time.monotonic() - started > _START_SECONDS:
                    log.seek(0)
                    raise RuntimeError(f"{name} does not serve:\n{log.read().decode()[-2000:]}")
                time.sleep(0.02)
            yield Served(name, url, process.pid, time.monotonic() - started, body)
        finally:
            process.terminate()  # an orderly end, at which ours keeps its state
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
