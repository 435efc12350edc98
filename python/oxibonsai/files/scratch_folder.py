"""A folder for as long as a process needs it, which the next one removes where that was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oxibonsai.files.file_lock import lock as lock_descriptor

_PREFIX = "folder-"


@contextmanager
def scratch_folder(place: Path) -> Iterator[Path]:
    """Yield a new folder inside ``place``, removed afterwards; those of killed processes go first.

    Its maker holds a lock on the folder itself, which ends with the process.

    Raises:
        OSError: ``place`` can't be made or written to.
    """
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place):
        for left in place.glob(f"{_PREFIX}*"):
            with suppress(OSError), _locked(left, wait=False):
                shutil.rmtree(left)
        folder = Path(tempfile.mkdtemp(dir=place, prefix=_PREFIX))
        lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    lock = _lock(folder, wait=wait)
    try:
        yield
    finally:
        os.close(lock)


def _lock(folder: Path, *, wait: bool = True) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock_descriptor(descriptor, wait=wait)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
