"""Which keys a query sees of its window, and besides it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KeyPattern:
    """A pattern of the keys that a query sees of its window, and of those before it.

    Attributes:
        dilation: The query sees one of so many positions of the window, counted back from its own.
        global_tokens: So many first positions of the sequence, which every query sees.
        block_size: Positions of a block; 0: none. The window is then one of whole blocks, the last of
            which is the query's own.
        block_stride: Of the blocks before the window a head sees every so many-th.
        head_step: By how many blocks those that a head sees lie before those of the head before it.
    """

    dilation: int = 1
    global_tokens: int = 0
    block_size: int = 0
    block_stride: int = 0
    head_step: int = 0
