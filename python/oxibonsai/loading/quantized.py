"""Models in another weight type than their files, quantized once and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from pathlib import Path

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder, cache_limit
from oxibonsai.files.progress import Progress
from oxibonsai.files.scratch_folder import scratch_folder
from oxibonsai.quantize import TypeRules, find_mix, make_plan, write

_DEFAULT_GB = 50.0
# Part of each name; it changes where the same source and type give other bytes than before.
_FORM = "oxibonsai quantized 1"


class QuantizedCache:
    """A folder of quantized models, bounded in size: the least recently used go first.

    A file's name has the hash of the model that it was made from, and the type.

    Args:
        folder: None: ``quantized`` in :func:`oxibonsai.files.cache_folder.cache_folder`.

    Raises:
        RequestError: ``OXIBONSAI_QUANTIZED_CACHE_GB`` (50) is no number.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = cache_folder() / "quantized" if folder is None else Path(folder)
        self.limit_bytes = cache_limit("OXIBONSAI_QUANTIZED_CACHE_GB", _DEFAULT_GB)

    def open(
        self,
        checkpoint: Checkpoint,
        type_name: str,
        *,
        threads: int,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Return the model in another type; errors go on naming the source.

        Args:
            checkpoint: The source.
            type_name: A mix or a type, as ``oxibonsai quantize`` takes it.
            threads: They share out the rows; the bytes don't depend on it.
            progress: Told after each slab of rows; not called if the file is there already.

        Raises:
            RequestError: There is no such type, or it needs an importance matrix.
            FormatError: A value is not finite or too large for the type.
            SourceError: The folder can't be written.
        """
        rules = TypeRules(find_mix(type_name))
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{_FORM};{type_name.upper()};{checkpoint.identity()}".encode())
        place = self.folder / f"{digest.hexdigest()}-{type_name.upper()}.gguf"
        try:
            if not place.is_file():
                plan = make_plan(checkpoint.file, rules, None)
                for note in plan.warnings():
                    warnings.warn(note, stacklevel=3)
                # Others may be writing the same file, in this process or in another container.
                with scratch_folder(self.folder) as scratch:
                    made = scratch / place.name
                    write(plan, made, threads=threads, progress=progress)
                    made.replace(place)
                self._evict(place)
            opened = Checkpoint(place)
            # The time of access says when it was last used; that of change is part of its identity.
            with contextlib.suppress(OSError):  # of a folder that may only be read
                os.utime(place, ns=(time.time_ns(), place.stat().st_mtime_ns))
            opened.remember_identity(checkpoint.path, checkpoint.file)
        except OSError as e:
            raise SourceError(
                f"cannot keep {checkpoint.path} as {type_name} in {place}: {e}"
            ) from e
        return opened

    def entries(self) -> list[Path]:
        """Return the kept files, the most recently used first."""
        return sorted(
            self.folder.glob("*.gguf"), key=lambda path: path.stat().st_atime_ns, reverse=True
        )

    def clear(self) -> int:
        """Remove them all; return the bytes freed."""
        freed = 0
        for path in self.entries():
            freed += path.stat().st_size
            path.unlink(missing_ok=True)
        return freed

    def _evict(self, newest: Path) -> None:
        """Remove files beyond the limit, but not the one that is about to be used."""
        kept = newest.stat().st_size
        for path in self.entries():
            if path != newest:
                kept += path.stat().st_size
                if kept > self.limit_bytes:
                    path.unlink(missing_ok=True)
