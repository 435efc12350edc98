"""The state of sequences as rank 0 sees it: every process keeps its part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.distributed.commands import Command
from oxibonsai.errors import UnsupportedError

if TYPE_CHECKING:
    from oxibonsai.distributed.device import RankDevice


class SharedPages:
    """Pages of keys and values, of which each process has those of its layers and heads.

    Args:
        device: Of rank 0.
        index: Which pool of the model this is.
        own: This process's part; None where its stage has no layers that keep any.
        pages: How many there are.
        page_bytes: Of one, of all processes together.
    """

    def __init__(
        self, device: RankDevice, index: int, own: KvPages | None, pages: int, type: str, size: int
    ) -> None:
        self._device = device
        self.index = index
        self.own = own
        self.pages = pages
        self.type = type
        self.page_bytes = size

    def copy(self, source: int, target: int) -> None:
        """As of :class:`~oxibonsai.devices.KvPages`."""
        with self._device.leader.command(Command.COPY_PAGE, (self.index, source, target)):
            if self.own is not None:
                self.own.copy(source, target)

    def release(self, page: int) -> None:
        """As of :class:`~oxibonsai.devices.KvPages`."""
        with self._device.leader.command(Command.RELEASE_PAGE, (self.index, page)):
            if self.own is not None:
                self.own.release(page)

    def read(self, page: int) -> bytes:
        """UnsupportedError: no process has a whole page."""
        raise UnsupportedError(_NOT_SAVED)

    def write(self, page: int, data: bytes) -> None:
        """UnsupportedError: no process has a whole page."""
        raise UnsupportedError(_NOT_SAVED)


class SharedSlots:
    """Recurrent state, of which each process has that of its layers.

    Args:
        device: Of rank 0.
        index: Which store of the model this is.
        own: This process's part; None where its stage has no layers that keep any.
        slots: How many there are.
        slot_bytes: Of one, of all processes together.
    """

    def __init__(
        self, device: RankDevice, index: int, own: Slots | None, slots: int, entries: list[int]
    ) -> None:
        self._device = device
        self.index = index
        self.own = own
        self.slots = slots
        self.slot_bytes = _core.slot_bytes(entries)

    def copy(self, source: int, target: int) -> None:
        """As of :class:`~oxibonsai.devices.Slots`."""
        with self._device.leader.command(Command.COPY_SLOT, (self.index, source, target)):
            if self.own is not None:
                self.own.copy(source, target)

    def read(self, slot: int) -> bytes:
        """UnsupportedError: no process has a whole slot."""
        raise UnsupportedError(_NOT_SAVED)

    def write(self, slot: int, data: bytes) -> None:
        """UnsupportedError: no process has a whole slot."""
        raise UnsupportedError(_NOT_SAVED)


_NOT_SAVED = (
    "the state of a sequence cannot be saved or restored where several processes run the model"
)
