"""All processes of a group as one device, and the part of the model that this one runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import (
    CPU,
    Device,
    DevicePlan,
    Executable,
    KvPages,
    Packed,
    Slots,
    Stage,
    StagedDevice,
    cut_at_layers,
    open_device,
    share_layers,
)
from oxibonsai.distributed.commands import Command, Leader
from oxibonsai.distributed.failure_detector import print_failure
from oxibonsai.distributed.group import Floats, Group
from oxibonsai.distributed.passes import RankPass
from oxibonsai.distributed.state import Parts, SharedPages, SharedSlots
from oxibonsai.errors import RequestError, UnsupportedError

Kind = TypeVar("Kind")
# A process that waits for the one that has failed ends by itself within so long.
_EXIT_SECONDS = 1.0

# The passes of a model that processes can share, by their results; others are refused.
PASSES = (("logits",), ("hidden",), ("hidden", "logits"))


class RankPlan(DevicePlan):
    """Has the processes of a group run a model; each makes one, and loads the model with it.

    Args:
        group: The processes.
        threads: Worker threads of this process; None: the default.
        device: The name of its device; the processes may have different ones.

    Attributes:
        leader: Rank 0's voice.
    """

    def __init__(self, group: Group, threads: int | None = None, device: str = CPU) -> None:
        self._group = group
        self._threads = threads
        self._device = device
        self.leader = Leader(group)
        group.watch(self.leader.wake if group.rank == 0 else partial(_end_process, group))

    def place(self, graph: _core.Graph, layers: int) -> RankDevice:
        """Implement :meth:`~oxibonsai.devices.DevicePlan.place`.

        Raises:
            UnsupportedError: The model has fewer layers than there are stages, or is none that
                generates text.
        """
        if tuple(graph.outputs) != PASSES[0]:
            raise UnsupportedError(
                "several processes run only models that generate text: run this one in one process"
            )
        group = self._group
        local = open_device(self._device, self._threads)
        stages = group.layout.pipeline
        if stages > layers:
            raise UnsupportedError(
                f"the model has {layers} layers, which cannot be shared by {stages} stages: choose a "
                "smaller --pipeline-parallel"
            )
        borders = share_layers(graph, 0, layers, [1] * stages)[1:]
        return RankDevice(group, self.leader, local, borders, graph)


class RankDevice(StagedDevice):
    """A device made of several processes, as one of them has it.

    On rank 0, steps and copies are commands that the others follow; elsewhere the follower calls
    :meth:`own_pass` and the state's parts.

    Args:
        group: The processes.
        leader: Rank 0's voice.
        local: This process's device.
        first_layers: Of each stage but the first.
        graph: The model's pass.
    """

    def __init__(
        self,
        group: Group,
        leader: Leader,
        local: Device,
        first_layers: list[int],
        graph: _core.Graph,
    ) -> None:
        self.group = group
        self.leader = leader
        self.local = local
        self._first_layers = first_layers
        self._sharding: _core.Sharding | None = None
        if group.layout.tensor > 1:
            exchange = _core.Exchange(group.layout.tensor, group.layout.row_share, group.all_gather)
            self._sharding = _core.Sharding(exchange)
        self._main = graph
        parts = self._cut(graph)
        own, paged, slots = parts[group.layout.stage]
        self.share = self._share(own)
        self.stages = [Stage(local, self.share, paged, slots)]
        self._pools = self._stores = 0
        self._is_started = False

    @property
    def name(self) -> str:
        """``cpu``, where the group has one process; else its size too: ``cpu x 4``."""
        world = self.group.layout.world
        return self.local.name if world == 1 else f"{self.local.name} x {world}"

    @property
    def tier(self) -> str:
        """Return this process's tier."""
        return self.local.tier

    @property
    def threads(self) -> int:
        """Return this process's number of threads."""
        return self.local.threads

    @property
    def free_bytes(self) -> int | None:
        """None: it is the machines' memory."""
        return self.local.free_bytes

    def with_threads(self, threads: int) -> Device:
        """Return this device: the steps of several engines follow each other through the stages.

        Raises:
            UnsupportedError: There is one stage, which works on one step at a time.
        """
        if self.group.layout.pipeline == 1:
            raise UnsupportedError(
                "several engines need --pipeline-parallel, whose stages each work on a step of another "
                "one: leave out --replicas"
            )
        return self

    @property
    def own_bytes(self) -> int:
        """Return the bytes of the model's file that this process has rows of."""
        return sum(w.nbytes for w in self.share.matrices)

    def packed_size(self, weights: list[_core.Weight]) -> int:
        """Return the bytes that this process packs."""
        return self.local.packed_size(self.share.matrices)

    def pack(
        self, weights: list[_core.Weight], progress: Callable[[int], None] | None = None
    ) -> Packed:
        """Pack this process's rows of the model's matrices, whatever others are asked for."""
        return self.local.pack(self.share.matrices, progress)

    def packed_nbytes(self, weight: _core.Weight) -> int | None:
        """Return None: no process has a whole one."""
        return None

    def compile(self, graph: _core.Graph) -> Executable:
        """Implement :meth:`Device.compile`; all processes have to compile the main pass before any runs."""
        compiled = self.own_pass(graph)
        if graph is self._main and not self._is_started:
            self._is_started = True
            self.group.meet(late=True)
            if self.group.rank == 0:
                self.leader.start()
        return LedPass(self, PASSES.index(tuple(graph.outputs)), compiled)

    def own_pass(self, graph: _core.Graph) -> RankPass:
        """Return this process's part of a pass.

        Raises:
            UnsupportedError: The pass is none of those that processes share.
        """
        if tuple(graph.outputs) not in PASSES or graph.inputs:
            raise UnsupportedError(
                "this is not available where several processes run the model: run it in one process"
            )
        stages = [g for g, _, _ in self._cut(graph)]
        own = self.share
        if graph is not self._main:
            own = self._share(stages[self.group.layout.stage])
        # A stage that only has the output matrix has nothing to do in a pass without it.
        executable = self.local.compile(own) if own.ops else None
        return RankPass(self.group, stages, own, executable, graph.results)

    def make_pages(
        self, layers: Sequence[_core.PagedLayer], type: str | Sequence[str], pages: int
    ) -> KvPages:
        """Implement :meth:`Device.make_pages`, of the main pass's layers and one type."""
        if list(layers) != self._main.paged_layers or not isinstance(type, str):
            raise UnsupportedError("several processes keep keys and values of one type")
        with self.leader.command(Command.MAKE_PAGES, (_core.KV_TYPES.index(type), pages)):
            own = self.own_pages(type, pages)
            parts = Parts(self.group, 0 if own is None else own.page_bytes)
            index, self._pools = self._pools, self._pools + 1
        size = _core.kv_page_bytes(layers, type)
        return SharedPages(self.leader, index, own, parts, pages, type, size)

    def own_pages(self, type: str, pages: int) -> KvPages | None:
        """Return this process's part of the pages."""
        layers = self.share.paged_layers
        return self.local.make_pages(layers, type, pages) if layers else None

    def make_slots(self, entries: Sequence[int], slots: int) -> Slots:
        """Implement :meth:`Device.make_slots`, of the main pass's entries."""
        if list(entries) != self._main.slot_entries:
            raise UnsupportedError("several processes keep recurrent state of the main pass alone")
        with self.leader.command(Command.MAKE_SLOTS, (slots,)):
            own = self.own_slots(slots)
            parts = Parts(self.group, 0 if own is None else own.slot_bytes)
            index, self._stores = self._stores, self._stores + 1
        return SharedSlots(self.leader, index, own, parts, slots, list(entries))

    def own_slots(self, slots: int) -> Slots | None:
        """Return this process's part of the slots."""
        entries = self.share.slot_entries
        return self.local.make_slots(entries, slots) if entries else None

    def _cut(self, graph: _core.Graph) -> list[tuple[_core.Graph, range, range]]:
        if self.group.layout.pipeline == 1:
            paged, slots = len(graph.paged_layers), len(graph.slot_entries)
            return [(graph, range(paged), range(slots))]
        return cut_at_layers(graph, self._first_layers)

    def _share(self, stage: _core.Graph) -> _core.Graph:
        return stage if self._sharding is None else self._sharding.share(stage)


