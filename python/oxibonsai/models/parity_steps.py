"""Steps as an engine makes them, on two devices: contexts, several sequences, replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import Device, Executable
from oxibonsai.models.parity_graphs import Values

# A step comes so often: a CUDA graph is captured the second time and replayed from the third on.
REPEATS = 4
# Each number of rows chooses another of a GPU's kernels for products: for 1, to 4, to 8 and more.
GPU_ROW_COUNTS = (1, 3, 6, 70)
# Any vocabulary has so many.
_TOKENS = 16


@dataclass(frozen=True)
class Span:
    """Rows of one sequence in a step, and the position of the first."""

    rows: int
    first: int = 0


Step = Sequence[Span]


def rows_only(*counts: int) -> list[Step]:
    """Return a step of one sequence for each count of rows."""
    return [[Span(rows)] for rows in counts]


# A prompt, tokens of one sequence and of several with a draft among them; some have more than a part
# of attention (512 positions) behind them.
DECODING: list[Step] = [
    [Span(70, 470)],
    [Span(1, 530)],
    [Span(1, 517), Span(1, 70), Span(1, 3)],
    [Span(1, 64), Span(5, 520), Span(1, 130)],
]
# Besides, a token with more parts behind it than are merged at once.
LONG_DECODING: list[Step] = [*DECODING, [Span(1, 2100)]]


class StepMaker:
    """Batches of random inputs for a graph, of sequences with pages of their own."""

    def __init__(self, graph: _core.Graph, steps: Sequence[Step]) -> None:
        self._graph = graph
        spans = [span for step in steps for span in step]
        self.sequences = max(len(step) for step in steps)
        self._each = max(-(-(s.first + s.rows) // _core.PAGE_POSITIONS) for s in spans)
        self.pages = self.sequences * self._each

    def step(self, step: Step) -> _core.Batch:
        """Return the batch of a step; each row has an output."""
        places = [range(i * self._each, (i + 1) * self._each) for i in range(len(step))]
        return self._batch(list(zip(step, places, strict=True)))

    def page(self, page: int) -> _core.Batch:
        """Return a batch that fills a page: a sequence that has no other."""
        return self._batch([(Span(_core.PAGE_POSITIONS), range(page, page + 1))])

    def _batch(self, spans: list[tuple[Span, range]]) -> _core.Batch:
        seed = [n for span, pages in spans for n in (span.rows, span.first, pages.start)]
        random = np.random.default_rng(seed)
        batch = _core.Batch()
        for slot, (span, pages) in enumerate(spans):
            if "embed" in self._graph.ops:
                tokens = [int(t) for t in random.integers(0, _TOKENS, span.rows)]
                batch.add(tokens, first=span.first, pages=list(pages), slot=slot, outputs=span.rows)
            else:
                batch.add_span(
                    span.rows, first=span.first, pages=list(pages), slot=slot, outputs=span.rows
                )
        rows = sum(span.rows for span, _ in spans)
        if axes := self._graph.position_axes:
            batch.set_positions(random.integers(0, 4000, (rows, axes)).astype(np.int32))
        for name, _, cols in self._graph.inputs:
            batch.set_input(name, random_activations(random, rows, cols))
        return batch


def random_activations(random: np.random.Generator, rows: int, cols: int) -> Values:
    """Return random values as activations have them, of which a few are large."""
    values = random.standard_normal((rows, cols), dtype=np.float32)
    values[:, ::61] *= 16
    return values


def compare_steps(
    graph: _core.Graph, device: Device, definition: Device, kv_type: str, steps: Sequence[Step]
) -> tuple[bool, set[str]]:
    """Return whether any step gives other bytes, and the names of the kernels that a GPU launched.

    Args:
        graph: Without recurrent state.
        device: To compare.
        definition: With what; both start with keys and values that it has made.
        kv_type: Of those.
        steps: Each comes :data:`REPEATS` times on the device.
    """
    devices = device, definition
    executables = [d.compile(graph) for d in devices]
    keep_kernel_names(executables[0])
    maker = StepMaker(graph, steps)
    layers = graph.paged_layers
    given, wanted = (
        [d.make_pages(layers, kv_type, maker.pages)] if layers else [] for d in devices
    )
    for page in range(maker.pages if layers else 0):
        executables[1].run(maker.page(page), wanted)
        given[0].write(page, wanted[0].read(page))
    differ = False
    for step in steps:
        batch = maker.step(step)
        result = executables[1].run(batch, wanted)
        for _ in range(REPEATS):
            found = executables[0].run(batch, given)
            differ |= any(found[name].tobytes() != y.tobytes() for name, y in result.items())
    for page in range(maker.pages if layers else 0):
        differ |= given[0].read(page) != wanted[0].read(page)
    return differ, kernel_names(executables[0])


def keep_kernel_names(executable: Executable) -> None:
    """Let a GPU's executable keep the names of the kernels that it launches; of a CPU it has none."""
    if isinstance(executable, _core.GpuExecutable):
        executable.keep_kernel_names()


def kernel_names(executable: Executable) -> set[str]:
    """Return the names of the kernels that a GPU's executable has launched; none of a CPU's."""
    return set(executable.kernel_names()) if isinstance(executable, _core.GpuExecutable) else set()
