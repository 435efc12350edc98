"""llama.cpp's file of a model's log-probabilities over a text (``--kl-divergence-base``).

Layout, little-endian: ``_logits_``; uint32 tokens of a window; int32 tokens of the vocabulary; int32
windows; int32 tokens of the text, window by window; then for every scored position in order a record
of uint16 words: float32 scale and float32 lowest log-probability in the first four, one word for each
token of the vocabulary, and one of padding where that makes an odd number. A log-probability is
``scale * word + lowest``; what lies more than 16 below the highest is kept as the lowest.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.evaluate.windows import MIN_CTX_SIZE, Window, make_window

_MAGIC = b"_logits_"
_COUNTS = struct.Struct("<Iii")  # tokens of a window, of the vocabulary; windows
_HEADER_BYTES = len(_MAGIC) + _COUNTS.size
_TOKEN_BYTES = 4
_SCALE_WORDS = 4
_DEPTH = np.float32(16.0)  # nats below the highest log-probability that are told apart
_STEPS = np.float32(65535.0)


def record_words(vocab_size: int) -> int:
    """Return uint16 words of one position's record."""
    return _SCALE_WORDS + vocab_size + vocab_size % 2


def scored_positions(ctx_size: int) -> int:
    """Return the positions of a window that are scored: those of its second half but the last."""
    return ctx_size - 1 - ctx_size // 2


def base_bytes(ctx_size: int, vocab_size: int, windows: int) -> int:
    """Size of a whole file."""
    record = 2 * record_words(vocab_size)
    return _HEADER_BYTES + windows * (ctx_size * _TOKEN_BYTES + scored_positions(ctx_size) * record)


def quantize(row: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the record of a row of logits; float32 throughout, rounded half to even."""
    highest = row.max()
    lowest = max(row.min(), highest - _DEPTH)
    log_sum = np.float32(np.log(np.exp(row - highest).sum(dtype=np.float64)))
    scale = (highest - lowest) / _STEPS
    record = np.zeros(record_words(len(row)), dtype="<u2")
    record[:_SCALE_WORDS] = np.array([scale, lowest - highest - log_sum], "<f4").view("<u2")
    if scale > 0:
        steps = np.rint((np.maximum(row, lowest) - lowest) * (np.float32(1) / scale))
        record[_SCALE_WORDS : _SCALE_WORDS + len(row)] = steps
    return record


class KlBaseWriter:
    """Writes a base, position by position.

    Args:
        out: Where to, at its beginning.
        tokens: The text's tokens, as many as the windows hold.
        ctx_size: Tokens of a window.
        vocab_size: Tokens of the vocabulary.
    """

    def __init__(
        self, out: IO[bytes], tokens: Sequence[int], ctx_size: int, vocab_size: int
    ) -> None:
        self._out = out
        windows = len(tokens) // ctx_size
        out.write(_MAGIC + _COUNTS.pack(ctx_size, vocab_size, windows))
        out.write(np.array(tokens[: windows * ctx_size], dtype="<i4").tobytes())

    def add(self, row: npt.NDArray[np.float32]) -> None:
        """Add the next scored position's logits."""
        self._out.write(quantize(row).tobytes())


class KlBase:
    """A base that is read, one window's record at a time.

    Args:
        path: The file.

    Attributes:
        ctx_size: Tokens of a window.
        vocab_size: Tokens of the vocabulary.
        chunks: Windows.
        tokens: int32 [chunks * ctx_size], the text.

    Raises:
        RequestError: The file can't be read.
        FormatError: It is no base, is damaged or was not finished.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path = Path(path)
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                self._read_header(file.read(_HEADER_BYTES), size)
                data = file.read(self.chunks * self.ctx_size * _TOKEN_BYTES)
        except OSError as e:
            raise RequestError(f"cannot read the base {path}: {e.strerror}") from e
        self.tokens = np.frombuffer(data, dtype="<i4")
        wrong = np.flatnonzero((self.tokens < 0) | (self.tokens >= self.vocab_size))
        if len(wrong):
            raise FormatError(
                f"{path} is damaged: token {self.tokens[wrong[0]]} at index {wrong[0]} is outside "
                f"its vocabulary of {self.vocab_size}"
            )

    def _read_header(self, header: bytes, size: int) -> None:
        if header[: len(_MAGIC)] != _MAGIC:
            raise FormatError(
                f"{self.path} is no base of log-probabilities: it does not begin with "
                f"{_MAGIC.decode()}"
            )
        if len(header) < _HEADER_BYTES:
            raise FormatError(f"{self.path} ends within its header: it was not finished")
        self.ctx_size, self.vocab_size, self.chunks = _COUNTS.unpack_from(header, len(_MAGIC))
        if self.ctx_size < MIN_CTX_SIZE or self.vocab_size < 1 or self.chunks < 1:
            raise FormatError(
                f"{self.path} is damaged: it claims {self.chunks} windows of {self.ctx_size} tokens "
                f"over a vocabulary of {self.vocab_size}"
            )
        # Before anything is read by these counts, the file must have the size that they ask for.
        expected = base_bytes(self.ctx_size, self.vocab_size, self.chunks)
        if size != expected:
            raise FormatError(
                f"{self.path} has {size} bytes, but its header asks for {expected}: it was not "
                "finished or is damaged"
            )

    def window(self, chunk: int, bos: int | None) -> Window:
        """Return one window of the text; a bos, where there is one, replaces its first token."""
        tokens = self.tokens[chunk * self.ctx_size : (chunk + 1) * self.ctx_size]
        return make_window(tokens.tolist(), self.ctx_size // 2, bos)

    def log_probs(self, chunk: int) -> Iterator[npt.NDArray[np.float32]]:
        """Yield float32 [vocabulary] for every scored position of a window.

        Raises:
            FormatError: A record is no distribution.
        """
        words = record_words(self.vocab_size)
        count = scored_positions(self.ctx_size)
        start = _HEADER_BYTES + self.tokens.nbytes + 2 * words * count * chunk
        with self.path.open("rb") as file:
            file.seek(start)
            for position in range(count):
                record = np.frombuffer(file.read(2 * words), dtype="<u2")
                yield self._dequantize(record, f"window {chunk}, record {position}")

    def _dequantize(self, record: npt.NDArray[np.uint16], where: str) -> npt.NDArray[np.float32]:
        if len(record) != record_words(self.vocab_size):
            raise FormatError(f"{self.path} ends within {where}: it has changed while it was read")
        scale, lowest = record[:_SCALE_WORDS].view("<f4")
        values = record[_SCALE_WORDS : _SCALE_WORDS + self.vocab_size].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            log_probs: npt.NDArray[np.float32] = scale * values + lowest
            total = float(np.exp(log_probs).sum(dtype=np.float64))
        # What lies deeper than the file can tell counts as much as the lowest.
        slack = 0.01 + self.vocab_size * float(np.exp(-_DEPTH))
        if not (scale >= 0.0 and abs(total - 1.0) <= slack):
            raise FormatError(
                f"{self.path} is damaged: the probabilities of {where} sum to {total:g}, not to 1"
            )
        return log_probs
