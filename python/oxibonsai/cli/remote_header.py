"""The header of a remote GGUF file, read without its weights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, SourceError, UnsupportedError
from oxibonsai.sources.remote import RemotePrefix, remote_prefix

_FIRST_BYTES = 64 << 10
_MOST_BYTES = 128 << 20  # large vocabularies take some 20 MB
_MAGIC = b"GGUF"


@contextmanager
def remote_checkpoint(
    url: str, name: str, quant_type: str, headers: Mapping[str, str] | None = None
) -> Iterator[Checkpoint]:
    """Yield a checkpoint with the remote file's metadata and holes for its weights.

    Args:
        url: Where the file is.
        name: What it is called.
        quant_type: Layout of the tensors of type id 42, where the file leaves it open.
        headers: Sent with every request.

    Raises:
        SourceError: The file can't be read.
        FormatError: It is no GGUF file, or damaged.
        UnsupportedError: It is valid, but asks for what this version does not implement.
    """
    with remote_prefix(url, headers) as prefix, tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / name
        try:
            checkpoint = _open(prefix, place, quant_type)
        except (FormatError, UnsupportedError) as e:
            raise type(e)(str(e).replace(str(place), url)) from e
        yield checkpoint


def _open(prefix: RemotePrefix, place: Path, quant_type: str) -> Checkpoint:
    """Read on until the header is whole: all of it lies before the first tensor."""
    count = _FIRST_BYTES
    while True:
        prefix.extend(count)
        last = count >= min(prefix.size, _MOST_BYTES)
        _write_with_hole(place, prefix)
        try:
            checkpoint = Checkpoint(place, quant_type, alone=True)
            starts = [t.offset for t in checkpoint.file.tensors]
            if last or (starts and min(starts) <= len(prefix.data)):
                return checkpoint
        except (FormatError, UnsupportedError):
            # What is cut off reads as zeros: the fault may be that, or the file's own.
            if last or prefix.data[: len(_MAGIC)] != _MAGIC:
                raise
        count *= 2


def _write_with_hole(place: Path, prefix: RemotePrefix) -> None:
    """Write the beginning, then a hole up to the file's size, which takes no room on the disk."""
    try:
        with place.open("wb") as file:
            file.write(prefix.data)
            file.truncate(prefix.size)
    except OSError as e:
        raise SourceError(
            f"cannot keep a header of a file of {prefix.size} bytes: {e.strerror}"
        ) from e
