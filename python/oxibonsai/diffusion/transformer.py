"""The transformer of FLUX.2: from noisy latents, a prompt and a time step to a velocity.

Double blocks keep text and image apart but for their attention, single blocks treat them as one
sequence; the time step shifts, scales and gates all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import Device
from oxibonsai.diffusion.parameters import Parameters, Tensors, checked_config, positive_real
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.graph import AxialRope, RopeConfig, Value
from oxibonsai.lora import Adapter
from oxibonsai.models.adapting import AdaptedBuilder

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

_TEXT, _IMAGE, _TIME = "text", "image", "timestep"


@dataclass(frozen=True)
class TransformerConfig:
    """Dimensions and constants, by the names of diffusers' ``config.json``."""

    in_channels: int
    num_layers: int
    num_single_layers: int
    attention_head_dim: int
    num_attention_heads: int
    joint_attention_dim: int
    timestep_guidance_channels: int
    mlp_ratio: float
    axes_dims_rope: tuple[int, ...]
    rope_theta: float
    eps: float
    out_channels: int

    @property
    def inner_dim(self) -> int:
        """Width of the hidden states."""
        return self.num_attention_heads * self.attention_head_dim

    @property
    def mlp_dim(self) -> int:
        """Width within a feed-forward part."""
        return int(self.inner_dim * self.mlp_ratio)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TransformerConfig:
        """Return the fields of a ``config.json``; keys of other software are ignored.

        Raises:
            FormatError: A value is missing or makes no sense.
            UnsupportedError: The network has parts that this version does not run.
        """
        if config.get("patch_size", 1) != 1:
            raise UnsupportedError(f"a patch_size of {config['patch_size']}: only 1 is supported")
        if config.get("guidance_embeds", True):
            raise UnsupportedError(
                "guidance_embeds: a network with embedded guidance is not supported"
            )
        counts = {
            name: _positive(config, name)
            for name in (
                "in_channels",
                "num_layers",
                "num_single_layers",
                "attention_head_dim",
                "num_attention_heads",
                "joint_attention_dim",
            )
        }
        channels = config.get("timestep_guidance_channels", 256)
        axes = tuple(config.get("axes_dims_rope", (32, 32, 32, 32)))
        if sum(axes) != counts["attention_head_dim"] or any(n < 2 or n % 2 for n in axes):
            raise FormatError(f"axes_dims_rope {axes} do not add up to attention_head_dim")
        if channels < 2 or channels % 2:
            raise FormatError(f"timestep_guidance_channels is {channels}; it must be even")
        return cls(
            **counts,
            timestep_guidance_channels=channels,
            mlp_ratio=positive_real(config, "mlp_ratio", 3.0),
            axes_dims_rope=axes,
            rope_theta=positive_real(config, "rope_theta", 2000),
            eps=positive_real(config, "eps", 1e-6),
            out_channels=config.get("out_channels") or counts["in_channels"],
        )


