"""Ensures that only one server uses a store on disk, with lock files beside it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil

from oxibonsai.errors import CapacityError
from oxibonsai.files.platform import lock
from oxibonsai.server.settings import Settings

# The worker of a killed server ends shortly after it, which releases its lock.
_ORPHAN_SECONDS = 5.0


@contextlib.contextmanager
def locked_state(settings: Settings) -> Iterator[None]:
    """Lock the database file and the folder of uploaded files against other servers.

    Processes forked within the block inherit the locks, which are held until the last of them has
    ended, however it ends. A PostgreSQL database has a lock of its own:
    :class:`~oxibonsai.server.stores.database_lock.DatabaseLock`. Servers that share a database keep
    nothing on disk but uploads in progress, and need no lock.

    Raises:
        CapacityError: Another server uses one of them, or locking failed.
    """
    if settings.shared_store:
        yield
        return
    used = [settings.files_dir, *([settings.store_file] if settings.store_file else [])]
    with contextlib.ExitStack() as files:
        for path in used:
            files.enter_context(_lock(path.resolve(), settings.port))
        yield


def _lock(path: Path, port: int) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_name(f"{path.name}.lock").open("a+")
    except OSError as e:
        raise CapacityError(f"cannot lock {path}: {e.strerror}") from e
    try:
        _wait_for(file, path)
        file.truncate(0)
        file.write(f"{os.getpid()} {port}\n")
        file.flush()
    except OSError as e:
        file.close()
        raise CapacityError(f"cannot lock {path}: {e.strerror}") from e
    except BaseException:
        file.close()
        raise
    return file


def _wait_for(file: IO[str], path: Path) -> None:
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while True:
        try:
            lock(file.fileno(), wait=False)
            return
        except BlockingIOError:
            file.seek(0)
            pid, _, port = file.read(40).strip().partition(" ")
            if _lives(pid) or time.monotonic() >= deadline:
                raise CapacityError(
                    f"{path} is in use by the server with process id {pid or 'unknown'} on port "
                    f"{port or 'unknown'}: end that one, or give this one its own --state-dir (and "
                    "--store)"
                ) from None
        time.sleep(0.05)


def _lives(pid: str) -> bool:
    try:
        return bool(psutil.pid_exists(int(pid)))
    except ValueError:
        return False
