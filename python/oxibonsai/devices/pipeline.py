"""Several devices as one: each runs some layers of a model and sends the next one its results.

The graph is cut at the borders of layers (``csrc/graph/stages.h``). No operation changes, so that all
bytes are those of one device.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices.protocols import Device, Executable, KvPages, Packed, Slots
from oxibonsai.errors import RequestError, UnsupportedError

_LAYER = re.compile(r"blk\.(\d+)\.")
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Stage:
    """A part of a graph and the device that runs it.

    Attributes:
        device: Runs it.
        graph: Its ops.
        paged: Which of the whole graph's layers of the cache are its own.
        slots: Which of the whole graph's entries of recurrent state are its own.
    """

    device: Device
    graph: _core.Graph
    paged: range
    slots: range


class StagedDevice(ABC):
    """A device of parts that run one model together.

    Attributes:
        stages: The parts that this process runs.
    """

    stages: list[Stage]


class DevicePlan(ABC):
    """Where a model is to run whose layers are not known yet."""

    @abstractmethod
    def place(self, graph: _core.Graph, layers: int) -> Device:
        """Return the device for a model's pass.

        Args:
            graph: The pass.
            layers: How many the model has.

        Raises:
            UnsupportedError: The graph has no border there over which only floats go.
        """


class Pipeline(StagedDevice):
    """A device made of several, for one model.

    Args:
        devices: At least two, in the order of the layers that they run.
        first_layers: Of each device but the first: its first layer, ascending; the number of layers
            for a device that only runs what follows the last one.
        graph: The model's pass, whose state decides where pages and slots lie.

    Raises:
        UnsupportedError: The graph has no border there over which only floats go.
    """

    def __init__(
        self, devices: Sequence[Device], first_layers: Sequence[int], graph: _core.Graph
    ) -> None:
        self._devices = list(devices)
        self._first_layers = list(first_layers)
        self._graph = graph
        self.stages = self._cut(graph)

    @property
    def name(self) -> str:
        """The names of its devices: ``cpu+cuda:0``."""
        return "+".join(d.name for d in self._devices)

    @property
    def tier(self) -> str:
        """The tiers of its devices."""
        return "+".join(d.tier for d in self._devices)

    @property
    def threads(self) -> int:
        """Worker threads of the host."""
        return max(d.threads for d in self._devices)

    @property
    def free_bytes(self) -> int | None:
        """Free bytes of all devices with memory of their own; None where none has any."""
        own = [n for d in self._devices if (n := d.free_bytes) is not None]
        return sum(own) if own else None

    def with_threads(self, threads: int) -> Pipeline:
        """Implement :meth:`Device.with_threads`."""
        devices = [d.with_threads(threads) for d in self._devices]
        return Pipeline(devices, self._first_layers, self._graph)

    def packed_size(self, weights: list[_core.Weight]) -> int:
        """Implement :meth:`Device.packed_size`."""
        return sum(device.packed_size(own) for device, own in self._shared_out(weights))

    def pack(
        self, weights: list[_core.Weight], progress: Callable[[int], None] | None = None
    ) -> Packed:
        """Implement :meth:`Device.pack`."""
        parts: list[Packed] = []
        for device, own in self._shared_out(weights):
            before = sum(p.nbytes for p in parts)

            def report(done: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + done)

            parts.append(device.pack(own, report))
        return _Parts(parts)

    def packed_nbytes(self, weight: _core.Weight) -> int | None:
        """Implement :meth:`Device.packed_nbytes`; of all devices that have it."""
        sizes = [
            n for d, own in self._shared_out([weight]) if own and (n := d.packed_nbytes(weight))
        ]
        return sum(sizes) if sizes else None

    def compile(self, graph: _core.Graph) -> Executable:
        """Implement :meth:`Device.compile`."""
        return _Executable(self._cut(graph), graph.outputs)

    def make_pages(
        self, layers: Sequence[_core.PagedLayer], type: str | Sequence[str], pages: int
    ) -> KvPages:
        """Implement :meth:`Device.make_pages`."""

        def part(stage: Stage) -> KvPages | None:
            own = [layers[i] for i in stage.paged]
            types = type if isinstance(type, str) else [type[i] for i in stage.paged]
            return stage.device.make_pages(own, types, pages) if own else None

        return _Pages([part(s) for s in self.stages], pages)

    def make_slots(self, entries: Sequence[int], slots: int) -> Slots:
        """Implement :meth:`Device.make_slots`."""

        def part(stage: Stage) -> Slots | None:
            own = [entries[i] for i in stage.slots]
            return stage.device.make_slots(own, slots) if own else None

        return _Slots([part(s) for s in self.stages], slots)

    def _shared_out(
        self, weights: list[_core.Weight]
    ) -> Iterable[tuple[Device, list[_core.Weight]]]:
        """Return weights by stage; those of no stage, of what follows the pass, go to the last device."""
        used = [{id(w) for w in stage.graph.matrices} for stage in self.stages]
        used[-1] |= {id(w) for w in weights} - set().union(*used)
        for stage, own in zip(self.stages, used, strict=True):
            yield stage.device, [w for w in weights if id(w) in own]

    def _cut(self, graph: _core.Graph) -> list[Stage]:
        parts = cut_at_layers(graph, self._first_layers)
        return [Stage(d, *part) for d, part in zip(self._devices, parts, strict=True)]


class LayerSplit(DevicePlan):
    """Which devices run a model whose layers are not known yet.

    Args:
        host: Runs the layers that are left to the CPU.
        cards: Run the others, in this order: each as many bytes of weights as its free memory's share.
        gpu_layers: How many of the last layers the cards run, what follows the last one counted as
            one more, as llama.cpp counts; None: all.
    """

    def __init__(self, host: Device, cards: Sequence[Device], gpu_layers: int | None) -> None:
        self._host = host
        self._cards = list(cards)
        self._gpu_layers = gpu_layers

    def place(self, graph: _core.Graph, layers: int) -> Device:
        """Implement :meth:`DevicePlan.place`; a pipeline where several devices run the model."""
        first = 0 if self._gpu_layers is None else max(layers + 1 - self._gpu_layers, 0)
        parts = [(self._host, 0)] if first > 0 else []
        if first <= layers:
            rooms = [card.free_bytes or 1 for card in self._cards]
            parts += zip(self._cards, share_layers(graph, first, layers, rooms), strict=True)
        # A card whose share is no layer is left out.
        begins = [begin for _, begin in parts[1:]] + [layers + 1]
        used = [p for p, end in zip(parts, begins, strict=True) if p[1] < end]
        if len(used) == 1:
            return used[0][0]
        return Pipeline([d for d, _ in used], [begin for _, begin in used[1:]], graph)


def share_layers(graph: _core.Graph, first: int, layers: int, rooms: Sequence[int]) -> list[int]:
    """Return the first layer of each of several devices.

    Args:
        graph: The model's pass.
        first: The first layer that they run.
        layers: How many the model has.
        rooms: In what proportion the devices take bytes of weights, as near as whole layers allow.
            What belongs to no layer counts as one more, behind the last.
    """
    sizes = [0] * (layers + 1)
    for weight in graph.matrices:
        layer = layer_of([weight.name])
        sizes[layers if layer is None else layer] += weight.nbytes
    return [first + begin for begin in _even_parts(sizes[first:], rooms)]


def _even_parts(sizes: Sequence[int], rooms: Sequence[int]) -> list[int]:
    """Return where each of the parts of a row begins whose largest share of its room is smallest.

    Among those the second largest decides, and so on, so that no part is empty for nothing. The order
    of two beginnings stays when the same part follows both: the best parts up to each place are found
    from the best ones with one part less.
    """
    ends = [0, *itertools.accumulate(sizes)]
    best = {end: ([total / rooms[0]], [0]) for end, total in enumerate(ends)}
    for room in rooms[1:]:
        best = {
            end: min(
                (sorted([*shares, (total - ends[begin]) / room], reverse=True), [*begins, begin])
                for begin, (shares, begins) in best.items()
                if begin <= end
            )
            for end, total in enumerate(ends)
        }
    return best[len(sizes)][1]


def cut_at_layers(
    graph: _core.Graph, first_layers: Sequence[int]
) -> list[tuple[_core.Graph, range, range]]:
    """Return the parts of a pass, with their layers of the cache and entries of recurrent state.

    Args:
        graph: The pass.
        first_layers: Of each part but the first, ascending.

    Raises:
        UnsupportedError: The graph has no border there over which only floats go.
    """
    parts = graph.cut([_border(graph, layer) for layer in first_layers])
    return [(part, _range(paged), _range(slots)) for part, paged, slots in parts]


def layer_of(op_matrices: list[str]) -> int | None:
    """Return the layer whose matrices an op reads; None for those of no layer."""
    found = (_LAYER.match(name) for name in op_matrices)
    return next((int(m[1]) for m in found if m), None)


def _border(graph: _core.Graph, layer: int) -> int:
    """Return the op before which a layer begins: where the fewest floats cross."""
    matrices = graph.op_matrices
    layers = [layer_of(names) for names in matrices]
    before = [i for i, n in enumerate(layers) if n is not None and n < layer]
    if not before:
        return 0
    # A matrix of no layer behind the last one before the border is of the head.
    begin = before[-1] + 1
    end = next((i for i in range(begin, len(layers)) if matrices[i]), None)
    if end is None:
        return len(layers)
    widths = [(w, -at) for at in range(begin, end + 1) if (w := graph.crossing_columns(at))]
    if not widths:
        raise UnsupportedError(
            f"this model cannot be cut before layer {layer}: choose other layers for the devices"
        )
    return -min(widths)[1]


def _range(indices: list[int]) -> range:
    """Return consecutive indices as a range, so that a stage's part of a page is one piece of it."""
    if not indices:
        return range(0)
    own = range(indices[0], indices[-1] + 1)
    if indices != list(own):
        raise UnsupportedError("the layers of this model cannot be shared out over devices")
    return own


