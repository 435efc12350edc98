"""Differences between operating systems, in one place: no other module asks which one it runs on."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # every command imports this module at its start
    from collections.abc import Callable
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt
    import subprocess
else:
    import fcntl
    import resource

# Modules that need fork, descriptors sent over sockets and the like begin with `assert HAS_FORK`. With
# --always-false HAS_FORK, mypy checks that nothing else needs what they define.
HAS_FORK: Final = sys.platform != "win32"
# Whether a process can limit its own time and memory; else its parent watches it.
HAS_PROCESS_LIMITS: Final = sys.platform != "win32"
# Whether a file can be renamed or removed while it is open.
MOVES_OPEN_FILES: Final = sys.platform != "win32"

# The most connections that select() takes, where there is no poll(); None: as many as there are.
MOST_SELECTED: int | None = None
# `creationflags` of a process that gives way to others; elsewhere it lowers its priority itself.
BACKGROUND_PROCESS = 0
# Tells a server to read its files of keys again; None: there is no such signal.
RELOAD_SIGNAL: signal.Signals | None = None
# The signal that ends a server at once.
QUIT_SIGNAL: signal.Signals
if sys.platform == "win32":
    MOST_SELECTED = 512
    BACKGROUND_PROCESS = subprocess.BELOW_NORMAL_PRIORITY_CLASS
    QUIT_SIGNAL = signal.SIGBREAK
else:
    RELOAD_SIGNAL = signal.SIGHUP
    QUIT_SIGNAL = signal.SIGQUIT

_LOCKED_BYTE = 1 << 40  # beyond the end of any file: Windows lets nobody read a locked byte
_LOOK_SECONDS = 0.05


def open_descriptor(path: Path, flags: int, mode: int = 0o666, *, follow: bool = True) -> int:
    """Open a file of bytes; no process that is started later inherits it.

    Args:
        path: The file.
        flags: Of ``os.open``.
        mode: Permissions of a new file, less the umask.
        follow: Whether a link is followed; else it is an error.

    Raises:
        OSError: It can't be opened, or is a link that is not followed.
    """
    if sys.platform == "win32":
        if not follow and path.is_symlink():
            raise OSError(errno.ELOOP, "it is a link", str(path))
        return os.open(path, flags | os.O_BINARY, mode)
    return os.open(path, flags if follow else flags | os.O_NOFOLLOW, mode)


def copy_permissions(source: Path, descriptor: int) -> None:
    """Give an open file the permissions of another; Windows' ones are those of its folder."""
    if sys.platform != "win32":
        os.fchmod(descriptor, source.stat().st_mode & 0o7777)


def lock(descriptor: int, *, wait: bool = True) -> None:
    """Lock an open file against all who open it for themselves, until it is closed.

    Forked processes share the lock, which is held until the last of them has closed the descriptor or
    ended: the worker of a server that was killed still holds the server's. (Locks of the package
    filelock are void in a forked child, and lie on files of their own beside what they protect.)

    Args:
        descriptor: Of the file.
        wait: Wait for another's lock to end.

    Raises:
        BlockingIOError: Another holds the lock, and ``wait`` is False.
        OSError: The file system has no such locks.
    """
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    else:
        while not _lock_byte(descriptor):
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "another process has locked the file")
            time.sleep(_LOOK_SECONDS)


if sys.platform == "win32":

    def _lock_byte(descriptor: int) -> bool:
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as e:
            if e.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            return False
        finally:
            os.lseek(descriptor, at, os.SEEK_SET)
        return True


def sync_folder(folder: Path) -> None:
    """Write a folder's names to disk, so that those given to files outlive a crash of the machine.

    Windows opens no folders; NTFS keeps a journal of names.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def usable_cores() -> int:
    """Return the cores that this process may use, where the system says it, else the machine's."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_memory() -> int:
    """Return the most bytes of memory that this process has held."""
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB on Linux


def after_fork(call: Callable[[], None]) -> None:
    """Call a function in each child that is forked; never where nothing forks."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=call)


def use_utf8() -> None:
    """Let the standard streams be UTF-8 on Windows, also where they are files or pipes.

    What ``PYTHONIOENCODING`` says takes precedence.
    """
    if sys.platform != "win32" or os.environ.get("PYTHONIOENCODING"):
        return
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # none where there is no console; tests have others
            stream.reconfigure(encoding="utf-8")
