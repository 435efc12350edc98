"""A real server process on a real model."""

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
def served(model: Path, folder: Path, *flags: str) -> Iterator[RunningServer]:
    """Starts it with flags of ``oxibonsai serve``; it is gone at the end."""
    port, log = free_port(), folder / "log"
    environment = {**os.environ, "OXIBONSAI_STATE_DIR": str(folder / "state")}
    line = [sys.executable, "-m", "oxibonsai.serve", "-m", str(model), "--port", str(port), *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(line, stdout=output, stderr=output, env=environment)
    server = RunningServer(process, port, log)
    try:
        server.wait_for("/readyz", 200)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