class _Parts:
    """The packed weights of all stages."""

    def __init__(self, parts: list[Packed]) -> None:
        self._parts = parts

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self._parts)


class _Executable:
    """The stages of a graph, compiled, each for its device."""

    def __init__(self, stages: list[Stage], outputs: list[str]) -> None:
        self._outputs = outputs
        self._stages = [
            (i, s, s.device.compile(s.graph)) for i, s in enumerate(stages) if s.graph.ops
        ]

    def run(
        self, batch: _core.Batch, pools: Sequence[KvPages] = (), slots: Slots | None = None
    ) -> dict[str, Floats]:
        values: dict[str, Floats] = {}
        for i, stage, executable in self._stages:
            own_pools = [_part(_Pages, p, i) for p in pools] if stage.paged else []
            own_slots = _part(_Slots, slots, i) if stage.slots else None
            own_batch = batch.for_stage(stage.graph, values)
            values |= executable.run(own_batch, own_pools, own_slots)
        return {name: values[name] for name in self._outputs}


class _Pages:
    """Pages of which each stage has those of its layers."""

    def __init__(self, parts: list[KvPages | None], pages: int) -> None:
        self.parts = parts
        self.pages = pages
        self._own = [p for p in parts if p is not None]

    @property
    def type(self) -> str:
        return "+".join(dict.fromkeys(t for p in self._own for t in p.type.split("+")))

    @property
    def page_bytes(self) -> int:
        return sum(p.page_bytes for p in self._own)

    def copy(self, source: int, target: int) -> None:
        for part in self._own:
            part.copy(source, target)

    def read(self, page: int) -> bytes:
        return b"".join(part.read(page) for part in self._own)

    def write(self, page: int, data: bytes) -> None:
        _check_size("a page of this KV cache", self.page_bytes, data)
        for part in self._own:
            part.write(page, data[: part.page_bytes])
            data = data[part.page_bytes :]

    def release(self, page: int) -> None:
        for part in self._own:
            part.release(page)


class _Slots:
    """Slots of which each stage has the entries of its layers."""

    def __init__(self, parts: list[Slots | None], slots: int) -> None:
        self.parts = parts
        self.slots = slots
        self._own = [p for p in parts if p is not None]

    @property
    def slot_bytes(self) -> int:
        return sum(p.slot_bytes for p in self._own)

    def copy(self, source: int, target: int) -> None:
        for part in self._own:
            part.copy(source, target)

    def read(self, slot: int) -> bytes:
        return b"".join(part.read(slot) for part in self._own)

    def write(self, slot: int, data: bytes) -> None:
        _check_size("a slot of this state", self.slot_bytes, data)
        for part in self._own:
            part.write(slot, data[: part.slot_bytes])
            data = data[part.slot_bytes :]


def _check_size(what: str, size: int, data: bytes) -> None:
    if len(data) != size:
        raise RequestError(f"{what} has {size} bytes, not {len(data)}")


def _part(kind: type[_Pages] | type[_Slots], state: object, stage: int) -> Any:
    if not isinstance(state, kind):
        raise RequestError("the state was made by another device than the one that runs the step")
    return state.parts[stage]
