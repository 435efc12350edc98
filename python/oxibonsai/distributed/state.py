"""The state of sequences as rank 0 sees it: every process keeps its part of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.distributed.commands import Command, Leader
from oxibonsai.distributed.group import Group

Floats = npt.NDArray[np.float32]


class Parts:
    """The processes' parts of a page or slot, on their way to rank 0 and back.

    What rank 0 then has is of use to the same processes alone.

    Args:
        group: All processes.
        size: Bytes of this one's part; 0 where it has none.
    """

    def __init__(self, group: Group, size: int) -> None:
        self._group = group
        told = group.all_gather_bytes(size.to_bytes(8, "little"))
        self._sizes = [int.from_bytes(t, "little") for t in told]

    def collect(self, own: bytes) -> bytes:
        """Return the bytes of all processes, in the order of ranks; on rank 0."""
        parts = [own]
        for rank, size in list(enumerate(self._sizes))[1:]:
            if size:
                floats = np.empty(-(-size // 4), np.float32)
                self._group.receive(floats, rank)
                parts.append(floats.tobytes()[:size])
        return b"".join(parts)

    def hand_out(self, data: bytes) -> bytes:
        """Send each process its part of the bytes; return that of rank 0."""
        at = self._sizes[0]
        for rank, size in list(enumerate(self._sizes))[1:]:
            if size:
                self._group.send(_floats(data[at : at + size]), rank)
            at += size
        return data[: self._sizes[0]]

    def send(self, own: bytes) -> None:
        """Send this process's part to rank 0."""
        self._group.send(_floats(own), 0)

    def receive(self) -> bytes:
        """Return this process's part from rank 0."""
        size = self._sizes[self._group.rank]
        floats = np.empty(-(-size // 4), np.float32)
        self._group.receive(floats, 0)
        return floats.tobytes()[:size]


def _floats(data: bytes) -> Floats:
    return np.frombuffer(data + bytes(-len(data) % 4), np.float32).copy()


class SharedPages:
    """Pages of keys and values, of which each process has those of its layers and heads.

    Args:
        leader: Rank 0's voice.
        index: Which pool of the model this is.
        own: This process's part; None where its stage has no layers that keep any.
        parts: Those of all processes.
        pages: How many there are.
        page_bytes: Of one, of all processes together.
    """

    def __init__(
        self,
        leader: Leader,
        index: int,
        own: KvPages | None,
        parts: Parts,
        pages: int,
        type: str,
        size: int,
    ) -> None:
        self._leader = leader
        self._parts = parts
        self.index = index
        self.own = own
        self.pages = pages
        self.type = type
        self.page_bytes = size

    def copy(self, source: int, target: int) -> None:
        """Implement :meth:`~oxibonsai.devices.KvPages.copy`."""
        with self._leader.command(Command.COPY_PAGE, (self.index, source, target)):
            if self.own is not None:
                self.own.copy(source, target)

    def release(self, page: int) -> None:
        """Implement :meth:`~oxibonsai.devices.KvPages.release`."""
        with self._leader.command(Command.RELEASE_PAGE, (self.index, page)):
            if self.own is not None:
                self.own.release(page)

    def read(self, page: int) -> bytes:
        """Implement :meth:`~oxibonsai.devices.KvPages.read`."""
        with self._leader.command(Command.READ_PAGE, (self.index, page)):
            return self._parts.collect(b"" if self.own is None else self.own.read(page))

    def write(self, page: int, data: bytes) -> None:
        """Implement :meth:`~oxibonsai.devices.KvPages.write`."""
        with self._leader.command(Command.WRITE_PAGE, (self.index, page)):
            own = self._parts.hand_out(data)
            if self.own is not None:
                self.own.write(page, own)


class SharedSlots:
    """Recurrent state, of which each process has that of its layers.

    Args:
        leader: Rank 0's voice.
        index: Which store of the model this is.
        own: This process's part; None where its stage has no layers that keep any.
        parts: Those of all processes.
        slots: How many there are.
        slot_bytes: Of one, of all processes together.
    """

    def __init__(
        self,
        leader: Leader,
        index: int,
        own: Slots | None,
        parts: Parts,
        slots: int,
        entries: list[int],
    ) -> None:
        self._leader = leader
        self._parts = parts
        self.index = index
        self.own = own
        self.slots = slots
        self.slot_bytes = _core.slot_bytes(entries)

    def copy(self, source: int, target: int) -> None:
        """Implement :meth:`~oxibonsai.devices.Slots.copy`."""
        with self._leader.command(Command.COPY_SLOT, (self.index, source, target)):
            if self.own is not None:
                self.own.copy(source, target)

    def read(self, slot: int) -> bytes:
        """Implement :meth:`~oxibonsai.devices.Slots.read`."""
        with self._leader.command(Command.READ_SLOT, (self.index, slot)):
            return self._parts.collect(b"" if self.own is None else self.own.read(slot))

    def write(self, slot: int, data: bytes) -> None:
        """Implement :meth:`~oxibonsai.devices.Slots.write`."""
        with self._leader.command(Command.WRITE_SLOT, (self.index, slot)):
            own = self._parts.hand_out(data)
            if self.own is not None:
                self.own.write(slot, own)
