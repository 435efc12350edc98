"""The autoencoder of FLUX.2: images to latents and back.

Latents are what the transformer works on: each is a patch of 2 x 2 positions of the convolutions'
latents, its channels normalised by running statistics of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import Device
from oxibonsai.diffusion.parameters import Parameters, Tensors, checked_config, positive_real
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.graph import Builder, Value

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class VaeConfig:
    """Configuration that tensors do not show, by the names of diffusers' ``config.json``.

    Attributes:
        latent_channels: Of the convolutions' latents; a patch has 4 times as many.
        norm_num_groups: Channels of a group share their statistics over the whole image.
        layers_per_block: Residual blocks of a level of the encoder; the decoder has one more.
        levels: Between two of them a side of the image doubles.
        batch_norm_eps: Of the running statistics.
    """

    latent_channels: int
    norm_num_groups: int
    layers_per_block: int
    levels: int
    batch_norm_eps: float

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> VaeConfig:
        """Return the fields of a ``config.json``; widths come from the tensors.

        Raises:
            FormatError: A value makes no sense.
            UnsupportedError: The network has parts that this version does not run.
        """
        if tuple(config.get("patch_size", (2, 2))) != (2, 2):
            raise UnsupportedError(f"patches of {config['patch_size']}: only 2 x 2 are supported")
        if config.get("act_fn", "silu") != "silu":
            raise UnsupportedError(f"act_fn {config['act_fn']} of the autoencoder is not supported")
        blocks = config.get("block_out_channels", (128, 256, 512, 512))
        numbers = {
            "latent_channels": config.get("latent_channels", 32),
            "norm_num_groups": config.get("norm_num_groups", 32),
            "layers_per_block": config.get("layers_per_block", 2),
            "levels": len(blocks),
        }
        for name, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 4096:
                raise FormatError(f"{name} of the autoencoder is {value!r}, no positive integer")
        return cls(**numbers, batch_norm_eps=positive_real(config, "batch_norm_eps", 1e-4))


class Vae:
    """Decoder and encoder, compiled level by level as they run: a level's memory is then free again.

    Attributes:
        config: What tensors do not say.
        scale: Pixels on a side of a latent's patch.
    """

    def __init__(self, config: VaeConfig, tensors: Tensors, device: Device) -> None:
        self.config = config
        self.scale = 2**config.levels
        self._device = device
        p = Parameters(tensors)
        channels = 4 * config.latent_channels
        self._mean = p.array("bn.running_mean", channels)
        variance = p.array("bn.running_var", channels)
        if (variance < 0).any():
            raise FormatError("bn.running_var of the autoencoder has negative values")
        self._deviation = np.sqrt(variance + np.float32(config.batch_norm_eps))
        self._decoder = _Decoder(config, p).levels()
        self._encoder = _Encoder(config, p).levels() if p.has("encoder.conv_in.weight") else []
        ignored = ["bn.num_batches_tracked"]
        if not self._encoder:
            ignored += ["quant_conv.weight", "quant_conv.bias"]
        p.refuse_unused(ignored=tuple(ignored))

    @classmethod
    def load(cls, config: Mapping[str, Any], tensors: Tensors, device: Device) -> Vae:
        """Read the parameters.

        Args:
            config: As diffusers' ``config.json`` of the autoencoder.
            tensors: By diffusers' names; those of the encoder may be missing.
            device: Runs it.

        Raises:
            FormatError: A tensor or a value of the configuration is missing or does not fit.
            UnsupportedError: There is a tensor that the networks do not use.
        """
        return cls(checked_config(VaeConfig.from_dict, config, tensors.path), tensors, device)

    def decode(self, latents: Array) -> Array:
        """Return an image of latents.

        Args:
            latents: float32 [rows, columns, 4 * latent_channels], of patches.

        Returns:
            float32 [scale * rows, scale * columns, 3], about -1 to 1, not clamped.
        """
        channels = 4 * self.config.latent_channels
        if latents.ndim != 3 or 0 in latents.shape or latents.shape[2] != channels:
            raise RequestError(f"latents of shape {latents.shape}; they need [h, w, {channels}]")
        _check_finite(latents, "latents")
        x = unpatchify(latents.astype(np.float32) * self._deviation + self._mean)
        return self._run(self._decoder, x, 1, 2)

    def encode(self, image: Array) -> Array:
        """Return the mean of an image's latents.

        Args:
            image: float32 [h, w, 3] from -1 to 1; sides are multiples of ``scale``.

        Returns:
            float32 [h / scale, w / scale, 4 * latent_channels].

        Raises:
            UnsupportedError: The tensors hold no encoder.
        """
        if not self._encoder:
            raise UnsupportedError(
                "this autoencoder has no encoder: it cannot start from a picture"
            )
        if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise RequestError(f"a picture of shape {image.shape}; it needs [h, w, 3]")
        if image.shape[0] % self.scale or image.shape[1] % self.scale:
            raise RequestError(
                f"a picture of {image.shape[1]} x {image.shape[0]}: sides must be multiples of "
                f"{self.scale}"
            )
        _check_finite(image, "a picture")
        x = self._run(self._encoder, image, 2, 1)
        x = patchify(x[:, :, : self.config.latent_channels])
        latents: Array = (x - self._mean) / self._deviation
        return latents

    def _run(self, levels: list[_core.Graph], x: Array, into: int, out: int) -> Array:
        """Run level after level.

        Args:
            levels: The last one keeps the size of its input.
            x: [h, w, channels].
            into: Pixels of a level's input on a side of a position of its grid.
            out: The same of its output.
        """
        for i, graph in enumerate(levels):
            if i == len(levels) - 1:
                into = out = 1
            height, width = x.shape[0] // into, x.shape[1] // into
            batch = _core.Batch()
            batch.add_span(height * width)
            batch.set_grid(width)
            batch.set_input("x", np.ascontiguousarray(x).reshape(-1, x.shape[2]))
            y = self._device.compile(graph).run(batch)["y"]
            x = y.reshape(out * height, out * width, y.shape[1])
        return x


def _check_finite(values: Array, name: str) -> None:
    if not np.isfinite(values).all():
        raise RequestError(f"{name}: there are values that are not finite")


def patchify(x: Array) -> Array:
    """Turn [h, w, c] into [h / 2, w / 2, 4 c]: channel c of pixel (dy, dx) becomes 4 c + 2 dy + dx."""
    h, w, c = x.shape
    parts = x.reshape(h // 2, 2, w // 2, 2, c)
    return np.ascontiguousarray(parts.transpose(0, 2, 4, 1, 3)).reshape(h // 2, w // 2, 4 * c)


def unpatchify(x: Array) -> Array:
    """Undo :meth:`patchify`."""
    h, w, c = x.shape
    parts = x.reshape(h, w, c // 4, 2, 2)
    return np.ascontiguousarray(parts.transpose(0, 3, 1, 4, 2)).reshape(2 * h, 2 * w, c // 4)


_EPS = np.float32(1e-6)  # of all group norms


class _Network:
    """Layers that encoder and decoder share.

    Args:
        config: What tensors do not say.
        parameters: By diffusers' names.
    """

    def __init__(self, config: VaeConfig, parameters: Parameters) -> None:
        self.c, self.p = config, parameters
        self.g = Builder()

    def begin(self, name: str, *, halves: bool) -> Value:
        """Return a new level's input, as wide as the convolution ``name`` expects.

        Args:
            name: Of the convolution, without ``.weight``.
            halves: The level's input has twice the rows and columns of its output.
        """
        self.g = Builder()
        shape = self.p.shape(f"{name}.weight")
        if len(shape) < 2:
            raise FormatError(f"{name}.weight has shape {shape}, which is none of a convolution")
        return self.g.input("x", shape[1], pixels=2 if halves else 1)

    def end(self, y: Value) -> _core.Graph:
        """Return the level's graph."""
        self.g.output("y", y)
        return self.g.graph

    def conv(
        self,
        x: Value,
        name: str,
        *,
        norm: str = "",
        silu: bool = True,
        stride: int = 1,
        upsample: int = 1,
        pad: int | None = None,
        add: Value | None = None,
    ) -> Value:
        """Return the convolution ``name`` of x, or of silu of the group norm ``norm`` of x.

        A matrix is a convolution with one tap.
        """
        shape = self.p.shape(f"{name}.weight")
        weight = self.p.array(f"{name}.weight", *shape)
        if weight.ndim == 2:
            weight = weight[:, :, None, None]
        if weight.ndim != 4 or weight.shape[1] != x.cols or weight.shape[2] != weight.shape[3]:
            raise FormatError(
                f"{name}.weight has shape {shape}, which {x.cols} channels do not fit"
            )
        moments = normed = None
        if norm:
            normed = (self.p.array(f"{norm}.weight", x.cols), self.p.array(f"{norm}.bias", x.cols))
            if x.cols % self.c.norm_num_groups:
                raise FormatError(f"{norm}: {x.cols} channels, no {self.c.norm_num_groups} groups")
            moments = self.g.group_moments(x, self.c.norm_num_groups, float(_EPS))
        return self.g.conv2d(
            x,
            weight,
            self.p.array(f"{name}.bias", weight.shape[0]),
            moments=moments,
            norm=normed,
            silu=silu and bool(norm),
            stride=stride,
            upsample=upsample,
            pad=weight.shape[2] // 2 if pad is None else pad,
            add=add,
        )

    def resnet(self, x: Value, name: str) -> Value:
        """Add two convolutions, and x or a convolution of one tap of it."""
        h = self.conv(x, f"{name}.conv1", norm=f"{name}.norm1")
        if self.p.has(f"{name}.conv_shortcut.weight"):
            x = self.conv(x, f"{name}.conv_shortcut")
        return self.conv(h, f"{name}.conv2", norm=f"{name}.norm2", add=x)

    def middle(self, x: Value, name: str) -> Value:
        """Add residual blocks, between which all positions see each other in one head."""
        x = self.resnet(x, f"{name}.resnets.0")
        attention = f"{name}.attentions.0"
        if self.p.has(f"{attention}.to_q.weight"):
            norm = f"{attention}.group_norm"
            q, k, v = (
                self.conv(x, f"{attention}.{part}", norm=norm, silu=False)
                for part in ("to_q", "to_k", "to_v")
            )
            a = self.g.attend_local(q, k, v, head_dim=q.cols, scale=q.cols**-0.5)
            x = self.conv(a, f"{attention}.to_out.0", add=x)
        return self.resnet(x, f"{name}.resnets.1")


