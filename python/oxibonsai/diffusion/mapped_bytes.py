"""Bytes of weights that lie in files, so that they can leave memory once a device has packed them."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import FormatError, SourceError
from oxibonsai.files.cache_folder import cache_folder

Bytes = npt.NDArray[np.uint8]


class MappedBytes:
    """Parts of files, and bytes that are made on the way, as read-only arrays.

    What is made goes to a file without a name in the cache folder, whose room is given back with the
    last array.
    """

    def __init__(self) -> None:
        self._files: dict[Path, _core.MappedFile] = {}
        self._made: list[mmap.mmap] = []

    def part(self, path: Path, first: int, last: int) -> Bytes:
        """Bytes ``first`` to ``last`` - 1 of a file.

        Raises:
            FormatError: The file can't be mapped, or has become shorter.
        """
        if path not in self._files:
            self._files[path] = _core.MappedFile(str(path))
        mapped = self._files[path]
        if last > len(mapped):
            raise FormatError(f"{path} became shorter while it was read")
        return np.frombuffer(memoryview(mapped), np.uint8, last - first, first)

    def keep(self, data: Bytes) -> Bytes:
        """Return the same bytes in a file.

        Raises:
            SourceError: There is no room for them.
        """
        place = cache_folder()
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place) as file:
                data.tofile(file)
                file.flush()
                self._made.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as e:
            raise SourceError(f"cannot keep packed weights in {place}: {e}") from e
        return np.frombuffer(self._made[-1], np.uint8)

    def release(self) -> None:
        """Take everything out of memory; the next look at it reads the files again."""
        for file in self._files.values():
            file.release()
        for made in self._made:
            made.madvise(mmap.MADV_DONTNEED)
