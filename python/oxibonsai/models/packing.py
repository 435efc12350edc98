"""Brings a model's matrices into the layout that a device's kernels want."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device, Packed
from oxibonsai.errors import FormatError
from oxibonsai.files.progress import Progress
from oxibonsai.models.packed_cache import PackedCache


def pack(
    matrices: list[_core.Weight],
    checkpoint: Checkpoint,
    device: Device,
    progress: Progress | None = None,
    cache: PackedCache | None = None,
) -> Packed:
    """Pack matrices on all threads, or map what an earlier run kept.

    Args:
        matrices: All that linear layers use.
        checkpoint: The model that they are of.
        device: Packs them for itself.
        progress: Told after each matrix.
        cache: Where those of a CPU are kept; None: nowhere.

    Returns:
        What keeps the packed form alive.

    Raises:
        FormatError: A scale is not finite.
    """
    total = device.packed_size(matrices)
    report = None if progress is None else lambda done: progress(done, total)
    # Where total is 0, all is read in place: there is nothing to keep.
    if cache is None or total == 0 or not isinstance(device, _core.CpuDevice):
        with _named(checkpoint):
            return device.pack(matrices, report)
    key = cache.key(checkpoint.identity(), matrices)
    if (kept := cache.attach(key, matrices, device)) is not None:
        return kept
    with _named(checkpoint):
        packed = device.pack(matrices, report)
    try:
        cache.store(key, checkpoint.path, packed)
    except OSError as e:
        warnings.warn(f"cannot keep packed weights in {cache.folder}: {e}", stacklevel=2)
    return packed


@contextmanager
def _named(checkpoint: Checkpoint) -> Iterator[None]:
    """Add the model's path to errors of files that lack one."""
    try:
        yield
    except FormatError as e:
        if str(checkpoint.path) in str(e):
            raise
        raise FormatError(f"{checkpoint.path}: {e}") from e
