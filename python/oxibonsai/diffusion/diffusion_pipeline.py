"""Runs the networks of an image model: a request becomes latents, latents become pixels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.devices import Device
from oxibonsai.diffusion.latents import Grid, grid_of, joint_positions, noise
from oxibonsai.diffusion.model_files import ModelFiles
from oxibonsai.diffusion.pixels import as_reference, resized, to_pixels, to_values
from oxibonsai.diffusion.request import ImageRequest
from oxibonsai.diffusion.schedule import first_step, sigmas
from oxibonsai.diffusion.text_encoder import TextEncoder
from oxibonsai.diffusion.transformer import ImageTransformer
from oxibonsai.diffusion.vae import Vae
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.lora import Adapter

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

_KEPT_PROMPTS = 8  # 6 MiB each at the usual size


@dataclass(frozen=True)
class Step:
    """A step that is done.

    Attributes:
        index: From 0 on, of the whole schedule.
        steps: In all.
        timestep: From 1000 to 0, before the step.
        latents: float32 [tokens, channels] after it.
        estimate: What the last step would give if the velocity stayed as it is: a preview.
        grid: The tokens.
    """

    index: int
    steps: int
    timestep: float
    latents: Floats
    estimate: Floats
    grid: Grid


# Called after each step; what it raises ends the drawing, and latents that it returns go on.
OnStep = Callable[[Step], Floats | None]


class DiffusionPipeline:
    """An image model, ready to draw one image at a time.

    Args:
        files: Its networks.
        device: Runs them.
        keep_text_encoder: Keep it in memory between prompts; else it is loaded for each new one.
        adapters: Added to the transformer's linear layers, in this order.

    Raises:
        FormatError, UnsupportedError: The networks do not fit together or can't be run.
    """

    def __init__(
        self,
        files: ModelFiles,
        device: Device,
        *,
        keep_text_encoder: bool = False,
        adapters: Sequence[Adapter] = (),
    ) -> None:
        self.name = files.name
        self.adapters = tuple(adapters)
        self.default_pixels = files.default_pixels
        self.prompt_length = files.prompt_length
        self._files, self._device = files, device
        self._keep = keep_text_encoder
        self._text_encoder: TextEncoder | None = None
        self._prompts: OrderedDict[tuple[str, int], Floats] = OrderedDict()
        self.vae = Vae.load(files.vae.config, files.vae.tensors, device)
        self.transformer = ImageTransformer.load(
            files.transformer.config, files.transformer.tensors, device, adapters=adapters
        )
        files.transformer.tensors.release()
        channels = 4 * self.vae.config.latent_channels
        config = self.transformer.config
        if config.in_channels != channels or config.out_channels != channels:
            raise FormatError(
                f"{files.transformer.tensors.path} works on {config.in_channels} channels, but the VAE "
                f"{files.vae.tensors.path} has {channels}: they belong to different models"
            )

    @property
    def channels(self) -> int:
        """Return the channels of a token of latents."""
        return self.transformer.config.in_channels

    @property
    def device(self) -> Device:
        """Return what runs the networks."""
        return self._device

    def matrix_sizes(self) -> dict[str, int]:
        """Return the weights of each matrix of the transformer, by diffusers' names."""
        tensors = self._files.transformer.tensors
        shapes = {name: tensors.shape(name) for name in tensors.names}
        return {name: s[0] * s[1] for name, s in shapes.items() if len(s) == 2}

    def grid(self, width: int, height: int) -> Grid:
        """Return the tokens of an image; RequestError for a size that can't be drawn."""
        return grid_of(width, height, self.vae.scale)

    def check(self, request: ImageRequest) -> None:
        """Raise RequestError for what can't be drawn; costs nothing."""
        grid = self.grid(request.width, request.height)
        sigmas(request.steps, grid.tokens)
        if request.start is not None:
            first_step(request.steps, request.strength)

    def encode_prompt(self, prompt: str, length: int | None = None) -> Floats:
        """Return the hidden states of a prompt: float32 [length, width of the text encoder].

        Args:
            prompt: A text.
            length: Tokens with the padding; None: as the model says.
        """
        length = self.prompt_length if length is None else length
        encoder = self._text_encoder or TextEncoder(
            self._files.text_encoder, self._device, self._files.text_layers
        )
        if encoder.width != self.transformer.config.joint_attention_dim:
            raise FormatError(
                f"the text encoder gives {encoder.width} columns, but the transformer reads "
                f"{self.transformer.config.joint_attention_dim}: they belong to different models"
            )
        if self._keep:
            self._text_encoder = encoder
        states: Floats = encoder.encode([prompt], length)[0]
        return states

    def embed(self, states: Floats) -> Floats:
        """Return a prompt's hidden states as the transformer's blocks read them: [1, tokens, inner]."""
        return self.transformer.embed_text(states[None])

    def embed_prompt(self, prompt: str, length: int | None = None) -> Floats:
        """Return the hidden states of a prompt for the transformer; the last ones are kept."""
        length = self.prompt_length if length is None else length
        key = (prompt, length)
        if key not in self._prompts:
            self._prompts[key] = self.embed(self.encode_prompt(prompt, length))
            while len(self._prompts) > _KEPT_PROMPTS:
                self._prompts.popitem(last=False)
        self._prompts.move_to_end(key)
        return self._prompts[key]

    def draw(self, request: ImageRequest, on_step: OnStep | None = None) -> Pixels:
        """Return an image: uint8 [height, width, 3].

        Raises:
            RequestError: The request can't be drawn.
        """
        self.check(request)
        latents, grid = self.denoise(request, self.embed_prompt(request.prompt), on_step)
        return to_pixels(self.decode(latents, grid))

    def denoise(
        self,
        request: ImageRequest,
        text: Floats,
        on_step: OnStep | None = None,
        latents: Floats | None = None,
    ) -> tuple[Floats, Grid]:
        """Return the steps from noise to an image's latents.

        Args:
            request: Its prompt is not looked at.
            text: Of :meth:`embed`.
            on_step: Called after each step.
            latents: float32 [tokens, channels] to start from instead of the seed's noise.

        Returns:
            Latents, float32 [tokens, channels], and their grid.
        """
        grid = self.grid(request.width, request.height)
        levels = sigmas(request.steps, grid.tokens)
        x = latents
        if x is None:
            x = noise(request.seed, self.channels, grid.rows, grid.cols, request.generator)
        if x.shape != (grid.tokens, self.channels):
            raise RequestError(
                f"latents of shape {x.shape}; {request.width} x {request.height} pixels need "
                f"({grid.tokens}, {self.channels})"
            )
        start = 0
        if request.start is not None and request.strength > 0:
            start = first_step(request.steps, request.strength)
            clean, _ = self.encode(to_values(resized(request.start, request.width, request.height)))
            x = (np.float32(1) - levels[start]) * clean + levels[start] * x
        extra, grids = self._references(request)
        positions = joint_positions(grid, grids)
        for i in range(start, request.steps):
            timestep = float(levels[i] * np.float32(1000))
            joint = np.concatenate([x, *extra])[None]
            velocity = self.transformer.velocity(joint, text, timestep, positions)[0, : grid.tokens]
            x = x + (levels[i + 1] - levels[i]) * velocity
            if on_step is not None:
                estimate = x - levels[i + 1] * velocity
                replaced = on_step(Step(i, request.steps, timestep, x, estimate, grid))
                if replaced is not None and replaced.shape != x.shape:
                    raise RequestError(
                        f"a callback gave latents of shape {replaced.shape}, where they have {x.shape}"
                    )
                x = x if replaced is None else replaced
        return x, grid

    def decode(self, latents: Floats, grid: Grid) -> Floats:
        """Decode latents [tokens, channels] to float32 [height, width, 3], about -1 to 1."""
        self.transformer.release_buffers()  # the decoder takes as much
        return self.vae.decode(latents.reshape(grid.rows, grid.cols, self.channels))

    def encode(self, image: Floats) -> tuple[Floats, Grid]:
        """Return latents [tokens, channels] of an image, float32 [height, width, 3] from -1 to 1."""
        found = self.vae.encode(image)
        return found.reshape(-1, found.shape[2]), Grid(*found.shape[:2])

    def _references(self, request: ImageRequest) -> tuple[list[Floats], list[Grid]]:
        encoded = [
            self.encode(to_values(as_reference(image, self.vae.scale)))
            for image in request.references
        ]
        return [tokens for tokens, _ in encoded], [grid for _, grid in encoded]
