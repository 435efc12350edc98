"""Predict a step's traffic from the graph alone."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai import _core
from oxibonsai.devices import cut_at_layers, share_layers
from oxibonsai.distributed.group import Floats
from oxibonsai.distributed.layout import Layout
from oxibonsai.distributed.passes import crossing


@dataclass(frozen=True)
class StepTraffic:
    """The bytes that one process sends in a step, besides rank 0's command, counted as ``Traffic``.

    Attributes:
        gathers, gathered_bytes, sends, sent_bytes: As of :class:`~oxibonsai.distributed.group.Traffic`.
        weight_bytes: Of the file, that this process reads for a token (of experts: all of them).
    """

    gathers: int
    gathered_bytes: int
    sends: int
    sent_bytes: int
    weight_bytes: int


def predict(
    graph: _core.Graph, layers: int, layout: Layout, rows: int = 1, outputs: int = 1
) -> StepTraffic:
    """Return the traffic of a process in a step of one piece.

    Args:
        graph: The model's pass.
        layers: How many the model has.
        layout: Which process.
        rows: Of the step.
        outputs: Those of them that want a result.
    """
    stages = [graph]
    if layout.pipeline > 1:
        borders = share_layers(graph, 0, layers, [1] * layout.pipeline)[1:]
        stages = [g for g, _, _ in cut_at_layers(graph, borders)]
    own = stages[layout.stage]

    def floats(space: str, columns: int) -> int:
        # "routed(k)" has a row for each of the k experts of a token.
        experts = int(space[len("routed(") : -1]) if space.startswith("routed(") else 1
        return columns * (outputs if space == "outputs" else rows * experts)

    gathered = [0]
    if layout.tensor > 1:
        exchange = _core.Exchange(layout.tensor, layout.row_share, _nobody)
        own = _core.Sharding(exchange).share(own)
        gathered = [4 * floats(space, cols) for space, cols in _core.Sharding.messages(own)]
    sent = [0]
    if layout.pipeline > 1 and (not layout.is_last_stage or layout.rank == layout.results_from):
        values = crossing(stages, layout.stage + 1, graph.results)
        sent = [sum(4 * floats(space, cols) for _, space, cols in values)]
    return StepTraffic(
        gathers=sum(b > 0 for b in gathered),
        gathered_bytes=sum(gathered),
        sends=sum(b > 0 for b in sent),
        sent_bytes=sum(sent),
        weight_bytes=sum(w.nbytes for w in own.matrices),
    )


def _nobody(own: Floats, everything: Floats) -> None:
    raise AssertionError("a prediction exchanges nothing")
