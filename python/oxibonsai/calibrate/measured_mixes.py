"""Measure what types of a model's matrices cost its predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine.windows import read_windows
from oxibonsai.models import Model
from oxibonsai.quantize.blocks import Bytes

LogProbs = npt.NDArray[np.float32]

# Encodes the tensor of a name in the type of a name; [rows, bytes of a row].
Encode = Callable[[str, str], Bytes]


class MeasuredMixes:
    """A model with some of its matrices rounded, beside the same model without.

    A matrix is encoded once in each type, and kept.

    Args:
        model: The source, loaded.
        kv_type: Of cached keys and values; None: it keeps none.
        windows: Token ids of the text, all windows of one length.
        encode: Rounds a matrix.
    """

    def __init__(
        self, model: Model, kv_type: str | None, windows: Sequence[Sequence[int]], encode: Encode
    ) -> None:
        self._model, self._kv_type, self._windows = model, kv_type, windows
        self._encode = encode
        self._encoded: dict[tuple[str, str], _core.Weight] = {}
        self._base = list(self._log_probs(model))

    def divergence(self, types: Mapping[str, str]) -> float:
        """Return the mean Kullback-Leibler divergence over the text's tokens, nats.

        Args:
            types: Of the matrices that are rounded, by the tensors' names.
        """
        rounded = {name: self._weight(name, kind) for name, kind in types.items()}
        total, rows = 0.0, 0
        steps = self._log_probs(self._model.with_matrices(rounded))
        for p, q in zip(self._base, steps, strict=True):
            np.subtract(p, q, out=q)
            total += float(np.einsum("ij,ij->i", np.exp(p), q).sum(dtype=np.float64))
            rows += len(p)
        return total / rows

    def _weight(self, name: str, kind: str) -> _core.Weight:
        if (name, kind) not in self._encoded:
            cols = self._model.weights.shape(name)[-1]
            blocks = self._encode(name, kind)
            self._encoded[name, kind] = _core.Weight.from_blocks(name, kind, blocks, cols)
        return self._encoded[name, kind]

    def _log_probs(self, model: Model) -> Iterator[LogProbs]:
        """Yield a model's log-probabilities of all tokens, by steps of the text."""
        program = model.program(model.main_pass)
        (name,) = model.main_pass.outputs

        def run(batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None) -> LogProbs:
            logits: LogProbs = program.run(batch, pools, slots)[name]
            found: LogProbs = logits - logits.max(axis=1, keepdims=True)
            sums: LogProbs = np.exp(found).sum(axis=1, keepdims=True, dtype=np.float32)
            found -= np.log(sums)
            return found

        for steps in read_windows(model, self._kv_type, self._windows, run, outputs=True):
            yield from steps
