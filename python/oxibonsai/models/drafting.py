"""Drafters: layers, of the model's file or of a file of their own, that read the model's hidden states.

Multi-token prediction (MTP) is a layer that guesses the token after the next one: it reads a token's
hidden states and the token after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures.layers.drafting import HIDDEN, LOGITS, STATES, OwnCache, drafting_pass
from oxibonsai.architectures.layers.sizes import Layered
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Executable, KvPages
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.graph import HadamardRotation, Vector
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.hadamard import read_rotation
from oxibonsai.models.model import Model
from oxibonsai.models.packing import pack
from oxibonsai.models.weights import Weights

Rows = npt.NDArray[np.float32]

# The logit of a token that a drafter can't propose: of a finite value, so that any mask leaves a choice.
NEVER = -1e30

_EMBEDDING, _HEAD, _NORM = "token_embd.weight", "output.weight", "output_norm.weight"
_COUNT, _LAYERS = "nextn_predict_layers", "block_count"
# Keys of a layer's file that may differ from those of the model's.
_OWN_KEYS = frozenset({_COUNT, _LAYERS, "attention.recurrent_layers", "context_length"})


class TargetModel(Protocol):
    """The model that a drafter drafts for, packed for a device or not."""

    @property
    def config(self) -> ModelConfig:
        """Its dimensions."""
        ...

    @property
    def weights(self) -> Weights:
        """Its tensors."""
        ...


@dataclass(frozen=True)
class OpenedTarget:
    """A target model that is packed for no device."""

    config: ModelConfig
    weights: Weights


class DrafterWeights(Weights):
    """The tensors of a drafter's file; what it lacks of the vocabulary is the model's.

    Args:
        checkpoint: The file.
        model: The model that it drafts for.
        norm: Whether the model's final norm stands in for a missing one.

    Attributes:
        rotation: How the weights that are the model's are folded; the drafter's own are not.

    Raises:
        UnsupportedError: The file has rotated weights of its own.
    """

    def __init__(self, checkpoint: Checkpoint, model: TargetModel, *, norm: bool) -> None:
        super().__init__(checkpoint)
        self._model = model.weights
        lacks = {name for name in (_EMBEDDING, _HEAD) if not checkpoint.has(name)}
        self._norm = norm and not checkpoint.has(_NORM)
        self.rotation = _restricted(model.config.hadamard, lacks)
        if read_rotation(checkpoint.file, checkpoint.path) is not None:
            raise UnsupportedError(
                f"{checkpoint.path} has rotated weights of its own (prism.hadamard.*), which drafters "
                "can't have in this version: leave the vocabulary out of it, the model's is used then"
            )

    def embedding(self, config: Layered) -> _core.Weight:
        """Return the token table, of the model where the file has none."""
        own = self.checkpoint.has(_EMBEDDING)
        return super().embedding(config) if own else self._model.embedding(config)

    def head(self, config: Layered) -> _core.Weight:
        """Return the output matrix, of the model where the file has none."""
        own = self.checkpoint.has(_HEAD)
        if self.checkpoint.has(_EMBEDDING) and not self._model.checkpoint.has(_HEAD):
            own = True  # a table of its own is the output matrix, too, as the model's is
        return super().head(config) if own else self._model.head(config)

    def bias(self, name: str, size: int) -> Vector | None:
        """Implement :meth:`Weights.bias`; that of the output matrix is where the matrix is."""
        borrowed = name == "output" and not self.checkpoint.has(_HEAD)
        return self._model.bias(name, size) if borrowed else super().bias(name, size)

    def vector(self, name: str, size: int) -> Vector:
        """Implement :meth:`Weights.vector`."""
        if name == _NORM and self._norm:
            return self._model.vector(name, size)
        return super().vector(name, size)

    def draft_ids(self, count: int, vocabulary: int) -> npt.NDArray[np.int64] | None:
        """Return the model's ids of the tokens that the drafter can propose (``d2t``); None: of all.

        Args:
            count: Tokens that it can propose.
            vocabulary: Tokens of the model.

        Raises:
            FormatError: They are not different tokens of the model, or no integers of 64 bits.
        """
        name = "d2t"
        if not self.has(name):
            return None
        self.leave_out(name)
        stored = self.checkpoint.file.tensor(name).quant_type
        if stored != "I64":
            raise FormatError(
                f"{self.checkpoint.path}: tensor {name} is of type {stored}; token ids are I64, as "
                "llama.cpp's converter writes them"
            )
        ids = np.asarray(self.checkpoint.file.tensor_bytes(name)).view(np.int64)
        if len(set(ids.tolist())) != count or not ((ids >= 0) & (ids < vocabulary)).all():
            raise FormatError(
                f"{self.checkpoint.path}: tensor {name} is no list of different tokens of {vocabulary}"
            )
        return ids


def over_vocabulary(
    rows: Rows, ids: npt.NDArray[np.int64] | None, vocabulary: int, others: float = NEVER
) -> Rows:
    """Return rows over the model's vocabulary.

    Args:
        rows: float32 [rows, tokens that can be proposed].
        ids: The model's ids of these; None: they are all.
        vocabulary: Tokens of the model.
        others: For tokens that can't be proposed.
    """
    if ids is None:
        return rows
    whole = np.full((len(rows), vocabulary), others, np.float32)
    whole[:, ids] = rows
    return whole


def check_fit(
    model: TargetModel,
    file: Checkpoint,
    target_layers: tuple[int, ...],
    hidden: int,
    target_hidden: int | None = None,
) -> None:
    """Check that a drafter with layers and columns of its own reads the hidden states of this model.

    Args:
        model: The model.
        file: The drafter.
        target_layers: The model's layers whose inputs it reads.
        hidden: Columns of the drafter's hidden states.
        target_hidden: Columns of the hidden states that it reads; None: it does not say.

    Raises:
        FormatError: It drafts for another model.
    """
    target, layers = model.weights.checkpoint.path, model.config.num_hidden_layers
    if max(target_layers) > layers:
        raise FormatError(
            f"{file.path} reads hidden states of layer {max(target_layers)}, but {target} has {layers} "
            "layers: it drafts for another model"
        )
    if target_hidden not in (None, model.config.hidden_size):
        raise FormatError(
            f"{file.path} reads hidden states of {target_hidden} columns (target_hidden_size), but "
            f"{target} has {model.config.hidden_size} columns: it drafts for another model"
        )
    if hidden != model.config.hidden_size and not file.has(_EMBEDDING):
        raise FormatError(
            f"{file.path} has {hidden} columns and no vocabulary of its own, but {target} has "
            f"{model.config.hidden_size} columns: it drafts for another model"
        )


def _restricted(rotation: HadamardRotation | None, names: set[str]) -> HadamardRotation | None:
    """Return the rotation of these tensors alone: a drafter's own may have the names of others."""
    if rotation is None:
        return None
    return replace(rotation, matrices=rotation.matrices & names, tables=rotation.tables & names)


