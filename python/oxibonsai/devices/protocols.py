"""Protocols that every device implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai import _core


class KvPages(Protocol):
    """Pages of keys and values in a device's memory. Their bytes are the same on every device."""

    @property
    def type(self) -> str:
        """Return the type of keys and values; several, joined by ``+``, where layers differ."""

    @property
    def pages(self) -> int:
        """How many there are."""

    @property
    def page_bytes(self) -> int:
        """Return the bytes of one."""

    def copy(self, source: int, target: int) -> None:
        """Copy a page over another."""

    def read(self, page: int) -> bytes:
        """Return the bytes of a page."""

    def write(self, page: int, data: bytes) -> None:
        """Fill a page with what :meth:`read` gave, here or on another device."""

    def release(self, page: int) -> None:
        """Return a page's memory back as far as the device can; what it held is lost."""


class Slots(Protocol):
    """Recurrent state of sequences in a device's memory."""

    @property
    def slots(self) -> int:
        """How many there are."""

    @property
    def slot_bytes(self) -> int:
        """Return the bytes of one."""

    def copy(self, source: int, target: int) -> None:
        """Copy a slot over another."""

    def read(self, slot: int) -> bytes:
        """Return the bytes of a slot."""

    def write(self, slot: int, data: bytes) -> None:
        """Fill a slot with what :meth:`read` gave."""


class Packed(Protocol):
    """Weights as a device keeps them: they live as long as this object or an executable."""

    @property
    def nbytes(self) -> int:
        """Return the bytes that they take."""


class Executable(Protocol):
    """A graph that a device has compiled."""

    def run(
        self, batch: _core.Batch, pools: Sequence[KvPages] = (), slots: Slots | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Run one step; float32 [rows, columns] for each output of the graph.

        Args:
            batch: Rows of any sequences.
            pools: Pages of this device; a span of the batch names its own.
            slots: Recurrent state of this device, where the graph has any.

        Raises:
            RequestError: The batch does not fit the graph or the state.
            CapacityError: The device has too little memory for a step of this size.
            DeviceError: The device failed.
        """


class Device(Protocol):
    """Packs weights, compiles graphs, and holds the state of sequences."""

    @property
    def name(self) -> str:
        """``cpu``, ``cuda:0``, ``metal``, ``opencl:0``."""

    @property
    def tier(self) -> str:
        """Which of its kernels run: a CPU tier's name, or the GPU's with its generation."""

    @property
    def threads(self) -> int:
        """Worker threads of the host."""

    @property
    def free_bytes(self) -> int | None:
        """Free bytes of its own memory; None where it uses the machine's."""

    def with_threads(self, threads: int) -> Device:
        """Return a device with the same packed weights and other threads, for another engine.

        Raises:
            UnsupportedError: The device runs one engine at a time.
        """

    def packed_size(self, weights: list[_core.Weight]) -> int:
        """Return the bytes that :meth:`pack` takes for those that are not packed yet."""

    def pack(
        self, weights: list[_core.Weight], progress: Callable[[int], None] | None = None
    ) -> Packed:
        """Pack what is not packed yet; progress is told the bytes done, an exception stops it."""

    def packed_nbytes(self, weight: _core.Weight) -> int | None:
        """Return the bytes of the packed form, 0 where the stored one serves; None: not packed."""

    def compile(self, graph: _core.Graph) -> Executable:
        """Make a graph executable.

        Raises:
            UnsupportedError: The device lacks an op or a type; it is named.
        """

    def make_pages(
        self, layers: Sequence[_core.PagedLayer], type: str | Sequence[str], pages: int
    ) -> KvPages:
        """Return the pages of keys and values; arguments as of ``_core.KvPages``."""

    def make_slots(self, entries: Sequence[int], slots: int) -> Slots:
        """Make memory for recurrent state; arguments as of ``_core.Slots``."""
