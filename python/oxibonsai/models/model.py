"""A model: configuration, weights and the passes that a device has compiled."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures.layers import blocks, pooled
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.tensors import all_tensors
from oxibonsai.devices import Device, DevicePlan, Executable, KvPages, Slots, StagedDevice
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.files.progress import Progress
from oxibonsai.graph import Builder, Value
from oxibonsai.lora.adapter import Adapter, in_use
from oxibonsai.models.adapting import AdaptedBuilder, ImageBuilder
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.imatrix_collection import ImatrixBuilder, ImatrixCollection
from oxibonsai.models.input_taps import InputTaps, InputTapsBuilder
from oxibonsai.models.layer_states import LayerStateBuilder, NamedVectors
from oxibonsai.models.packed_cache import PackedCache
from oxibonsai.models.packing import pack
from oxibonsai.models.passes import (
    EMBED,
    EMBED_TYPED,
    ENCODE,
    FINAL,
    GENERATE,
    GENERATE_WITH_IMAGES,
    GENERATE_WITH_LAYERS,
    HIDDEN,
    LOGITS,
    PROJECTED,
    SCORES,
    Pass,
    hidden_states_pass,
    pooled_pass,
    tap_name,
)
from oxibonsai.models.weights import Weights

# Brings a row of logits from the device.
FetchLogits = Callable[[], npt.NDArray[np.float32]]


def biases(family: Family[Any], c: Any) -> set[str]:
    """Return the names of the biases that the file of a family's model may have."""
    names = {name for entry in all_tensors(family.tensors(c)) for name in entry.tensors}
    # Files may have q, k and v as one tensor where a folder has three.
    names |= {name.replace(".attn_q.", ".attn_qkv.") for name in names}
    return {name for name in names if name.endswith(".bias")}


