"""The computation of each layer of a model, in a form that does not depend on the layer's number."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from oxibonsai import _core
from oxibonsai.architectures.layers import blocks
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.graph import Builder, Value
from oxibonsai.models import Weights, read_config
from oxibonsai.models.recorded_graph import Call, RecordedGraph

_LAYER = re.compile(r"\bblk\.[0-9]+\.")
_NAMES = {name: [field[0] for field in fields] for name, _, fields, _ in _core.graph_ops()}

# Ops that read no other value: what one layer computes for all that need it.
_TABLES = {
    name
    for name, _, fields, _ in _core.graph_ops()
    if not any("Value" in kind for _, kind, *_ in fields) and not name.startswith("embed")
}

# Calls with their arguments, none of which says which layer it is.
Calls = tuple[Any, ...]


@dataclass(frozen=True)
class LayerPasses:
    """A model's pass, taken apart.

    Attributes:
        layers: The calls of each.
        outside: Those before the first and after the last.
    """

    layers: list[Calls]
    outside: Calls


def layer_passes(checkpoint: Checkpoint) -> LayerPasses:
    """Return what the layers of a decoder compute.

    Raises:
        FormatError: A key or a tensor is missing or makes no sense.
        UnsupportedError: The architecture or a key is not known, or a tensor has no use.
    """
    config, weights, graph = read_config(checkpoint), Weights(checkpoint), RecordedGraph()
    ends: list[tuple[int, int]] = []

    def layer(g: Builder, c: Any, w: Any, i: int, h: Any) -> Any:
        first = len(graph.calls)
        handed_on = config.family.layer(g, c, w, i, h)
        ends.append((first, len(graph.calls)))
        return handed_on

    family, own = replace(config.family, layer=layer), config.of_family
    builder = Builder(config.hadamard)
    builder.graph = cast(_core.Graph, graph)
    h = family.final_norm(builder, own, weights, family.hidden_states(builder, own, weights))
    blocks.logits(builder, own, weights, h)
    weights.refuse_unused()
    first, last = ends[0][0], ends[-1][1]
    describe = _Descriptions(graph.calls, ends)
    return LayerPasses(
        [describe.calls(graph.calls[a:b], i) for i, (a, b) in enumerate(ends)],
        describe.calls([*graph.calls[:first], *graph.calls[last:]], len(ends)),
    )


def _arguments(call: Call) -> dict[str, Any]:
    return {**dict(zip(_NAMES[call.method], call.arguments, strict=False)), **call.named}


class _Descriptions:
    """Describes calls without the numbers of layers.

    Args:
        calls: All of a pass.
        ends: First and last one of each layer.
    """

    def __init__(self, calls: list[Call], ends: list[tuple[int, int]]) -> None:
        self._writers = {  # of each layer of the cache, by its number there
            _arguments(call)["layer"]: i
            for i, (first, last) in enumerate(ends)
            for call in calls[first:last]
            if call.method == "store_kv"
        }
        # What the first layer that needs it computes for all, such as a table of rotary embeddings.
        self._shared: dict[Value, Calls] = {}
        for call in calls:
            if call.method in _TABLES:
                self._shared[call.made] = self._call(call, 0, {})

    def calls(self, calls: list[Call], layer: int) -> Calls:
        """Return a layer's calls; values of layers before it are told apart from its own alone."""
        made: dict[Value, str] = {}
        found: list[Calls] = []
        for call in calls:
            if call.method not in _NAMES or call.method in _TABLES:
                continue
            results = call.made if isinstance(call.made, list | tuple) else [call.made]
            made |= {v: f"{len(found)}.{k}" for k, v in enumerate(results) if v is not None}
            found.append(self._call(call, layer, made))
        return tuple(found)

    def _call(self, call: Call, layer: int, made: dict[Value, str]) -> Calls:
        arguments = sorted(_arguments(call).items(), key=lambda item: item[0])
        return (call.method, *((n, self._argument(n, v, layer, made)) for n, v in arguments))

    def _argument(self, name: str, value: Any, layer: int, made: dict[Value, str]) -> Any:
        if name == "slot":  # each layer has its own
            return None
        if name == "layer":  # of the cache; 0: its own keys and values
            return layer - self._writers[value]
        if isinstance(value, list | tuple):
            return tuple(self._argument("", item, layer, made) for item in value)
        if isinstance(value, _core.Value):
            return made.get(value, self._shared.get(value, "handed on"))
        if isinstance(value, _core.Weight):
            return _LAYER.sub("", value.name), value.rows, value.cols, value.first_row
        if isinstance(value, np.ndarray):
            return value.shape, value.tobytes()
        return value