class LedPass:
    """A pass as rank 0 runs it: the others are told to do their parts."""

    def __init__(self, device: RankDevice, index: int, own: RankPass) -> None:
        self._device = device
        self._index = index
        self.own = own

    def run(
        self, batch: _core.Batch, pools: Sequence[KvPages] = (), slots: Slots | None = None
    ) -> dict[str, Floats]:
        shared = [_checked(SharedPages, p) for p in pools]
        store = None if slots is None else _checked(SharedSlots, slots)
        head = [self._index, -1 if store is None else store.index, len(shared)]
        head += [p.index for p in shared]
        words = np.concatenate([np.array(head, np.int32), batch.to_words()])
        with self._device.leader.command(Command.RUN, words):
            own_pools = [p.own for p in shared if p.own is not None]
            results = self.own.begin(batch, own_pools, None if store is None else store.own)
        # Another engine's step may begin while the later stages work on this one.
        return results()


def _end_process(group: Group) -> None:
    """End a process other than rank 0, which may wait for ever for one that is gone."""
    time.sleep(_EXIT_SECONDS)
    if threading.main_thread().is_alive():  # else it has met an error of its own, and said so
        print_failure(group.rank, group.failure or "")
    os._exit(1)


def _checked(kind: type[Kind], state: object) -> Kind:
    if not isinstance(state, kind):
        raise RequestError("the state was made by another device than the one that runs the step")
    return state