def _positive(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 20:
        raise FormatError(f"{name} of the transformer is {value!r}, no positive integer")
    return value


class ImageTransformer:
    """The network, compiled for a device.

    Attributes:
        config: Its dimensions.
    """

    def __init__(
        self,
        config: TransformerConfig,
        tensors: Tensors,
        device: Device,
        progress: Progress | None = None,
        adapters: Sequence[Adapter] = (),
    ) -> None:
        self.config = config
        parameters = Parameters(tensors)
        _check_adapters(adapters, parameters)
        self._graphs = (
            _prompt_graph(config, parameters, adapters),
            _Step(config, parameters, adapters).describe(),
        )
        parameters.refuse_unused()
        matrices = [w for graph in self._graphs for w in graph.matrices]
        self._device = device
        report = counted(device.packed_size(matrices), progress)
        self._packed = device.pack(matrices, report)
        self.release_buffers()

    @classmethod
    def load(
        cls,
        config: Mapping[str, Any],
        tensors: Tensors,
        device: Device,
        progress: Progress | None = None,
        adapters: Sequence[Adapter] = (),
    ) -> ImageTransformer:
        """Pack the parameters for a device.

        Args:
            config: As diffusers' ``config.json`` of the transformer.
            tensors: By diffusers' names; matrices in any stored form.
            device: Runs it.
            progress: Told how many bytes have been packed.
            adapters: Added to its linear layers, in this order, while it runs.

        Raises:
            FormatError: A tensor or a value of the configuration is missing or does not fit; an
                adapter has other widths.
            UnsupportedError: There is a tensor that the network does not use, or an adapter changes
                what it does not have.
        """
        own = checked_config(TransformerConfig.from_dict, config, tensors.path)
        return cls(own, tensors, device, progress, adapters)

    def release_buffers(self) -> None:
        """Return the memory of the last step's values back, before the autoencoder wants as much."""
        self._prompt, self._step = (self._device.compile(graph) for graph in self._graphs)

    def embed_text(self, text: Array) -> Array:
        """Return the blocks' view of a prompt: the same in all steps, so it is made once.

        Args:
            text: float32 [n, tokens, joint_attention_dim], of a text encoder.

        Returns:
            float32 [n, tokens, inner_dim].
        """
        _check(text, "text", self.config.joint_attention_dim)
        return np.stack([self._embed(t) for t in text])

    def velocity(
        self,
        latents: Array,
        text: Array,
        timestep: float,
        image_ids: Ids,
        text_ids: Ids | None = None,
    ) -> Array:
        """Run one forward pass, which gives noise minus data.

        Args:
            latents: float32 [n, tokens, in_channels]; tokens of reference images follow those of
                the image itself.
            text: float32 [n, text tokens, inner_dim], what :meth:`embed_text` gave.
            timestep: From 1000, noise alone, to 0.
            image_ids: int32 [tokens, axes], the place of each token on the axes time, row, column
                and text position.
            text_ids: int32 [text tokens, axes]; None: (0, ..., 0, i) for token i.

        Returns:
            float32 [n, tokens, out_channels]; each image's rows depend on its own alone.
        """
        c = self.config
        _check(latents, "latents", c.in_channels)
        _check(text, "text", c.inner_dim)
        if len(latents) != len(text):
            raise RequestError(f"{len(latents)} pictures need as many texts, not {len(text)}")
        if text_ids is None:
            text_ids = np.zeros((text.shape[1], len(c.axes_dims_rope)), np.int32)
            text_ids[:, -1] = np.arange(text.shape[1])
        for name, ids, rows in (("image", image_ids, latents), ("text", text_ids, text)):
            if ids.shape != (rows.shape[1], len(c.axes_dims_rope)):
                raise RequestError(
                    f"{name}_ids have shape {ids.shape}; {rows.shape[1]} tokens need "
                    f"({rows.shape[1]}, {len(c.axes_dims_rope)})"
                )
        ids = np.concatenate([text_ids, image_ids])
        return np.stack(
            [self._velocity(x, t, timestep, ids) for x, t in zip(latents, text, strict=True)]
        )

    def _embed(self, text: Array) -> Array:
        batch = _core.Batch()
        batch.add_span(len(text))
        batch.set_input(_TEXT, text)
        return self._prompt.run(batch)["context"]

    def _velocity(self, latents: Array, text: Array, timestep: float, ids: Ids) -> Array:
        return self._step.run(self.step_batch(latents, text, timestep, ids))["velocity"]

    @staticmethod
    def step_batch(latents: Array, text: Array, timestep: float, ids: Ids) -> _core.Batch:
        """Return the batch of one image's step: its ids are those of the text, then of the image."""
        batch = _core.Batch()
        batch.add_span(len(ids))
        batch.set_positions(ids)
        batch.set_input(_IMAGE, latents)
        batch.set_input(_TEXT, text)
        batch.set_input(_TIME, np.array([[timestep]], np.float32))
        return batch


def _check(rows: Array, name: str, cols: int) -> None:
    if rows.ndim != 3 or 0 in rows.shape or rows.shape[2] != cols:
        raise RequestError(f"{name} of shape {rows.shape}; it needs [n, tokens, {cols}]")
    if not np.isfinite(rows).all():
        raise RequestError(f"{name}: there are values that are not finite")


def _check_adapters(adapters: Sequence[Adapter], parameters: Parameters) -> None:
    for adapter in adapters:
        for name, pair in adapter.pairs.items():
            shape = parameters.shape(name) if parameters.has(name) else ()
            if len(shape) != 2:
                raise UnsupportedError(
                    f"{adapter.name} changes {name}, which is no linear layer of the transformer"
                )
            if shape != (pair.b.rows, pair.a.cols):
                raise FormatError(
                    f"{adapter.name} has the shape ({pair.b.rows}, {pair.a.cols}) for {name}, which is "
                    f"{shape}: it was made for another model"
                )


def _prompt_graph(c: TransformerConfig, p: Parameters, adapters: Sequence[Adapter]) -> _core.Graph:
    """Return the graph of what does not depend on the time step."""
    g = AdaptedBuilder(None, adapters)
    text = g.input(_TEXT, c.joint_attention_dim)
    weight = p.matrix("context_embedder", c.inner_dim, c.joint_attention_dim)
    g.output("context", g.linear(text, weight)[0])
    return g.graph


@dataclass(frozen=True)
class _Modulation:
    """Shift and scale of a norm, and the gate of what follows it: [1, inner_dim] each."""

    shift: Value
    scale: Value
    gate: Value


class _Step:
    """Describes a forward pass. The tokens are those of the text, then those of the image.

    Args:
        config: Dimensions.
        parameters: By diffusers' names.
        adapters: Added to linear layers.
    """

    def __init__(
        self, config: TransformerConfig, parameters: Parameters, adapters: Sequence[Adapter] = ()
    ) -> None:
        self.c, self.p = config, parameters
        self.g = AdaptedBuilder(None, adapters)
        self.ones = np.ones(config.inner_dim, np.float32)
        self.rope = AxialRope(config.axes_dims_rope, config.rope_theta, interleaved=True)

    def describe(self) -> _core.Graph:
        """Return the graph, whose result is ``velocity``."""
        g, c, p = self.g, self.c, self.p
        text = g.input(_TEXT, c.inner_dim, own_rows=True)
        image = g.input(_IMAGE, c.in_channels, own_rows=True)
        (image,) = g.linear(image, p.matrix("x_embedder", c.inner_dim, c.in_channels))
        image_sets, text_sets, single, (scale, shift) = self._modulations()
        for i in range(c.num_layers):
            text, image = self._double(
                f"transformer_blocks.{i}", text, image, text_sets, image_sets
            )
        h = g.join_rows(text, image)
        for i in range(c.num_single_layers):
            h = self._single(f"single_transformer_blocks.{i}", h, single)
        _, image = g.split_rows(h, text, image)
        image = self._norm(image, shift, scale)
        (out,) = g.linear(image, p.matrix("proj_out", c.out_channels, c.inner_dim))
        g.output("velocity", out)
        return g.graph

    def _modulations(
        self,
    ) -> tuple[list[_Modulation], list[_Modulation], _Modulation, tuple[Value, Value]]:
        """Return the modulations of double blocks (two each), single blocks and the last norm."""
        g, c, p = self.g, self.c, self.p
        dim, channels = c.inner_dim, c.timestep_guidance_channels
        time = g.input(_TIME, 1, sequences=True)
        frequencies = RopeConfig(channels, 10000.0).frequencies()
        embedder = "time_guidance_embed.timestep_embedder"
        x = g.sinusoids(time, np.array(frequencies, np.float32))
        (x,) = g.linear(x, p.matrix(f"{embedder}.linear_1", dim, channels))
        (x,) = g.linear(g.silu(x), p.matrix(f"{embedder}.linear_2", dim, dim))
        image, text, single, last = g.linear(
            g.silu(x),
            p.matrix("double_stream_modulation_img.linear", 6 * dim, dim),
            p.matrix("double_stream_modulation_txt.linear", 6 * dim, dim),
            p.matrix("single_stream_modulation.linear", 3 * dim, dim),
            p.matrix("norm_out.linear", 2 * dim, dim),
        )

        def part(x: Value, i: int) -> Value:
            return g.select_columns(x, i * dim, dim)

        def sets(x: Value) -> list[_Modulation]:
            count = x.cols // (3 * dim)
            return [_Modulation(*(part(x, 3 * n + i) for i in range(3))) for n in range(count)]

        # The last norm has its scale before its shift, unlike the blocks.
        return sets(image), sets(text), sets(single)[0], (part(last, 0), part(last, 1))

    def _norm(self, x: Value, shift: Value, scale: Value) -> Value:
        """Return a norm without weights of its own, scaled and shifted by the time step."""
        normed = self.g.layer_norm(x, self.ones, None, self.c.eps)
        return self.g.modulate(normed, scale, shift)

    def _double(
        self,
        name: str,
        text: Value,
        image: Value,
        text_sets: list[_Modulation],
        image_sets: list[_Modulation],
    ) -> tuple[Value, Value]:
        g, c = self.g, self.c
        attn = f"{name}.attn"
        image_names = ("to_q", "to_k", "to_v"), ("norm_q", "norm_k")
        text_names = ("add_q_proj", "add_k_proj", "add_v_proj"), ("norm_added_q", "norm_added_k")
        of_text = self._query_key_value(attn, text, text_sets[0], *text_names)
        of_image = self._query_key_value(attn, image, image_sets[0], *image_names)
        q, k, v = (g.join_rows(a, b) for a, b in zip(of_text, of_image, strict=True))
        of_text_out, of_image_out = g.split_rows(self._attend(q, k, v), text, image)
        dim = c.inner_dim
        (out,) = g.linear(of_image_out, self.p.matrix(f"{attn}.to_out.0", dim, dim))
        image = g.add_gated(image, out, image_sets[0].gate)
        (out,) = g.linear(of_text_out, self.p.matrix(f"{attn}.to_add_out", dim, dim))
        text = g.add_gated(text, out, text_sets[0].gate)
        image = self._feed_forward(f"{name}.ff", image, image_sets[1])
        text = self._feed_forward(f"{name}.ff_context", text, text_sets[1])
        return text, image

    def _query_key_value(
        self, name: str, x: Value, m: _Modulation, names: tuple[str, ...], norms: tuple[str, ...]
    ) -> tuple[Value, Value, Value]:
        dim = self.c.inner_dim
        x = self._norm(x, m.shift, m.scale)
        q, k, v = self.g.linear(x, *(self.p.matrix(f"{name}.{n}", dim, dim) for n in names))
        return self._head_norm(q, f"{name}.{norms[0]}"), self._head_norm(k, f"{name}.{norms[1]}"), v

    def _head_norm(self, x: Value, name: str) -> Value:
        weight = self.p.array(f"{name}.weight", self.c.attention_head_dim)
        return self.g.head_norm(x, weight, self.c.eps)

    def _attend(self, q: Value, k: Value, v: Value) -> Value:
        """Add attention in which all tokens see each other; the text's padding has no mask."""
        head_dim = self.c.attention_head_dim
        q, k = (self.g.rope(x, self.rope, head_dim) for x in (q, k))
        return self.g.attend_local(q, k, v, head_dim=head_dim, scale=head_dim**-0.5)

    def _feed_forward(self, name: str, x: Value, m: _Modulation) -> Value:
        g, c = self.g, self.c
        weights = self.p.split(f"{name}.linear_in", [c.mlp_dim, c.mlp_dim], c.inner_dim)
        gate, up = g.linear(self._norm(x, m.shift, m.scale), *weights)
        weight = self.p.matrix(f"{name}.linear_out", c.inner_dim, c.mlp_dim)
        (out,) = g.linear(g.swiglu(gate, up), weight)
        return g.add_gated(x, out, m.gate)

    def _single(self, name: str, x: Value, m: _Modulation) -> Value:
        """Add attention and the feed-forward part side by side, with one matrix before and one behind."""
        g, c = self.g, self.c
        dim, mlp, attn = c.inner_dim, c.mlp_dim, f"{name}.attn"
        rows = [dim, dim, dim, mlp, mlp]
        weights = self.p.split(f"{attn}.to_qkv_mlp_proj", rows, dim)
        q, k, v, gate, up = g.linear(self._norm(x, m.shift, m.scale), *weights)
        q = self._head_norm(q, f"{attn}.norm_q")
        k = self._head_norm(k, f"{attn}.norm_k")
        both = g.join_heads(self._attend(q, k, v), g.swiglu(gate, up), 1)
        (out,) = g.linear(both, self.p.matrix(f"{attn}.to_out", dim, dim + mlp))
        return g.add_gated(x, out, m.gate)
