"""Makes the C library's allocator return what requests have freed to the system."""

from __future__ import annotations

import ctypes
import os

_M_MMAP_THRESHOLD = -3  # of malloc.h
# Larger than the arrays of a step, smaller than the blocks of a decoded image.
_MAPPED_BYTES = 4 << 20


def return_freed_memory() -> None:
    """Map each large allocation by itself, so that it goes back to the system when it is freed.

    By default glibc raises its threshold to the largest block that was freed (up to 32 MiB), and
    keeps such blocks in an arena of each thread from then on: a server of many threads holds an
    image's memory in every one of them for good.

    Other C libraries have no such arenas, and what the environment sets takes precedence.
    """
    tuned = "glibc.malloc.mmap_threshold" in os.environ.get("GLIBC_TUNABLES", "")
    if tuned or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
