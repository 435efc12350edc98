"""A model: configuration, weights and the passes that a device has compiled."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import cast

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import Device, DevicePlan, Executable, KvPages, Slots, StagedDevice
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.files.progress import Progress
from oxibonsai.graph import Builder, Value
from oxibonsai.lora.adapter import Adapter, in_use
from oxibonsai.models import pooled
from oxibonsai.models.adapting import AdaptedBuilder
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.images import ImageBuilder
from oxibonsai.models.imatrix_collection import ImatrixBuilder, ImatrixCollection
from oxibonsai.models.layer_states import LayerStateBuilder, NamedVectors
from oxibonsai.models.packed_cache import PackedCache
from oxibonsai.models.packing import pack
from oxibonsai.models.weights import Weights

# Brings a row of logits from the device.
FetchLogits = Callable[[], npt.NDArray[np.float32]]
# Results of a pass; the latter two over pooled hidden states.
_LOGITS, _HIDDEN = "logits", "hidden"
SCORES, PROJECTED = "scores", "projected"
# Passes that are compiled when they are first wanted.
_PASSES = (
    "_hidden_executable",
    "_typed_executable",
    "_executable_with_hidden_states",
    "_image_executable",
    "_pooled_executables",
    "_states_executable",
    "_encoder_executable",
)


class Model:
    """Configuration, weights and a compiled pass: what an engine steps.

    Args:
        config: The model's dimensions.
        weights: Its tensors.
        architecture: Whose passes it runs.
        device: Runs it; or which devices share its layers.
        progress: Told how far packing the weights has come.
        cache: Where packed weights are kept on disk; None: nowhere.
        adapters: Added to its linear layers, in this order.

    Attributes:
        architecture: As given.
        graph: The pass up to ``logits``; for an encoder up to ``hidden``.
        executable: ``graph``, compiled for the device.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        architecture: Architecture,
        device: Device | DevicePlan,
        progress: Progress | None = None,
        cache: PackedCache | None = None,
        adapters: Sequence[Adapter] = (),
    ) -> None:
        self.config = config
        self.weights = weights
        self.adapters = tuple(adapters)
        self.architecture = architecture
        if architecture.biases is not None:
            weights.know_biases(architecture.biases(config))
        self.graph = self._described()
        if isinstance(device, DevicePlan):
            device = device.place(self.graph, config.num_hidden_layers)
        if isinstance(device, StagedDevice):
            self.check_decoder_only("division over devices or processes")
        self.device = device
        own = set(weights.matrices)
        used = self._used_matrices()
        matrices = [w for w in used if w in own]
        self._packed = [pack(matrices, weights.checkpoint, device, progress, cache)]
        if thin := [w for w in used if w not in own]:
            # Small, and none of the model's: not kept on disk.
            self._packed.append(pack(thin, weights.checkpoint, device))
        self.executable = device.compile(self.graph)

    def _described(self) -> _core.Graph:
        """Return the pass, with the adapters; also notes those over pooled hidden states."""
        builder = self._builder()
        h = self._final_states(builder)
        if self.config.generates:
            logits = self.architecture.logits(builder, self.config, self.weights, h)
            builder.output(_LOGITS, logits)
        else:
            builder.output(_HIDDEN, h)
        self._pooled_graphs = self._describe_pooled()
        self._encoder_graph = self._describe_encoder()
        self.weights.refuse_unused()
        builder.refuse_unused()
        return builder.graph

    def with_adapters(self, adapters: Sequence[Adapter]) -> Model:
        """Return a model with the same packed weights and other adapters in place of this model's.

        Its state is that of this model: pages and slots fit both.

        Raises:
            UnsupportedError: An adapter changes what is no linear layer of the model, or the model's
                layers are on several devices.
        """
        if isinstance(self.device, StagedDevice):
            raise UnsupportedError(
                "adapters by request need a model on one device: load it with its adapters instead"
            )
        other = copy.copy(self)
        other.adapters = tuple(adapters)
        for own in ("hidden_graph", "graph_with_hidden_states", *_PASSES):
            other.__dict__.pop(own, None)
        other.graph = other._described()
        known = set(self._used_matrices())
        thin = [w for w in other._used_matrices() if w not in known]
        other._packed = [*self._packed, pack(thin, self.weights.checkpoint, self.device)]
        other.executable = self.device.compile(other.graph)
        return other

    def _used_matrices(self) -> list[_core.Weight]:
        graphs = [self.graph, *self._pooled_graphs.values()]
        if self._encoder_graph is not None:
            graphs.append(self._encoder_graph)
        return list(dict.fromkeys(w for g in graphs for w in g.matrices))

    def _builder(self) -> AdaptedBuilder:
        return AdaptedBuilder(self.config.hadamard, self.adapters)

    def _describe_encoder(self) -> _core.Graph | None:
        """Return the pass of prompts through the encoder; None: the model has none."""
        if self.architecture.encode is None:
            return None
        builder = self._builder()
        h = self.architecture.encode(builder, self.config, self.weights)
        builder.output(_HIDDEN, builder.select_outputs(h))
        return builder.graph

    def _describe_pooled(self) -> dict[str, _core.Graph]:
        """Return the passes over pooled hidden states that the model has, by the name of their result."""
        c, w = self.config, self.weights
        heads: dict[str, Callable[[Builder, Value], Value]] = {}
        if c.classifier is not None:
            heads[SCORES] = lambda g, x: pooled.scores(g, c, w, x)
        if pooled.has_projection(w):
            heads[PROJECTED] = lambda g, x: pooled.project(g, w, x)
        graphs = {}
        for name, describe in heads.items():
            builder = self._builder()
            builder.output(name, describe(builder, builder.input(pooled.POOLED, c.hidden_size)))
            graphs[name] = builder.graph
        return graphs

    def _final_states(self, builder: Builder, weights: Weights | None = None) -> Value:
        """Hidden states after the final norm, of the rows that want an output."""
        c, w = self.config, weights or self.weights
        h = builder.select_outputs(self.architecture.hidden_states(builder, c, w))
        if not c.causal:  # an encoder's last layer ends with its norm
            return h
        return self.architecture.final_norm(builder, c, w, h)

    @cached_property
    def hidden_graph(self) -> _core.Graph:
        """The pass up to the final norm, over the same packed matrices: for embeddings."""
        if not self.config.generates:
            return self.graph
        self.check_decoder_only("embeddings; those of an encoder alone come from a t5encoder")
        builder = self._builder()
        builder.output(_HIDDEN, self._final_states(builder))
        return builder.graph

    @cached_property
    def _encoder_executable(self) -> Executable:
        assert self._encoder_graph is not None
        return self.device.compile(self._encoder_graph)

    def check_decoder_only(self, what: str) -> None:
        """UnsupportedError where prompts go through an encoder, which ``what`` does not know."""
        if self.config.decoder is not None:
            raise UnsupportedError(
                f"{self.weights.checkpoint.path} has an encoder and a decoder "
                f"({self.config.architecture}), for which this version has no {what}"
            )

    @cached_property
    def _hidden_executable(self) -> Executable:
        return self.device.compile(self.hidden_graph) if self.config.generates else self.executable

    @cached_property
    def _typed_executable(self) -> Executable:
        """An encoder's pass with an input of token types, which its own pass has not."""
        config = replace(self.config, token_types=self.token_types)
        builder = self._builder()
        h = self.architecture.hidden_states(builder, config, self.weights)
        builder.output(_HIDDEN, builder.select_outputs(h))
        known = set(self._used_matrices())
        thin = [w for w in builder.graph.matrices if w not in known]
        self._packed.append(pack(thin, self.weights.checkpoint, self.device))
        return self.device.compile(builder.graph)

    @cached_property
    def graph_with_hidden_states(self) -> _core.Graph:
        """The pass to the logits that also gives the hidden states of all rows."""
        builder, c, w = self._builder(), self.config, self.weights
        h = self.architecture.hidden_states(builder, c, w)
        builder.output(_HIDDEN, self.architecture.final_norm(builder, c, w, h))
        h = self.architecture.final_norm(builder, c, w, builder.select_outputs(h))
        builder.output(_LOGITS, self.architecture.logits(builder, c, w, h))
        return builder.graph

    @cached_property
    def _executable_with_hidden_states(self) -> Executable:
        return self.device.compile(self.graph_with_hidden_states)

    @cached_property
    def _image_executable(self) -> Executable:
        c = self.config
        if isinstance(self.device, StagedDevice):
            raise UnsupportedError(
                "pictures need the whole model on one device of one process: leave out gpu_layers, "
                "and name one device"
            )
        builder = ImageBuilder(c.image_width, c.hadamard, self.adapters)
        h = self._final_states(builder)
        if not builder.takes_images:
            raise UnsupportedError(
                f"{self.weights.checkpoint.path} reads text alone: architecture {c.architecture} "
                "takes no pictures in this version"
            )
        builder.output(_LOGITS, self.architecture.logits(builder, c, self.weights, h))
        return self.device.compile(builder.graph)

    def check_image_rows(self, rows: npt.NDArray[np.float32]) -> None:
        """Whether rows of a picture are what the model reads.

        Raises:
            RequestError: They have another width, that of another model's tower say, or hold what is
                not finite.
            UnsupportedError: The model reads text alone.
        """
        self.check_generates()
        self._image_executable  # noqa: B018 - it may refuse
        width = self.config.image_width
        if rows.ndim != 2 or rows.shape[1] != width or rows.dtype != np.float32:
            raise RequestError(
                f"a picture has rows of {list(rows.shape)[1:]} {rows.dtype}, where this model reads "
                f"{width} of float32: its tower is that of another model"
            )
        if not np.isfinite(rows).all():
            raise RequestError("a picture has rows that are not finite")

    @cached_property
    def _states_executable(self) -> Executable:
        weights = NamedVectors(self.weights)
        layers = self.config.num_hidden_layers
        builder = LayerStateBuilder(weights, layers, self.config.hadamard, self.adapters)
        h = self._final_states(builder, cast(Weights, weights))
        builder.output(_HIDDEN, h)
        builder.output(_LOGITS, self.architecture.logits(builder, self.config, self.weights, h))
        builder.output_layers()
        return self.device.compile(builder.graph)

    def observed(self, *, head: bool = False) -> ImatrixCollection:
        """Return a pass of its own over the same packed matrices that sums what its linear layers read.

        Args:
            head: Run the output matrix too, over the rows that want an output; else the pass ends
                with the hidden states.
        """
        builder = ImatrixBuilder(self.config.hadamard, self.adapters)
        h = self._final_states(builder)
        if head and self.config.generates:
            h = self.architecture.logits(builder, self.config, self.weights, h)
        builder.output(ImatrixCollection.OUTPUT, h)
        return ImatrixCollection(self.device.compile(builder.graph), builder.sums)

    @property
    def stages(self) -> list[tuple[Device, _core.Graph]]:
        """The devices of this process that run the model, and what each runs."""
        if isinstance(self.device, StagedDevice):
            return [(s.device, s.graph) for s in self.device.stages]
        return [(self.device, self.graph)]

    def replica(self, threads: int) -> Model:
        """Return a model with the same weights, and an executable and threads of its own."""
        other = copy.copy(self)
        other.device = self.device.with_threads(threads)
        other.executable = other.device.compile(self.graph)
        for own in _PASSES:
            other.__dict__.pop(own, None)
        return other

    def fingerprint(self) -> str:
        """Names what keys and values depend on: the checkpoint, and adapters with their scales.

        Also LongRoPE's factors, which the size of the context chooses.
        """
        own = self.weights.checkpoint.fingerprint()
        if self.weights.has("rope_factors_long.weight"):
            own += repr(self.config.rope.frequency_factors)
        used = [(a.fingerprint, a.scale) for a in in_use(self.adapters)]
        if not used:
            return own
        return hashlib.blake2b(repr((own, used)).encode(), digest_size=16).hexdigest()

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of weights that decoding one token reads: its experts' alone, one table row."""
        sizes = ((self.device.packed_nbytes(w) or w.nbytes, w) for w in self.graph.matrices)
        return sum(size * self._matrices_read(w) // w.experts for size, w in sizes)

    @property
    def products_per_token(self) -> int:
        """Multiply-adds in linear layers for one token of a prompt, which needs no head."""
        head = self.weights.head(self.config) if self.config.generates else None
        matrices = (w for w in self.graph.matrices if w is not head)
        return sum(w.rows * w.cols * self._matrices_read(w) for w in matrices)

    def _matrices_read(self, weight: _core.Weight) -> int:
        """Return how many matrices one token reads of a tensor with one for each expert or head."""
        experts = self.config.experts
        if experts is None or not weight.name.endswith("_exps.weight"):
            return weight.experts
        return experts.num_experts_per_tok

    def new_pages(self, kv_type: str, pages: int) -> KvPages:
        """Return a paged KV cache that fits this model, in the device's memory."""
        return self.device.make_pages(self.graph.paged_layers, kv_type, pages)

    def new_slots(self, count: int) -> Slots:
        """Slots of the model's recurrent state, in the device's memory."""
        return self.device.make_slots(self.graph.slot_entries, count)

    def check_generates(self) -> None:
        """UnsupportedError where the model is an encoder or a classifier, which has no logits."""
        path, kind = self.weights.checkpoint.path, self.config.architecture
        if self.config.classifier is not None:
            raise UnsupportedError(
                f"{path} is a classifier ({kind}): it scores texts (oxibonsai rerank) and does not "
                "continue them"
            )
        if not self.config.causal:
            raise UnsupportedError(
                f"{path} is an encoder ({kind}): it turns texts into vectors (oxibonsai embed) and does "
                "not continue them"
            )

    def prepare(self, *, images: bool = False, with_hidden_states: bool = False) -> None:
        """Compiles the executables that the coming runs need."""
        if images:
            self._image_executable  # noqa: B018
        if with_hidden_states:
            self._executable_with_hidden_states  # noqa: B018

    def run(
        self,
        batch: _core.Batch,
        pools: Sequence[KvPages],
        slots: Slots | None = None,
        *,
        images: bool = False,
    ) -> npt.NDArray[np.float32]:
        """Logits of the batch's output rows: float32 [outputs, vocabulary].

        Args:
            batch: Rows of any sequences.
            pools: Where their pages lie; each span of the batch names its own.
            slots: Where their recurrent state lies; None where the model has none.
            images: Some of the rows are those of pictures.

        Raises:
            UnsupportedError: The model is an encoder, which has none.
        """
        self.check_generates()
        executable = self._image_executable if images else self.executable
        return executable.run(batch, pools, slots)[_LOGITS]

    def encode(self, batch: _core.Batch, pools: Sequence[KvPages]) -> None:
        """Run whole prompts through the encoder; what the decoder attends to is in their pages then."""
        self._encoder_executable.run(batch, pools, None)

    @property
    def finds_top(self) -> bool:
        """Whether the device can find the largest logits, so that :meth:`run_top` is of use.

        A CPU has them all in its memory anyway.
        """
        return isinstance(self.device, _core.GpuDevice)

    def run_top(
        self, batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None, k: int
    ) -> list[tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], FetchLogits]]:
        """Return the k largest logits of each output row; the others stay on the device.

        Args:
            batch: As of run().
            pools: As of run().
            slots: As of run().
            k: How many; cut to the vocabulary.

        Returns:
            For each row int32 [k] and float32 [k], the largest first, ties by lower id; and what
            brings the whole row, until the next step.
        """
        self.check_generates()
        executable = cast(_core.GpuExecutable, self.executable)
        k = min(k, self.config.vocab_size)
        ids, values = executable.run_top(batch, pools, slots, _LOGITS, k)
        return [
            (ids[i], values[i], partial(executable.read_row, _LOGITS, i)) for i in range(len(ids))
        ]

    def run_hidden(
        self,
        batch: _core.Batch,
        pools: Sequence[KvPages],
        slots: Slots | None = None,
        *,
        typed: bool = False,
    ) -> npt.NDArray[np.float32]:
        """Hidden states after the final norm: float32 [outputs, hidden].

        Args:
            batch: As of run().
            pools: As of run().
            slots: As of run().
            typed: The batch has the input ``token_types``, also where the configuration has one type.
        """
        own = typed and self.config.token_types == 1
        executable = self._typed_executable if own else self._hidden_executable
        return executable.run(batch, pools, slots)[_HIDDEN]

    def run_with_hidden_states(
        self,
        batch: _core.Batch,
        pools: Sequence[KvPages],
        slots: Slots | None = None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Logits as of run(), and the hidden states of all rows after the final norm.

        Args:
            batch: As of run().
            pools: As of run().
            slots: As of run().

        Returns:
            float32 [outputs, vocabulary] and [rows, hidden].
        """
        self.check_generates()
        results = self._executable_with_hidden_states.run(batch, pools, slots)
        return results[_LOGITS], results[_HIDDEN]

    @property
    def embedding_size(self) -> int:
        """Values of an embedding: the hidden size, or that of a projection after pooling."""
        return pooled.projected_width(self.weights, self.config.hidden_size)

    @property
    def token_types(self) -> int:
        """Rows of an encoder's table of token types; 1: it has none."""
        table = "token_types.weight"
        return self.weights.shape(table)[0] if self.weights.has(table) else 1

    def has_head(self, name: str) -> bool:
        """Whether there is such a pass over pooled hidden states."""
        return name in self._pooled_graphs

    @cached_property
    def _pooled_executables(self) -> dict[str, Executable]:
        return {name: self.device.compile(g) for name, g in self._pooled_graphs.items()}

    def run_pooled(self, name: str, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the result of pooling and what follows it: float32 [texts, columns].

        Args:
            name: ``SCORES`` of a model with a classifier, or ``PROJECTED`` of one that projects.
            vectors: Pooled hidden states, float32 [texts, hidden].
        """
        batch = _core.Batch()
        batch.add_span(len(vectors), outputs=len(vectors))
        batch.set_input(pooled.POOLED, vectors)
        return self._pooled_executables[name].run(batch)[name]

    def run_states(
        self, batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None = None
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        """Logits, and the hidden states before each layer and after the final norm; arguments as of run().

        Args:
            batch: As of run().
            pools: As of run().
            slots: As of run().

        Returns:
            float32 [outputs, vocabulary] and, one more than layers, [outputs, hidden].

        Raises:
            UnsupportedError: The model is an encoder, or its layers do not begin with a norm.
        """
        self.check_generates()
        results = self._states_executable.run(batch, pools, slots)
        layers = [results[f"layer.{i}"] for i in range(self.config.num_hidden_layers)]
        return results[_LOGITS], [*layers, results[_HIDDEN]]
