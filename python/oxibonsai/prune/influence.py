"""How much each layer of a model changes its hidden states: block influence, as ShortGPT defines it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine import Engine
from oxibonsai.engine.windows import read_windows
from oxibonsai.errors import FormatError

Doubles = npt.NDArray[np.float64]

_LEAST_NORM = 1e-8  # by which torch's cosine_similarity divides where a norm is less


@dataclass(frozen=True)
class Influences:
    """Block influence of all layers.

    Attributes:
        values: One minus the mean cosine between a layer's input and its output, for each layer. The
            cosine is 0 where one of them is zero.
        windows, tokens: That the means are over.
    """

    values: tuple[float, ...]
    windows: int
    tokens: int

    def lowest(self, count: int) -> list[int]:
        """Return the layers with the lowest influence, in their order; of equal ones, the last."""
        order = sorted(range(len(self.values)), key=lambda i: (self.values[i], -i))
        return sorted(order[:count])


def measure_influences(engine: Engine, windows: Sequence[Sequence[int]]) -> Iterator[Influences]:
    """Run a model over windows of a text, each from an empty context.

    Args:
        engine: A decoder whose context holds a window.
        windows: Token ids.

    Yields:
        After each window, what has been found so far.

    Raises:
        RequestError: A window is no prompt for the model.
        UnsupportedError: The model's layers don't begin with a norm, so that nothing is known of what
            is between them.
        FormatError: The model computes something that is no number.
    """
    model = engine.model
    layers = model.config.num_hidden_layers
    taps = range(layers + 1)
    checked = [engine.check_prompt(window) for window in windows]

    def run(batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None) -> Doubles:
        _, states = model.run_with_hidden_states(batch, pools, slots, taps)
        return _cosines([s.astype(np.float64) for s in states])

    sums, tokens = np.zeros(layers), 0
    read = read_windows(model, engine.kv_type, checked, run, outputs=False)
    for done, (window, steps) in enumerate(zip(checked, read, strict=True), 1):
        for step in steps:
            sums += step
        tokens += len(window)
        if not np.isfinite(sums).all():
            raise FormatError(
                f"the hidden states of {model.weights.checkpoint.path} are no finite numbers: its file "
                "is damaged"
            )
        yield Influences(tuple((1 - sums / tokens).tolist()), done, tokens)


def _cosines(states: list[Doubles]) -> Doubles:
    """Return the sums over all tokens of the cosines between neighbours: [layers]."""
    norms = [np.maximum(np.sqrt(np.einsum("ij,ij->i", s, s)), _LEAST_NORM) for s in states]
    pairs = zip(states[:-1], states[1:], norms[:-1], norms[1:], strict=True)
    return np.array([(np.einsum("ij,ij->i", a, b) / (n * m)).sum() for a, b, n, m in pairs])
