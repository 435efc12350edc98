"""Drafters of EAGLE-3, compiled for a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures import eagle3
from oxibonsai.architectures.layers.drafting import HIDDEN, LOGITS, STATES
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import KvPages
from oxibonsai.graph import Builder
from oxibonsai.models.drafting import (
    DrafterPasses,
    DrafterWeights,
    TargetModel,
    check_fit,
    over_vocabulary,
)
from oxibonsai.models.keys import Keys
from oxibonsai.models.model import Model

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True)
class DescribedDrafter:
    """A drafter's passes, for no device.

    Attributes:
        config: Its dimensions.
        ids: The model's ids of the tokens that it can propose; None: all.
        of_text: The pass of tokens of a text.
        of_draft: The pass of tokens of a proposal.
    """

    config: eagle3.Config
    ids: npt.NDArray[np.int64] | None
    of_text: _core.Graph
    of_draft: _core.Graph


def describe_drafter(model: TargetModel, file: Checkpoint) -> DescribedDrafter:
    """Describe the passes of a drafter's file; arguments and errors as of :class:`EagleDrafter`."""
    keys, vocabulary = Keys(file), model.config.vocab_size
    c = eagle3.read_config(keys, vocabulary)
    keys.refuse_unread()
    check_fit(model, file, c.target_layers, c.hidden_size, c.target_hidden_size)
    weights = DrafterWeights(file, model, norm=False)
    graphs = []
    for width in (model.config.hidden_size, None):
        builder = Builder(weights.rotation)
        eagle3.drafting_pass(builder, c, weights, width)
        graphs.append(builder.graph)
    ids = weights.draft_ids(c.draft_vocab_size, vocabulary)
    weights.refuse_unused()
    return DescribedDrafter(c, ids, *graphs)


class EagleDrafter:
    """A drafter's file, on the device of the model's last layers.

    Args:
        model: Whose hidden states it reads, and whose vocabulary it uses where it has none.
        file: The drafter.

    Attributes:
        config: Its dimensions.

    Raises:
        FormatError: A key or a tensor is missing, or does not fit the model.
        UnsupportedError: The file has a key or a tensor that is not known.
    """

    def __init__(self, model: Model, file: Checkpoint) -> None:
        described = describe_drafter(model, file)
        self.config, self._ids = described.config, described.ids
        self._layers = described.of_text.paged_layers
        self._passes = DrafterPasses(model, file, [described.of_text, described.of_draft])

    def new_pages(self, kv_type: str, pages: int) -> KvPages:
        """Return the drafter's cache of keys and values."""
        return self._passes.device.make_pages(self._layers, kv_type, pages)

    def read_text(
        self, batch: _core.Batch, pools: list[KvPages], states: Rows
    ) -> tuple[Rows, Rows]:
        """Return logits and states for tokens of a text.

        Args:
            batch: Tokens, each at the position of the token before it.
            pools: Where their pages lie.
            states: float32 [rows, target_layers * hidden], the model's of the token before each.

        Returns:
            Of each output row the logits of the token after it, float32 [outputs, vocabulary], and the
            drafter's state, [outputs, hidden].
        """
        return self._run(0, batch, pools, states)

    def read_draft(
        self, batch: _core.Batch, pools: list[KvPages], states: Rows
    ) -> tuple[Rows, Rows]:
        """Return the same for tokens of a proposal; ``states`` is the drafter's, [rows, hidden]."""
        return self._run(1, batch, pools, states)

    def _run(
        self, index: int, batch: _core.Batch, pools: list[KvPages], states: Rows
    ) -> tuple[Rows, Rows]:
        batch.set_input(STATES, np.ascontiguousarray(states))
        results = self._passes.executables[index].run(batch, pools, None)
        logits = over_vocabulary(results[LOGITS], self._ids, self.config.vocab_size)
        return logits, results[HIDDEN]
