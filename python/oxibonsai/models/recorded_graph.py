"""The pass of a model as the calls that make its graph, for who repeats them elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from oxibonsai import _core
from oxibonsai.architectures.layers import blocks
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import Builder
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.model import biases
from oxibonsai.models.passes import GENERATE
from oxibonsai.models.weights import Weights

_DECLARATIONS = frozenset({"add_paged_layer", "add_slot", "set_output"})
_OPS = frozenset(name for name, *_ in _core.graph_ops())


class Call(NamedTuple):
    """A call of one of the graph's methods.

    Attributes:
        method: Its name.
        arguments: In order.
        named: By name.
        made: What it returned.
    """

    method: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    made: Any = None


class RecordedGraph:
    """A graph that notes the calls that make it.

    Attributes:
        calls: In order.
    """

    def __init__(self) -> None:
        self._graph = _core.Graph()
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        held = getattr(self._graph, name)
        if name not in _OPS | _DECLARATIONS:
            return held

        def call(*arguments: Any, **named: Any) -> Any:
            made = held(*arguments, **named)
            self.calls.append(Call(name, arguments, named, made))
            return made

        return call

    def input(self, name: str, *_: Any) -> _core.Value:
        """Refuse what comes with a batch besides its tokens."""
        raise UnsupportedError(f"the pass reads {name} besides tokens, which is not exported")


def record_logits(config: ModelConfig, weights: Weights) -> list[Call]:
    """Return the calls that make the pass from tokens to the results of ``GENERATE``.

    Raises:
        FormatError: A tensor is missing or makes no sense.
        UnsupportedError: The model does not generate, or has an encoder, or a tensor is unknown.
    """
    if not config.generates or config.decoder is not None or config.family.encode is not None:
        raise UnsupportedError(
            f"{weights.checkpoint.path} is no model that continues a text by itself"
        )
    family, own = config.family, config.of_family
    weights.know_biases(biases(family, own))
    builder, graph = Builder(config.hadamard), RecordedGraph()
    builder.graph = cast(_core.Graph, graph)
    h = builder.select_outputs(family.hidden_states(builder, own, weights))
    h = family.final_norm(builder, own, weights, h)
    builder.output(GENERATE.outputs[0], blocks.logits(builder, own, weights, h))
    weights.refuse_unused()
    return graph.calls
