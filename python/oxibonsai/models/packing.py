"""Brings a model's matrices into the layout that the tier's kernels want."""

from __future__ import annotations

import warnings

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.models.packed_cache import PackedCache
from oxibonsai.progress import Progress


def pack(
    matrices: list[_core.Weight],
    checkpoint: Checkpoint,
    pool: _core.ThreadPool,
    progress: Progress | None = None,
    cache: PackedCache | None = None,
) -> None:
    """Packs matrices on all threads, or maps what an earlier run kept.

    Args:
        matrices: All that linear layers use.
        checkpoint: The model that they are of.
        pool: Threads that pack.
        progress: Told after each matrix.
        cache: Where packed weights are kept; None: nowhere.

    Raises:
        FormatError: A scale is not finite.
    """
    total = _core.packed_size(matrices)
    if total == 0:  # the tier reads the file's own rows: there is nothing to keep
        cache = None
    key = cache.key(checkpoint.identity(), matrices) if cache is not None else ""
    if cache is not None and cache.attach(key, matrices):
        return
    report = None if progress is None else lambda done: progress(done, total)
    packed = _core.pack_weights(matrices, pool, report)
    if cache is None:
        return
    try:
        cache.store(key, checkpoint.path, packed)
    except OSError as e:
        warnings.warn(f"cannot keep packed weights in {cache.folder}: {e}", stacklevel=2)