class DrafterPasses:
    """A drafter's passes on the device of the model's last layers, which has the output matrix.

    Args:
        model: The model; matrices that are its own are shared.
        file: Where the others are.
        graphs: The passes.

    Attributes:
        device: As above.
        executables: One for each graph.
    """

    def __init__(self, model: Model, file: Checkpoint, graphs: Sequence[_core.Graph]) -> None:
        self.device, stage = model.stages[-1]
        packed = set(stage.matrices)
        own = dict.fromkeys(m for graph in graphs for m in graph.matrices if m not in packed)
        self._kept = (model, pack(list(own), file, self.device))
        self.executables: list[Executable] = [self.device.compile(graph) for graph in graphs]


def is_mtp_alone(checkpoint: Checkpoint) -> bool:
    """Return whether a file has layers that predict further tokens, and none of the layers before them."""
    count = checkpoint.file.get(f"{checkpoint.architecture}.{_COUNT}", 0)
    drafts = (
        isinstance(count, int) and count > 0
    )  # other values are refused where the keys are read
    return drafts and not any(n.startswith("blk.0.") for n in checkpoint.tensor_names)


class DraftingLayer:
    """A layer that predicts a further token, compiled for the device of the model's last layers.

    Args:
        model: Whose hidden states it reads; its matrices are shared.
        file: Where the layer is; None: past those of the pass in the model's own file.

    Attributes:
        graph: The layer, from token and hidden states to logits.

    Raises:
        FormatError: The file's layer has other dimensions than the model.
        UnsupportedError: There is no such layer, or the architecture has none that is known.
    """

    def __init__(self, model: Model, file: Checkpoint | None = None) -> None:
        c, layer = model.config, model.family.drafting_layer
        own_file = file or model.weights.checkpoint
        where = f"{own_file.path} ({c.architecture})"
        if file is None and c.num_nextn_predict_layers == 0:
            raise UnsupportedError(
                f"{where} has no layer that predicts further tokens ({_COUNT}): speculate by n-grams or "
                "with a draft model"
            )
        if layer is None:
            raise UnsupportedError(
                f"{where}: layers that predict further tokens are not supported for this architecture"
            )
        weights, rotation = model.weights, c.hadamard
        if file is not None:
            _check_layer(model, file)
            weights = DrafterWeights(file, model, norm=True)
            rotation = weights.rotation
        builder = OwnCache(rotation)
        drafting_pass(builder, c.of_family, weights, layer)
        if file is not None:
            weights.refuse_unused()
        self.graph = builder.graph
        self._passes = DrafterPasses(model, own_file, [self.graph])

    def new_pages(self, kv_type: str, pages: int) -> KvPages:
        """Return the drafter's cache of keys and values."""
        return self._passes.device.make_pages(self.graph.paged_layers, kv_type, pages)

    def run(self, batch: _core.Batch, pools: list[KvPages], states: Rows) -> tuple[Rows, Rows]:
        """Return the logits of the token after that of each output row, and hidden states to go on from.

        Args:
            batch: Tokens, each at the position of the token before it.
            pools: Where their pages lie.
            states: float32 [rows, hidden]: of the token before each, after the final norm.

        Returns:
            float32 [outputs, vocabulary] and [outputs, hidden].
        """
        batch.set_input(STATES, np.ascontiguousarray(states))
        results = self._passes.executables[0].run(batch, pools, None)
        return results[LOGITS], results[HIDDEN]


