"""A folder for as long as a process needs it, which the next one removes where that was killed."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from oxibonsai.files import platform

_PREFIX = "folder-"


@contextmanager
def scratch_folder(place: Path) -> Iterator[Path]:
    """Yield a new folder inside ``place``, removed afterwards; those of killed processes go first.

    Its maker holds a lock on a file beside it, which ends with the process.

    Raises:
        OSError: ``place`` can't be made or written to.
    """
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(f"{_PREFIX}*.lock"):
        with suppress(OSError), left.open("r+b") as file:
            platform.lock(file.fileno(), wait=False)
            _remove(left, file)
    path, lock = _locked_name(place)
    with lock:
        folder = path.with_suffix("")
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            _remove(path, lock)


def _locked_name(place: Path) -> tuple[Path, IO[bytes]]:
    """Make a lock file of a new name."""
    while True:
        path = place / f"{_PREFIX}{secrets.token_hex(8)}.lock"
        file = path.open("xb")
        with suppress(BlockingIOError, FileNotFoundError):
            platform.lock(file.fileno(), wait=False)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return path, file
        file.close()  # somebody swept between the two


def _remove(path: Path, lock: IO[bytes]) -> None:
    folder = path.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        return  # something in it can't be removed: the next process tries again
    if not platform.MOVES_OPEN_FILES:
        lock.close()
    with suppress(OSError):  # Windows: another process looks at it, and removes it
        path.unlink()
