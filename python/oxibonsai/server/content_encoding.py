"""Decompresses request bodies as they are read; the body limit applies to the decompressed size."""

from __future__ import annotations

import gzip
import io
import zlib
from abc import abstractmethod
from typing import IO, TYPE_CHECKING

from flask import Flask, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wsgi import get_content_length, get_input_stream

from oxibonsai.server.errors import ApiError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# WSGI key: the body is longer than what was decompressed ahead.
LENGTH_IS_UNKNOWN = "oxibonsai.length_is_unknown"
_READ_BYTES = 64 * 1024


def register_content_encoding(app: Flask, max_packed_bytes: int, ahead_bytes: int) -> None:
    """Decompress ``gzip`` and ``deflate``; any other ``Content-Encoding`` is a 415 error.

    A short body then has its length, as if it had been sent plain; a longer one has none.

    Args:
        app: The application.
        max_packed_bytes: Largest compressed body; the worker does not read a larger one.
        ahead_bytes: Longest body that is decompressed here; the view reads a longer one.
    """

    def unpack() -> None:
        name = request.headers.get("Content-Encoding", "identity").strip().lower()
        if name in ("", "identity"):
            return
        if name not in ("gzip", "x-gzip", "deflate"):
            raise ApiError(
                415,
                f"The Content-Encoding is '{name[:80]}': send the body as it is, or as gzip or "
                "deflate.",
            )
        environ = request.environ
        # Not the request's property, which would remember the compressed length.
        if (get_content_length(environ) or 0) > max_packed_bytes:
            raise RequestEntityTooLarge
        packed = get_input_stream(environ)
        unpacked = _Inflated(packed) if name == "deflate" else _Gunzipped(packed)
        environ.pop("CONTENT_LENGTH", None)
        del environ["HTTP_CONTENT_ENCODING"]
        length = unpacked.look_ahead(ahead_bytes)
        if length is None:
            environ[LENGTH_IS_UNKNOWN] = environ["wsgi.input_terminated"] = True
        else:
            environ["CONTENT_LENGTH"] = str(length)
        environ["wsgi.input"] = unpacked

    app.before_request(unpack)


class _Unpacked(io.RawIOBase):
    """Never decompresses more than the request's limit plus one byte, after what it looks ahead."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0  # bytes given so far
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def look_ahead(self, size: int) -> int | None:
        """Return the length of the body; None if it is longer than ``size``."""
        while len(self._ahead) <= size and (piece := self._next(size + 1 - len(self._ahead))):
            self._ahead += piece
        return None if len(self._ahead) > size else len(self._ahead)

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        # A view may change the limit of its request.
        limit = request.max_content_length
        piece = self._ahead[: len(view)] or self._next(len(view))
        self._ahead = self._ahead[len(piece) :]
        self._count += len(piece)
        # werkzeug reads up to the limit and doesn't notice that there is more.
        if limit is not None and self._count >= limit and (self._count > limit or self._more()):
            raise RequestEntityTooLarge
        view[: len(piece)] = piece
        return len(piece)

    def _more(self) -> bool:
        return bool(self._ahead or self._next(1))

    def _next(self, size: int) -> bytes:
        try:
            return self._unpack(size)
        except (OSError, EOFError, zlib.error) as e:
            raise ApiError(400, f"The request body can't be decompressed: {e}.") from e

    @abstractmethod
    def _unpack(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``; empty at the end."""


class _Gunzipped(_Unpacked):
    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__()
        self._file = gzip.GzipFile(fileobj=packed, mode="rb")

    def _unpack(self, size: int) -> bytes:
        return self._file.read1(size)


class _Inflated(_Unpacked):
    """``deflate``: a zlib stream, or a raw deflate stream as some clients send it."""

    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__()
        self._packed = packed
        self._decoder = zlib.decompressobj()
        self._started = False

    def _unpack(self, size: int) -> bytes:
        while not self._decoder.eof:
            data = self._decoder.unconsumed_tail or self._packed.read(_READ_BYTES)
            if not data:
                raise EOFError("the compressed data is incomplete")
            piece = self._decoder_of(data).decompress(data, size)
            if piece:
                return piece
        if self._decoder.unused_data or self._packed.read(1):
            raise zlib.error("there is data after the end of the stream")
        return b""

    def _decoder_of(self, data: bytes) -> zlib._Decompress:
        if not self._started:
            self._started = True
            # A zlib header's first byte: method deflate, window of at most 32 KiB.
            if data[0] & 0x0F != 8 or data[0] >> 4 > 7:
                self._decoder = zlib.decompressobj(-zlib.MAX_WBITS)
        return self._decoder
