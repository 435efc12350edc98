"""Write files: a regular file appears when it is complete, anything else is written through.

Everything that writes a file for a user goes through this module. A regular file is replaced as a
whole, so that nobody reads half of one. A link stays a link: the file that it points to is replaced.
A device, a pipe or a descriptor such as ``/dev/stdout`` can't be replaced without destroying it: the
bytes go into it as they are made.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from oxibonsai.errors import RequestError
from oxibonsai.files import platform

STANDARD_OUTPUT = Path("/dev/stdout")

_MOST_LINKS = 40  # as Linux has it
_NAMED = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}  # also where /dev is bare
# What a process has open, by number; a link in it points to no path that could be followed.
_DESCRIPTORS = re.compile(r"/dev/fd|/proc/(\d+)(?:/task/\d+)?/fd")


def follow_links(place: Path) -> Path:
    """Return the path that a file is written to: the target of a link, else the path itself.

    Raises:
        OSError: The links go round in a circle.
    """
    at = place
    for _ in range(_MOST_LINKS):
        if at.as_posix() in _NAMED:
            return at
        at = Path(os.path.realpath(at.parent)) / at.name
        if not at.is_symlink() or _DESCRIPTORS.fullmatch(str(at.parent)):
            return at
        at = at.parent / os.readlink(at)
    raise OSError(errno.ELOOP, f"cannot write {place}: its links go round in a circle")


def is_replaced(place: Path) -> bool:
    """Return whether the path names a regular file, or none yet; other things are written through."""
    at = follow_links(place)
    return _descriptor(at) is None and (at.is_file() or not at.exists())


def is_standard_output(place: Path) -> bool:
    """Return whether the path names this process's standard output."""
    return _descriptor(follow_links(place)) == 1


def make_folder(folder: Path) -> None:
    """Make a folder, and those that it is in.

    Raises:
        OSError: It can't be made; it is named, and why.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OSError(e.errno, f"the folder {folder} cannot be made: {e.strerror}") from e


def make_room(place: Path, *, in_new_folder: bool = True) -> Path:
    """Check that a file can be written, and make the folder that it is going to be in.

    Args:
        place: The file.
        in_new_folder: Whether to make that folder where there is none; else it is an error.

    Returns:
        The path to write to, without links.

    Raises:
        OSError: No file of this name can be written; it is named, and why.
        RequestError: There is no such folder, and none is to be made.
    """
    at = follow_links(place)
    if at.is_dir():
        raise OSError(errno.EISDIR, f"cannot write {place}: it is a folder; name a file")
    if not is_replaced(at):
        return at
    folder = at.parent
    if not in_new_folder and not folder.is_dir():
        raise RequestError(f"cannot write {place}: there is no folder {folder}; make it first")
    try:
        make_folder(folder)
    except OSError as e:
        raise OSError(e.errno, f"cannot write {place}: {e.strerror}") from e
    if not os.access(folder, os.W_OK):
        raise OSError(errno.EACCES, f"cannot write {place}: the folder {folder} is read-only")
    return at


@contextmanager
def written_whole(place: Path, *, in_new_folder: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name when it is complete, and leaves nothing otherwise.

    What is no regular file is written through instead; opening a named pipe waits for its reader.
    The file can't be read or rewound.

    Args:
        place: The file; links are followed. One that is there is replaced and keeps its permissions.
        in_new_folder: As :func:`make_room`.

    Raises:
        OSError: It can't be written; it is named, and why.
        RequestError: As :func:`make_room`.
    """
    at = make_room(place, in_new_folder=in_new_folder)
    if not is_replaced(at):
        with _opened(_open_through(at), place) as out:
            yield out
        return
    part = at.parent / f"{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with _opened(platform.open_descriptor(part, flags), place) as out:
            if at.exists():
                platform.copy_permissions(at, out.fileno())
            yield out
        part.replace(at)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def put_in_place(finished: Path, place: Path) -> None:
    """Give a finished file its name, in a folder that is there.

    It is moved; into what is no regular file, or to another file system behind a link, it is copied.
    """
    if is_replaced(place):
        try:
            finished.replace(follow_links(place))
            return
        except OSError as e:
            if e.errno != errno.EXDEV:
                raise
    with finished.open("rb") as source, written_whole(place) as out:
        shutil.copyfileobj(source, out)


def _descriptor(at: Path) -> int | None:
    """Return the number of the descriptor of this process that a path names, if it names one."""
    if at.as_posix() in _NAMED:
        return _NAMED[at.as_posix()]
    folder = _DESCRIPTORS.fullmatch(str(at.parent))
    if folder is None or folder[1] not in (None, str(os.getpid())) or not at.name.isdecimal():
        return None
    return int(at.name)


def _open_through(at: Path) -> int:
    number = _descriptor(at)
    if number is None:
        return platform.open_descriptor(at, os.O_WRONLY)
    # Not opened anew, which would begin a file that stdout is redirected to from its first byte.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return os.dup(number)


@contextmanager
def _opened(descriptor: int, place: Path) -> Iterator[IO[bytes]]:
    """Buffer what is written; its end is written where nothing has failed.

    An error of writing is raised as it was, also where a library has made another one of it.
    """
    raw = _NamedWriter(descriptor, place)
    out = io.BufferedWriter(raw)
    try:
        yield out
        out.close()
    except Exception as e:
        # Neither the writer nor this frame keeps the error: it keeps their frames, and so what is open.
        error, raw.error = raw.error, None
        try:
            if error is None or error is e:
                raise
            raise error from None
        finally:
            del error
    finally:
        raw.close()  # so that the buffer is not written once more where writing has failed


class _NamedWriter(io.FileIO):
    """A descriptor to write to; its errors name the file that the user asked for."""

    def __init__(self, descriptor: int, place: Path) -> None:
        super().__init__(descriptor, "wb")
        self._place = place
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as e:
            self.error = OSError(e.errno, f"cannot write {self._place}: {e.strerror}")
            raise self.error from e
