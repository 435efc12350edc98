"""Files that appear under their name when they are complete, and not before."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def make_room(place: Path) -> None:
    """Makes the folder that a file is going to be in.

    Raises:
        OSError: No file of this name can be written; it is named, and why.
    """
    folder = place.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        reason = f"the folder {folder} cannot be made: {e.strerror}"
        raise OSError(e.errno, f"cannot write {place}: {reason}") from e
    if place.is_dir():
        raise OSError(errno.EISDIR, f"cannot write {place}: it is a folder; name a file")
    if not os.access(folder, os.W_OK):
        raise OSError(errno.EACCES, f"cannot write {place}: the folder {folder} is read-only")


@contextmanager
def written_whole(place: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete, and leaves nothing behind otherwise.

    Its folder is made where there is none.
    """
    make_room(place)
    with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".part", delete=False) as out:
        part = Path(out.name)
        try:
            yield out
            out.close()
            part.chmod(0o644)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