def _check_layer(model: Model, file: Checkpoint) -> None:
    """Check that a file's layer follows those of the model.

    Raises:
        FormatError: It has other dimensions, or another number.
        UnsupportedError: It has several layers, or is of another architecture.
    """
    c, own, of_model = model.config, file.file, model.weights.checkpoint.file
    where, target = file.path, model.weights.checkpoint.path
    if file.architecture != c.architecture:
        raise UnsupportedError(
            f"{where} predicts further tokens of architecture {file.architecture}, but {target} is of "
            f"{c.architecture}"
        )
    prefix = f"{c.architecture}."
    count = own.get(prefix + _COUNT)
    if count != 1:
        raise UnsupportedError(f"{where}: {prefix}{_COUNT} is {count!r}; known is 1")
    if own.get(prefix + _LAYERS) != c.num_hidden_layers + 1:
        raise FormatError(
            f"{where}: {prefix}{_LAYERS} is {own.get(prefix + _LAYERS)!r}, but with its layer {target} "
            f"has {c.num_hidden_layers + 1}"
        )
    for name in own.keys():  # noqa: SIM118 - not a dict
        if not name.startswith(prefix) or name.removeprefix(prefix) in _OWN_KEYS:
            continue
        stated, wanted = own.get(name), of_model.get(name)
        if wanted is not None and not np.array_equal(stated, wanted):
            raise FormatError(f"{where}: {name} is {stated!r}, but {wanted!r} of {target}")
