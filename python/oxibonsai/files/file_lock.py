"""Locks on open files, which end with the process that holds them, and names that outlive a crash."""

from __future__ import annotations

import errno
import os
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # Windows: modules that lock can be imported, and locking is refused
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True


def lock(descriptor: int, *, wait: bool = True) -> None:
    """Lock an open file or folder against all who open it for themselves.

    Forked processes share the lock, which is held until the last of them has closed the descriptor.

    Args:
        descriptor: Of the file or folder.
        wait: Wait for another's lock to end.

    Raises:
        BlockingIOError: Another holds the lock, and ``wait`` is False.
        OSError: The file system, or the operating system, has no such locks.
    """
    if not _HAS_LOCKS:
        raise OSError(errno.ENOTSUP, "files can't be locked on this operating system yet")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def sync_folder(folder: Path) -> None:
    """Write a folder's names to disk, so that those given to files outlive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