class _Decoder(_Network):
    def levels(self) -> list[_core.Graph]:
        """Return the graph of each level."""
        graphs = []
        for i in range(self.c.levels):
            block = f"decoder.up_blocks.{i}"
            if i == 0:
                first = (
                    "post_quant_conv" if self.p.has("post_quant_conv.weight") else "decoder.conv_in"
                )
                x = self.begin(first, halves=False)
                if first == "post_quant_conv":
                    x = self.conv(x, first)
                x = self.middle(self.conv(x, "decoder.conv_in"), "decoder.mid_block")
            else:
                x = self.begin(f"{block}.resnets.0.conv1", halves=False)
            for j in range(self.c.layers_per_block + 1):
                x = self.resnet(x, f"{block}.resnets.{j}")
            if i < self.c.levels - 1:
                x = self.conv(x, f"{block}.upsamplers.0.conv", upsample=2)
            else:
                x = self.conv(x, "decoder.conv_out", norm="decoder.conv_norm_out")
            graphs.append(self.end(x))
        return graphs


class _Encoder(_Network):
    def levels(self) -> list[_core.Graph]:
        """Return the graph of each level."""
        graphs = []
        for i in range(self.c.levels):
            block, last = f"encoder.down_blocks.{i}", i == self.c.levels - 1
            first = "encoder.conv_in" if i == 0 else f"{block}.resnets.0.conv1"
            x = self.begin(first, halves=not last)
            if i == 0:
                x = self.conv(x, "encoder.conv_in")
            for j in range(self.c.layers_per_block):
                x = self.resnet(x, f"{block}.resnets.{j}")
            if not last:
                # Zeros on the right and at the bottom only.
                x = self.conv(x, f"{block}.downsamplers.0.conv", stride=2, pad=0)
            else:
                x = self.middle(x, "encoder.mid_block")
                x = self.conv(x, "encoder.conv_out", norm="encoder.conv_norm_out")
                if self.p.has("quant_conv.weight"):
                    x = self.conv(x, "quant_conv")
            graphs.append(self.end(x))
        return graphs
