"""Python code in a process that can't write a byte to any file, by whatever call and whichever thread.

The limit is the kernel's (`RLIMIT_FSIZE`): a write fails as on a full disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_LIMIT = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""


def run_without_writes(code: str, *arguments: str | Path, home: Path, **environment: str) -> str:
    """Runs ``code``; returns what it prints.

    Args:
        code: Finds the arguments in ``sys.argv``.
        arguments: Texts or paths.
        home: The home folder, a new one; nothing may be there afterwards, not even an empty file.
        environment: Further variables.
    """
    home.mkdir()
    known = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    inherited = {k: v for k, v in os.environ.items() if k != "OXIBONSAI_CACHE"}
    done = subprocess.run(
        [sys.executable, "-B", "-c", _LIMIT + code, *map(str, arguments)],
        env={**inherited, **known, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [p for p in home.rglob("*") if p.is_file()] == []
    return done.stdout
