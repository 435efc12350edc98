"""How many threads to run."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.errors import RequestError


def default_threads() -> int:
    """``OXIBONSAI_THREADS``, else the cores this process may use: affinity, cut by a cgroup quota."""
    forced = os.environ.get("OXIBONSAI_THREADS")
    if forced:
        if not forced.isdecimal() or not 1 <= int(forced) <= 1024:
            raise RequestError(
                f"OXIBONSAI_THREADS is {forced!r}; it must be a number from 1 to 1024"
            )
        return int(forced)
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota(Path("/sys/fs/cgroup/cpu.max"))))


def _quota(file: Path) -> int:
    """Whole cores of a cgroup v2 quota; a large number where there is none."""
    try:
        quota, period = file.read_text().split()
        return max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        return 1 << 20
