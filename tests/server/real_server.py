"""A real server process with a real model: what a user gets from ``python -m oxibonsai.serve``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fake_backend import free_port
from running_server import PATIENCE, RunningServer


@contextlib.contextmanager
def real_server(
    model: Path, folder: Path, *flags: str, ends_by: int = signal.SIGTERM
) -> Iterator[RunningServer]:
    """Serves a model until the block ends, and checks that the server drains and ends well.

    Args:
        model: A GGUF file.
        folder: Of the log and the server's state.
        flags: Of ``oxibonsai serve``.
        ends_by: SIGTERM or SIGINT.
    """
    port = free_port()
    log = folder / "server.log"
    line = ["--model", str(model), "--port", str(port), "--state-dir", str(folder / "state")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "oxibonsai.serve", *line, *flags],
            stdout=output,
            stderr=output,
            env=dict(os.environ),
        )
    server = RunningServer(process, port, log)
    try:
        server.wait_for("/readyz", 200)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(ends_by)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the server did not end:\n{log.read_text()}") from None
    assert code == (130 if ends_by == signal.SIGINT else 0), log.read_text()
