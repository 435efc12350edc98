"""A pass of the model as one process runs its part of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import Executable, KvPages, Slots
from oxibonsai.distributed.group import Floats, Group

# A prompt is passed on in pieces of at least so many rows, so that the stages work on it at the same
# time. Fewer rows would have each stage read its weights more often than that saves.
_PIECE_ROWS = 64

Matrix = tuple[str, str, int]  # name, row space, columns


class RankPass:
    """This process's part of a pass, and what goes to and from the others.

    Args:
        group: The processes.
        stages: What each stage has of the whole graph, before its rows are shared.
        own: The share of this process.
        executable: ``own``, compiled; None where it has no ops.
        results: Of the whole graph.
    """

    def __init__(
        self,
        group: Group,
        stages: list[_core.Graph],
        own: _core.Graph,
        executable: Executable | None,
        results: list[Matrix],
    ) -> None:
        layout = group.layout
        self._group = group
        self._graph = own
        self._executable = executable
        self._results = sorted(results)
        self._received = crossing(stages, layout.stage, results)
        self._sent = crossing(stages, layout.stage + 1, results)

    @property
    def has_pages(self) -> bool:
        """Whether this stage keeps keys and values."""
        return bool(self._graph.paged_layers)

    @property
    def has_slots(self) -> bool:
        """Whether this stage keeps recurrent state."""
        return bool(self._graph.slot_entries)

    def run(
        self, batch: _core.Batch, pools: list[KvPages], slots: Slots | None
    ) -> dict[str, Floats]:
        """Run this process's part of a step; results are on rank 0 alone. See :meth:`begin`."""
        return self.begin(batch, pools, slots)()

    def begin(
        self, batch: _core.Batch, pools: list[KvPages], slots: Slots | None
    ) -> Callable[[], dict[str, Floats]]:
        """Begin this process's part of a step; return a function that waits for the results of rank 0.

        Rank 0 may begin the next step before: the stages then work on one each.

        Args:
            batch: The same in all processes.
            pools: Of this process; none where its stage keeps no keys and values.
            slots: Of this process.
        """
        layout = self._group.layout
        pieces = [batch]
        if layout.pipeline > 1:
            least = max(_PIECE_ROWS, -(-len(batch) // layout.pipeline))
            pieces = batch.pieces(least)
        made = [self._run_piece(p, pools, slots) for p in pieces]
        if layout.pipeline > 1 and layout.rank == layout.results_from:
            # Behind the last piece: until then rank 0 is busy with its own stage.
            names = [name for name, _, _ in self._sent]
            self._send({n: np.concatenate([m[n] for m in made]) for n in names}, 0)
        if layout.rank != 0:
            return dict
        if layout.pipeline > 1:
            return self._receive_later(batch, self._results, layout.results_from)
        return lambda: made[0]

    def _run_piece(
        self, batch: _core.Batch, pools: list[KvPages], slots: Slots | None
    ) -> dict[str, Floats]:
        layout = self._group.layout
        values: dict[str, Floats] = {}
        if layout.stage > 0:
            values = self._receive_later(batch, self._received, layout.previous)()
        if self._is_idle(batch):
            values |= {name: np.empty((0, cols), np.float32) for name, _, cols in self._sent}
        elif self._executable is not None:
            own = batch if layout.pipeline == 1 else batch.for_stage(self._graph, values)
            values |= self._executable.run(own, pools, slots)
        if not layout.is_last_stage:
            self._send(values, layout.next)
        return values

    def _is_idle(self, batch: _core.Batch) -> bool:
        """Return whether this stage only reads rows that want a result, and none does."""
        spaces = {space for _, space, _ in self._received}
        return batch.num_outputs == 0 and spaces == {"outputs"}

    def _send(self, values: dict[str, Floats], to: int) -> None:
        parts = [values[name].ravel() for name, _, _ in self._sent]
        message = np.concatenate(parts) if parts else np.empty(0, np.float32)
        if message.size:
            self._group.send(message, to)

    def _receive_later(
        self, batch: _core.Batch, values: list[Matrix], source: int
    ) -> Callable[[], dict[str, Floats]]:
        shapes = [(_rows(batch, space), columns) for _, space, columns in values]
        message = np.empty(sum(r * c for r, c in shapes), np.float32)
        wait = self._group.receive_later(message, source) if message.size else None

        def received() -> dict[str, Floats]:
            if wait is not None:
                wait()
            parts, at = {}, 0
            for (name, _, _), (rows, columns) in zip(values, shapes, strict=True):
                parts[name] = message[at : at + rows * columns].reshape(rows, columns)
                at += rows * columns
            return parts

        return received


def crossing(stages: list[_core.Graph], at: int, results: list[Matrix]) -> list[Matrix]:
    """Return the values that go from the stages before ``at`` to later ones, or to rank 0."""
    made = {name: (name, space, cols) for g in stages[:at] for name, space, cols in g.results}
    read = {name for g in stages[at:] for name, _, _ in g.inputs}
    read |= {name for name, _, _ in results}
    return [made[name] for name in sorted(read) if name in made]


def _rows(batch: _core.Batch, space: str) -> int:
    return batch.num_outputs if space == "outputs" else len(batch)
