"""Drafters that propose a block of tokens at once (DFlash, DSpark, DFlash 2), compiled for a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures import dflash
from oxibonsai.architectures.dflash import AFTER, BEFORE, BIAS, GATE, ROW
from oxibonsai.architectures.layers.drafting import HIDDEN, LOGITS, STATES
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import KvPages, Slots
from oxibonsai.graph import Builder
from oxibonsai.models.drafting import (
    DrafterPasses,
    DrafterWeights,
    check_fit,
    over_vocabulary,
)
from oxibonsai.models.keys import Keys
from oxibonsai.models.model import Model

Floats = npt.NDArray[np.float32]
_MASK = "tokenizer.ggml.mask_token_id"


class BlockDrafter:
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
        keys = Keys(file)
        vocabulary = model.config.vocab_size
        self.config = c = dflash.read_config(keys, vocabulary, file.file.get(_MASK))
        keys.refuse_unread()
        check_fit(model, file, c.target_layers, c.hidden_size)
        self._weights = w = DrafterWeights(file, model, norm=False)
        width = model.config.hidden_size
        graphs = [
            self._described(lambda g: dflash.observing_pass(g, c, w, width)),
            self._described(lambda g: dflash.drafting_pass(g, c, w)),
        ]
        if c.markov_rank > 0:
            graphs.append(self._described(lambda g: dflash.markov_pass(g, c, w)))
        if c.selector_rank > 0:
            graphs.append(self._described(lambda g: dflash.pair_pass(g, c, w)))
        self._confidence = self._read_confidence()
        self._ids = w.draft_ids(c.draft_vocab_size, vocabulary)
        w.refuse_unused()
        self._graphs = graphs
        self._compiled = DrafterPasses(model, file, graphs)
        self._passes = self._compiled.executables

    def _described(self, describe: Callable[[Builder], None]) -> _core.Graph:
        builder = Builder(self._weights.rotation)
        describe(builder)
        return builder.graph

    def _read_confidence(self) -> tuple[Floats, Floats, float] | None:
        """Return the weights of hidden states and of a Markov row, and the bias; None: there are none."""
        c, w, name = self.config, self._weights, "conf_proj.weight"
        if c.markov_rank == 0 or not w.has(name):
            return None
        size = c.hidden_size + c.markov_rank
        shape = (size,) if len(w.shape(name)) == 1 else (1, size)
        values = w.floats(name, *shape).ravel()
        bias = w.bias("conf_proj", 1)
        return (
            values[: c.hidden_size],
            values[c.hidden_size :],
            0.0 if bias is None else float(bias[0]),
        )

    @property
    def has_confidence(self) -> bool:
        """Whether it estimates how sure its tokens are; else their probabilities have to do."""
        return self._confidence is not None

    def new_pages(self, kv_type: str, pages: int) -> KvPages:
        """Return the drafter's cache of keys and values."""
        return self._compiled.device.make_pages(self._graphs[1].paged_layers, kv_type, pages)

    def new_slots(self, count: int) -> Slots | None:
        """Return slots for the rows before a block; None: it looks back at none."""
        entries = self._graphs[1].slot_entries
        return self._compiled.device.make_slots(entries, count) if entries else None

    def observe(self, batch: _core.Batch, pools: list[KvPages], states: Floats) -> None:
        """Take hidden states of texts into the cache.

        Args:
            batch: Positions in the texts; tokens don't count.
            pools: Where the pages lie.
            states: float32 [rows, target_layers * hidden].
        """
        batch.set_input(STATES, np.ascontiguousarray(states))
        self._passes[0].run(batch, pools, None)

    def draft(
        self, batch: _core.Batch, pools: list[KvPages], slots: Slots | None
    ) -> tuple[Floats, Floats, Floats]:
        """Run blocks; their slots must hold zeros.

        Args:
            batch: Of each text its last token, then masks.
            pools: Where the pages lie.
            slots: Of :meth:`new_slots`.

        Returns:
            Of each output row: logits [outputs, vocabulary], hidden states [outputs, hidden], and what
            the selector makes of them [outputs, selector_rank], of no columns without one.
        """
        results = self._passes[1].run(batch, pools, slots)
        logits = over_vocabulary(results[LOGITS], self._ids, self.config.vocab_size)
        gate = results.get(GATE, np.empty((len(logits), 0), np.float32))
        return logits, results[HIDDEN], gate

    def markov(self, tokens: list[int]) -> tuple[Floats, Floats]:
        """Return tokens' rows [n, markov_rank] and the biases of those after them [n, vocabulary]."""
        results = self._passes[2].run(_every_row(tokens), [], None)
        return results[ROW], over_vocabulary(results[BIAS], self._ids, self.config.vocab_size, 0.0)

    def pairs(self, tokens: list[int]) -> tuple[Floats, Floats]:
        """Return tokens' rows of the selector as the one before and after, [n, selector_rank] each."""
        results = self._passes[-1].run(_every_row(tokens), [], None)
        return results[BEFORE], results[AFTER]

    def confidence(self, hidden: Floats, markov_row: Floats) -> float:
        """Return the estimate of how probable it is that a row's token is right."""
        assert self._confidence is not None
        of_hidden, of_row, bias = self._confidence
        return float(1.0 / (1.0 + np.exp(-(hidden @ of_hidden + markov_row @ of_row + bias))))


def _every_row(tokens: list[int]) -> _core.Batch:
    batch = _core.Batch()
    batch.add(tokens)
    return batch
