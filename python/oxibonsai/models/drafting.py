"""Multi-token prediction: a layer of the file that guesses the token after the next one.

It reads a token's hidden states and the token after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import KvPages
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.model import Model
from oxibonsai.models.packing import pack
from oxibonsai.models.weights import Weights

Rows = npt.NDArray[np.float32]

# Its input and outputs.
_STATES, _LOGITS, _HIDDEN = "states", "logits", "hidden"


class _OwnCache(Builder):
    """The layer has a cache of its own, whichever layer of the model it is."""

    def attention(self, *args: Any, layer: int, **options: Any) -> Value:
        """As of :class:`Builder`."""
        return super().attention(*args, layer=0, **options)


class DraftingLayer:
    """The layer past those of a model's pass, compiled for the device of the model's last layers.

    Args:
        model: Its matrices are shared.

    Attributes:
        graph: The layer, from token and hidden states to logits.

    Raises:
        UnsupportedError: The file has no such layer, or its architecture none that is known.
    """

    def __init__(self, model: Model) -> None:
        c, architecture = model.config, model.architecture
        where = f"{model.weights.checkpoint.path} ({c.architecture})"
        if c.num_nextn_predict_layers == 0:
            raise UnsupportedError(
                f"{where} has no layer that predicts further tokens (nextn_predict_layers): speculate "
                "by n-grams or with a draft model"
            )
        if architecture.drafting_layer is None:
            raise UnsupportedError(
                f"{where}: layers that predict further tokens are not supported for this architecture"
            )
        builder = _OwnCache(c.hadamard)
        _describe(builder, architecture, c, model.weights)
        self.graph = builder.graph
        # Of several devices the last one, which has the output matrix.
        self._device, stage = model.stages[-1]
        packed = set(stage.matrices)
        own = [w for w in self.graph.matrices if w not in packed]
        self._kept = (model, pack(own, model.weights.checkpoint, self._device))
        self._executable = self._device.compile(self.graph)

    def new_pages(self, kv_type: str, pages: int) -> KvPages:
        """Its cache of keys and values."""
        return self._device.make_pages(self.graph.paged_layers, kv_type, pages)

    def run(self, batch: _core.Batch, pools: list[KvPages], states: Rows) -> tuple[Rows, Rows]:
        """Logits of the token after that of each output row, and hidden states to go on from.

        Args:
            batch: Tokens, each at the position of the token before it.
            pools: Where their pages lie.
            states: float32 [rows, hidden]: of the token before each, after the final norm.

        Returns:
            float32 [outputs, vocabulary] and [outputs, hidden].
        """
        batch.set_input(_STATES, np.ascontiguousarray(states))
        results = self._executable.run(batch, pools, None)
        return results[_LOGITS], results[_HIDDEN]


def _describe(g: Builder, architecture: Architecture, c: ModelConfig, w: Weights) -> None:
    layer = c.num_hidden_layers
    b, hidden = f"blk.{layer}.nextn", c.hidden_size
    assert architecture.drafting_layer is not None

    def normed(x: Value, name: str) -> Value:
        return g.rms_norm(x, w.vector(f"{name}.weight", hidden), c.rms_norm_eps)

    table = w.embedding(c)
    if w.has(f"{b}.embed_tokens.weight"):
        table = w.matrix(f"{b}.embed_tokens", c.vocab_size, hidden)
    token = normed(g.embed(table), f"{b}.enorm")
    state = normed(g.input(_STATES, hidden), f"{b}.hnorm")
    (h,) = g.linear(g.join_heads(token, state, 1), w.matrix(f"{b}.eh_proj", hidden, 2 * hidden))
    h = architecture.drafting_layer(g, c, w, layer, h)
    own_norm = w.has(f"{b}.shared_head_norm.weight")
    h = normed(g.select_outputs(h), f"{b}.shared_head_norm" if own_norm else "output_norm")
    g.output(_HIDDEN, h)
    if w.has(f"{b}.shared_head_head.weight"):
        (logits,) = g.linear(h, w.matrix(f"{b}.shared_head_head", c.vocab_size, hidden))
        g.output(_LOGITS, logits)
    else:
        g.output(_LOGITS, architecture.logits(g, c, w, h))
