"""Decompresses request bodies as they are read; the body limit applies to the decompressed size."""

from __future__ import annotations

import gzip
import io
import zlib
from abc import abstractmethod
from typing import IO, TYPE_CHECKING

from flask import Flask, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wsgi import get_input_stream

from oxibonsai.server.errors import ApiError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_READ_BYTES = 64 * 1024


def register_content_encoding(app: Flask, max_packed_bytes: int) -> None:
    """Decompresses ``gzip`` and ``deflate``; any other ``Content-Encoding`` is a 415 error.

    Args:
        app: The application.
        max_packed_bytes: Largest compressed body; the worker does not read a larger one.
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
        if (request.content_length or 0) > max_packed_bytes:
            raise RequestEntityTooLarge
        environ = request.environ
        packed = get_input_stream(environ)
        environ["wsgi.input"] = _Inflated(packed) if name == "deflate" else _Gunzipped(packed)
        environ["wsgi.input_terminated"] = True  # the length is unknown, but the stream ends
        environ.pop("CONTENT_LENGTH", None)
        del environ["HTTP_CONTENT_ENCODING"]

    app.before_request(unpack)


class _Unpacked(io.RawIOBase):
    """Never decompresses more than the request's limit plus one byte."""

    _count = 0  # bytes given so far

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        # A view may change the limit of its request.
        limit = request.max_content_length
        try:
            piece = self._unpack(len(view))
            self._count += len(piece)
            # werkzeug reads up to the limit and doesn't notice that there is more.
            if limit is not None and self._count >= limit and (self._count > limit or self._more()):
                raise RequestEntityTooLarge
        except (OSError, EOFError, zlib.error) as e:
            raise ApiError(400, f"The request body can't be decompressed: {e}.") from e
        view[: len(piece)] = piece
        return len(piece)

    def _more(self) -> bool:
        return bool(self._unpack(1))

    @abstractmethod
    def _unpack(self, size: int) -> bytes:
        """The next bytes, at most ``size``; empty at the end."""


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