class Model:
    """Configuration, weights and a compiled pass: what an engine steps.

    Args:
        config: The model's dimensions.
        weights: Its tensors.
        device: Runs it; or which devices share its layers.
        progress: Told how far packing the weights has come.
        cache: Where packed weights are kept on disk; None: nowhere.
        adapters: Added to its linear layers, in this order.

    Attributes:
        family: Describes its passes.
        programs: The passes that the device has compiled, each when it was first wanted.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        device: Device | DevicePlan,
        progress: Progress | None = None,
        cache: PackedCache | None = None,
        adapters: Sequence[Adapter] = (),
    ) -> None:
        self.config = config
        self.weights = weights
        self.adapters = tuple(adapters)
        self.family = config.family
        weights.know_biases(biases(self.family, config.of_family))
        self._graphs = self._described()
        if isinstance(device, DevicePlan):
            device = device.place(self.graph, config.num_hidden_layers)
        self.device = device
        if self.is_divided:
            self.check_decoder_only("division over devices or processes")
        own = set(weights.matrices)
        used = self._used_matrices()
        matrices = [w for w in used if w in own]
        self._packed = [pack(matrices, weights.checkpoint, device, progress, cache)]
        if thin := [w for w in used if w not in own]:
            # Small, and none of the model's: not kept on disk.
            self._packed.append(pack(thin, weights.checkpoint, device))
        self.programs: dict[Pass, Executable] = {}
        self.program(self.main_pass)

    @property
    def main_pass(self) -> Pass:
        """The pass up to ``logits``; for an encoder up to ``hidden``."""
        return GENERATE if self.config.generates else EMBED

    @property
    def is_divided(self) -> bool:
        """Whether the layers are on several devices or in several processes."""
        return isinstance(self.device, StagedDevice)

    @property
    def graph(self) -> _core.Graph:
        """The main pass."""
        return self.graph_of(self.main_pass)

    def graph_of(self, wanted: Pass) -> _core.Graph:
        """Return the description of a pass, over the same packed matrices.

        Raises:
            UnsupportedError: The model has no such pass.
        """
        if wanted not in self._graphs:
            describe = {
                EMBED: self._describe_hidden,
                EMBED_TYPED: self._describe_typed,
                GENERATE_WITH_IMAGES: self._describe_images,
                GENERATE_WITH_LAYERS: self._describe_layers,
            }
            tapped = partial(self._describe_with_hidden_states, wanted.outputs[1:])
            self._graphs[wanted] = describe.get(wanted, tapped)()
        return self._graphs[wanted]

    def program(self, wanted: Pass) -> Executable:
        """Return a pass as the device has compiled it, which it does when it is first wanted.

        Raises:
            UnsupportedError: The model has no such pass.
        """
        if wanted not in self.programs:
            self.programs[wanted] = self.device.compile(self.graph_of(wanted))
        return self.programs[wanted]

    def _described(self) -> dict[Pass, _core.Graph]:
        """Return the passes that every run may need, with the adapters."""
        builder = self._builder()
        h = self._final_states(builder)
        if self.config.generates:
            builder.output(LOGITS, self._logits(builder, h))
        else:
            builder.output(HIDDEN, h)
        graphs = {self.main_pass: builder.graph, **self._describe_pooled()}
        if self.family.encode is not None:
            graphs[ENCODE] = self._describe_encoder()
        self.weights.refuse_unused()
        builder.refuse_unused()
        return graphs

    def with_adapters(self, adapters: Sequence[Adapter]) -> Model:
        """Return a model with the same packed weights and other adapters in place of this model's.

        Its state is that of this model: pages and slots fit both.

        Raises:
            UnsupportedError: An adapter changes what is no linear layer of the model, or the model's
                layers are on several devices.
        """
        if self.is_divided:
            raise UnsupportedError(
                "adapters by request need a model on one device: load it with its adapters instead"
            )
        other = copy.copy(self)
        other.adapters = tuple(adapters)
        other._graphs, other.programs = other._described(), {}
        known = set(self._used_matrices())
        thin = [w for w in other._used_matrices() if w not in known]
        other._packed = [*self._packed, pack(thin, self.weights.checkpoint, self.device)]
        other.program(other.main_pass)
        return other

    def with_matrices(self, matrices: Mapping[str, _core.Weight]) -> Model:
        """Return a model with other matrices in the place of some, by the names of their tensors.

        All others are packed once for both, and its state is that of this model.
        """
        other = copy.copy(self)
        other.weights = self.weights.with_matrices(matrices)
        other._graphs, other.programs = other._described(), {}
        known = set(self._used_matrices())
        new = [w for w in other._used_matrices() if w not in known]
        other._packed = [*self._packed, pack(new, self.weights.checkpoint, self.device)]
        other.program(other.main_pass)
        return other

    def _used_matrices(self) -> list[_core.Weight]:
        return list(dict.fromkeys(w for g in self._graphs.values() for w in g.matrices))

    def _builder(self) -> AdaptedBuilder:
        return AdaptedBuilder(self.config.hadamard, self.adapters)

    def _describe_encoder(self) -> _core.Graph:
        assert self.family.encode is not None
        builder = self._builder()
        h = self.family.encode(builder, self.config.of_family, self.weights)
        builder.output(HIDDEN, builder.select_outputs(h))
        return builder.graph

    def _describe_pooled(self) -> dict[Pass, _core.Graph]:
        """Return the passes over pooled hidden states that the model has."""
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
            graphs[pooled_pass(name)] = builder.graph
        return graphs

    def _final_states(self, builder: Builder, weights: Weights | None = None) -> Value:
        """Return the hidden states after the final norm, of the rows that want an output."""
        c, w = self.config.of_family, weights or self.weights
        h = builder.select_outputs(self.family.hidden_states(builder, c, w))
        if not self.config.causal:  # an encoder's last layer ends with its norm
            return h
        return self.family.final_norm(builder, c, w, h)

    def _logits(self, builder: Builder, h: Value) -> Value:
        return blocks.logits(builder, self.config.of_family, self.weights, h)

    def _describe_hidden(self) -> _core.Graph:
        self.check_decoder_only("embeddings; those of an encoder alone come from a t5encoder")
        builder = self._builder()
        builder.output(HIDDEN, self._final_states(builder))
        return builder.graph

    def check_decoder_only(self, what: str) -> None:
        """Raise UnsupportedError where prompts go through an encoder, which ``what`` does not know."""
        if self.config.decoder is not None:
            raise UnsupportedError(
                f"{self.weights.checkpoint.path} has an encoder and a decoder "
                f"({self.config.architecture}), for which this version has no {what}"
            )

    def _describe_typed(self) -> _core.Graph:
        """Return an encoder's pass with an input of token types, which its own pass has not."""
        config = self.config.with_token_types(self.token_types)
        builder = self._builder()
        h = self.family.hidden_states(builder, config.of_family, self.weights)
        builder.output(HIDDEN, builder.select_outputs(h))
        known = set(self._used_matrices())
        thin = [w for w in builder.graph.matrices if w not in known]
        self._packed.append(pack(thin, self.weights.checkpoint, self.device))
        return builder.graph

    def _describe_with_hidden_states(self, outputs: Sequence[str]) -> _core.Graph:
        """Return the pass to the logits that also gives hidden states of all rows, by their names."""
        c, weights = self.config.of_family, NamedVectors(self.weights)
        w = cast(Weights, weights)
        layers = self.config.num_hidden_layers
        builder = LayerStateBuilder(weights, layers, self.config.hadamard, self.adapters)
        h = self.family.hidden_states(builder, c, w)
        # Before layers are asked for: what follows the last one reads its output there.
        final = self.family.final_norm(builder, c, w, h)
        for name in outputs:
            builder.output(name, final if name == HIDDEN else builder.layer_input(name))
        h = self.family.final_norm(builder, c, w, builder.select_outputs(h))
        builder.output(LOGITS, self._logits(builder, h))
        return builder.graph

    def _describe_images(self) -> _core.Graph:
        c = self.config
        if self.is_divided:
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
        builder.output(LOGITS, self._logits(builder, h))
        return builder.graph

    def check_image_rows(self, rows: npt.NDArray[np.float32]) -> None:
        """Check that rows of an image are what the model reads.

        Raises:
            RequestError: They have another width, that of another model's tower say, or hold what is
                not finite.
            UnsupportedError: The model reads text alone.
        """
        self.check_generates()
        self.graph_of(GENERATE_WITH_IMAGES)  # it may refuse
        width = self.config.image_width
        if rows.ndim != 2 or rows.shape[1] != width or rows.dtype != np.float32:
            raise RequestError(
                f"a picture has rows of {list(rows.shape)[1:]} {rows.dtype}, where this model reads "
                f"{width} of float32: its tower is that of another model"
            )
        if not np.isfinite(rows).all():
            raise RequestError("a picture has rows that are not finite")

    def _describe_layers(self) -> _core.Graph:
        weights = NamedVectors(self.weights)
        layers = self.config.num_hidden_layers
        builder = LayerStateBuilder(weights, layers, self.config.hadamard, self.adapters)
        h = self._final_states(builder, cast(Weights, weights))
        builder.output(HIDDEN, h)
        builder.output(LOGITS, self._logits(builder, h))
        for i in range(layers):
            name = tap_name(i)
            builder.output(name, builder.select_outputs(builder.layer_input(name)))
        return builder.graph

    def observed(self, *, head: bool = False) -> ImatrixCollection:
        """Return a pass of its own over the same packed matrices that sums what its linear layers read.

        Args:
            head: Run the output matrix too, over the rows that want an output; else the pass ends
                with the hidden states.
        """
        builder = ImatrixBuilder(self.config.hadamard, self.adapters)
        h = self._final_states(builder)
        if head and self.config.generates:
            h = self._logits(builder, h)
        builder.output(ImatrixCollection.OUTPUT, h)
        return ImatrixCollection(self.device.compile(builder.graph), builder.sums)

    def input_taps(self, names: Collection[str]) -> InputTaps:
        """Return a pass of its own over the same packed matrices that gives what linear layers read.

        Args:
            names: The tensors of the layers' weights; those that no linear layer multiplies with are
                left out.
        """
        builder = InputTapsBuilder(names, self.config.hadamard, self.adapters)
        builder.output(InputTaps.RESULT, self._final_states(builder))
        return InputTaps(self.device.compile(builder.graph), builder.outputs)

    @property
    def stages(self) -> list[tuple[Device, _core.Graph]]:
        """The devices of this process that run the model, and what each runs."""
        if isinstance(self.device, StagedDevice):
            return [(s.device, s.graph) for s in self.device.stages]
        return [(self.device, self.graph)]

    def replica(self, threads: int) -> Model:
        """Return a model with the same weights, and programs and threads of its own."""
        other = copy.copy(self)
        other.device = self.device.with_threads(threads)
        other.programs = {}
        other.program(other.main_pass)
        return other

    def fingerprint(self) -> str:
        """Return a name of what keys and values depend on: the checkpoint, and adapters with their scales.

        Also LongRoPE's factors and the base of dynamic NTK scaling, which the size of the context chooses.
        """
        own = self.weights.checkpoint.fingerprint()
        if self.weights.has("rope_factors_long.weight"):
            own += repr(self.config.rope.frequency_factors)
        if self.config.rope.scaling == "dynamic":
            own += repr(max(self.config.rope.context, self.config.rope.original_context))
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
        """Return the slots of the model's recurrent state, in the device's memory."""
        return self.device.make_slots(self.graph.slot_entries, count)

    def check_generates(self) -> None:
        """Raise UnsupportedError where the model is an encoder or a classifier, which has no logits."""
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

    def prepare(self, *, images: bool = False, taps: Sequence[int] = ()) -> None:
        """Compile the passes that the coming runs need."""
        if images:
            self.program(GENERATE_WITH_IMAGES)
        if taps:
            self.program(hidden_states_pass(taps))

    def run(
        self,
        batch: _core.Batch,
        pools: Sequence[KvPages],
        slots: Slots | None = None,
        *,
        images: bool = False,
    ) -> npt.NDArray[np.float32]:
        """Return the logits of the batch's output rows: float32 [outputs, vocabulary].

        Args:
            batch: Rows of any sequences.
            pools: Where their pages lie; each span of the batch names its own.
            slots: Where their recurrent state lies; None where the model has none.
            images: Some of the rows are those of images.

        Raises:
            UnsupportedError: The model is an encoder, which has none.
        """
        self.check_generates()
        program = self.program(GENERATE_WITH_IMAGES if images else GENERATE)
        return program.run(batch, pools, slots)[LOGITS]

    def encode(self, batch: _core.Batch, pools: Sequence[KvPages]) -> None:
        """Run whole prompts through the encoder; what the decoder attends to is in their pages then."""
        self.program(ENCODE).run(batch, pools, None)

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
        program = cast(_core.GpuExecutable, self.program(GENERATE))
        k = min(k, self.config.vocab_size)
        ids, values = program.run_top(batch, pools, slots, LOGITS, k)
        return [(ids[i], values[i], partial(program.read_row, LOGITS, i)) for i in range(len(ids))]

    def run_hidden(
        self,
        batch: _core.Batch,
        pools: Sequence[KvPages],
        slots: Slots | None = None,
        *,
        typed: bool = False,
    ) -> npt.NDArray[np.float32]:
        """Return the hidden states after the final norm: float32 [outputs, hidden].

        Args:
            batch: As of run().
            pools: As of run().
            slots: As of run().
            typed: The batch has the input ``token_types``, also where the configuration has one type.
        """
        own = typed and self.config.token_types == 1
        program = self.program(EMBED_TYPED if own else EMBED)
        return program.run(batch, pools, slots)[HIDDEN]

    def run_with_hidden_states(
        self,
        batch: _core.Batch,
        pools: Sequence[KvPages],
        slots: Slots | None = None,
        taps: Sequence[int] = (FINAL,),
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        """Return the logits as of run(), and hidden states of all rows.

        Args:
            batch: As of run().
            pools: As of run().
            slots: As of run().
            taps: Where: before the layer of this number, from 0 on, and before the final norm for the
                number of layers; ``FINAL``: after the final norm.

        Returns:
            float32 [outputs, vocabulary] and, for each tap, [rows, hidden].

        Raises:
            UnsupportedError: A layer of this architecture does not begin with a norm.
        """
        self.check_generates()
        results = self.program(hidden_states_pass(taps)).run(batch, pools, slots)
        return results[LOGITS], [results[tap_name(tap)] for tap in taps]

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
        """Return whether there is such a pass over pooled hidden states."""
        return pooled_pass(name) in self._graphs

    def run_pooled(self, name: str, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the result of pooling and what follows it: float32 [texts, columns].

        Args:
            name: ``SCORES`` of a model with a classifier, or ``PROJECTED`` of one that projects.
            vectors: Pooled hidden states, float32 [texts, hidden].
        """
        batch = _core.Batch()
        batch.add_span(len(vectors), outputs=len(vectors))
        batch.set_input(pooled.POOLED, vectors)
        return self.program(pooled_pass(name)).run(batch)[name]

    def run_states(
        self, batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None = None
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        """Return logits, and hidden states before each layer and after the final norm; see run().

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
        results = self.program(GENERATE_WITH_LAYERS).run(batch, pools, slots)
        layers = [results[tap_name(i)] for i in range(self.config.num_hidden_layers)]
        return results[LOGITS], [*layers, results[HIDDEN]]
