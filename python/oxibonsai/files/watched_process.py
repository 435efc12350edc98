"""Limits of a child process, kept by its parent where the system lets no process limit itself."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from oxibonsai.files import platform

_LOOK_SECONDS = 0.02


@contextmanager
def kept_within(
    process: subprocess.Popen[str] | subprocess.Popen[bytes], seconds: float, memory: int
) -> Iterator[None]:
    """Kill a child that takes more than its limits while the block waits for it.

    A child limits itself, exactly, where the system can do it; nothing is done here then. Else it is
    looked at again and again, and takes up to what it can between two looks beyond its limits.

    Args:
        process: The child.
        seconds: Of processor time.
        memory: Bytes.
    """
    if platform.HAS_PROCESS_LIMITS:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS) and not _exceeds(process.pid, seconds, memory):
            pass
        if not ended.is_set():
            process.kill()

    thread = threading.Thread(target=watch, name="oxibonsai-limits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _exceeds(pid: int, seconds: float, memory: int) -> bool:
    try:
        child = psutil.Process(pid)
        times, held = child.cpu_times(), child.memory_info()
    except psutil.NoSuchProcess:
        return False
    taken = max(held.rss, getattr(held, "private", 0))  # Windows: what is not in memory, too
    return bool(times.user + times.system > seconds or taken > memory)
