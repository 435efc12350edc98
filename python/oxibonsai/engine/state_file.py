"""Files of computed state: a JSON header and bytes, checked as a whole before anything is used.

A file is a magic of 8 bytes, a version, the length of the header, the header, the bytes that it describes,
and a BLAKE2b hash of all that. Nothing in a file is run or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.errors import FormatError
from oxibonsai.files.whole_file import is_replaced, written_whole

_FIXED = struct.Struct("<8sIQ")  # magic, version, length of the header
_DIGEST_BYTES = 32
_LARGEST_HEADER = 1 << 28


@dataclass(frozen=True)
class StateFormat:
    """One kind of file.

    Attributes:
        magic: Its first 8 bytes.
        version: Which one is written; no other is read.
        what: What a file is, for messages.
    """

    magic: bytes
    version: int
    what: str

    def write(
        self, path: Path, header: dict[str, Any], parts: Iterable[bytes], *, sync: bool = True
    ) -> None:
        """Write a file, which appears under its name when it is complete.

        Args:
            path: The file.
            header: JSON values.
            parts: What follows the header.
            sync: Whether it has reached the disk when this returns.

        Raises:
            OSError: It can't be written.
        """
        text = json.dumps(header, allow_nan=False).encode()
        with written_whole(path) as file:
            digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
            for part in (_FIXED.pack(self.magic, self.version, len(text)), text, *parts):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            if sync and is_replaced(path):
                file.flush()
                os.fsync(file.fileno())

    def read(self, path: Path) -> tuple[dict[str, Any], memoryview]:
        """Return the header and the bytes behind it of a file whose hash fits.

        Raises:
            OSError: It can't be read.
            FormatError: It is another kind of file, of another version, cut or damaged.
        """
        data = path.read_bytes()
        end = len(data) - _DIGEST_BYTES
        length = self._header_length(path, data, end)
        view = memoryview(data)
        if hashlib.blake2b(view[:end], digest_size=_DIGEST_BYTES).digest() != data[end:]:
            raise FormatError(f"{path} is cut or damaged: its hash does not fit its content")
        start = _FIXED.size + length
        return _parsed(path, bytes(view[_FIXED.size : start])), view[start:end]

    def read_header(self, path: Path) -> dict[str, Any]:
        """Return the header alone, unchecked: :meth:`read` has to follow before the file is used.

        Raises:
            OSError: It can't be read.
            FormatError: It is another kind of file, of another version, or cut.
        """
        with path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
            length = self._header_length(path, file.read(_FIXED.size), end)
            return _parsed(path, file.read(length))

    def _header_length(self, path: Path, begin: bytes, end: int) -> int:
        if end < _FIXED.size or not begin.startswith(self.magic):
            raise FormatError(f"{path} is no {self.what}")
        _, version, length = _FIXED.unpack_from(begin)
        if version != self.version:
            raise FormatError(
                f"{path} is a {self.what.split()[0]} of version {version}; this version of oxibonsai "
                f"reads {self.version}"
            )
        if length > min(_LARGEST_HEADER, end - _FIXED.size):
            raise FormatError(
                f"{path} is cut: its header of {length} bytes is longer than the file"
            )
        return int(length)


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path} has a header that is no JSON: {e}") from e
    if not isinstance(header, dict):
        raise FormatError(f"{path} has a header that is no JSON object")
    return header
