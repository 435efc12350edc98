"""The image model as a Python object, called like a pipeline of diffusers."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.devices import AUTO, CPU, chosen_device, open_device
from oxibonsai.diffusion.diffusion_pipeline import DiffusionPipeline, OnStep, Step
from oxibonsai.diffusion.latents import Grid
from oxibonsai.diffusion.lora import read_lora
from oxibonsai.diffusion.model_files import PartNames, open_image_model
from oxibonsai.diffusion.pixels import as_reference, to_pixels
from oxibonsai.diffusion.request import STEPS, ImageRequest
from oxibonsai.errors import RequestError, SourceError, needs_extra
from oxibonsai.files.home_paths import with_home
from oxibonsai.loading import LoraChoice, chosen_adapters
from oxibonsai.lora import Adapter
from oxibonsai.sources.local import IMAGE_MODEL, say_demonstration
from oxibonsai.vision.image_input import read_image

Floats = npt.NDArray[np.float32]

OUTPUT_TYPES = ("pil", "np", "latent")

# Called as diffusers calls it: pipeline, step, timestep, {"latents": ...}; it returns those that go on.
StepCallback = Callable[["ImagePipeline", int, float, dict[str, Any]], Mapping[str, Any] | None]


@dataclass(frozen=True)
class ImagePipelineOutput:
    """Images that a call drew.

    Attributes:
        images: By ``output_type``: a list of images of Pillow's; float32 [n, height, width, 3] from
            0 to 1; or latents, float32 [n, channels, rows, cols].
        seeds: Of the images.
    """

    images: Any
    seeds: list[int]


def _open_adapter(source: str, scale: float) -> Adapter:
    path = with_home(source)
    if not path.is_file():
        raise SourceError(f"there is no adapter {source}")
    return read_lora(path, path.name, scale)


def random_seed() -> int:
    """Return a seed of 31 bits that nobody chose."""
    return secrets.randbits(31)


class ImagePipeline:
    """Draws images of prompts with a FLUX.2-klein, such as PrismML's Bonsai-Image.

    Attributes:
        diffusion: The networks.
    """

    def __init__(self, diffusion: DiffusionPipeline) -> None:
        self.diffusion = diffusion

    def __repr__(self) -> str:
        return f"<ImagePipeline {self.diffusion.name} on {self.diffusion.device.name}>"

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] | None = None,
        *,
        transformer: str | None = None,
        vae: str | None = None,
        text_encoder: str | None = None,
        tokenizer: str | None = None,
        text_encoder_out_layers: Sequence[int] | None = None,
        keep_text_encoder: bool = False,
        lora: LoraChoice | None = None,
        device: str | None = None,
        threads: int | None = None,
    ) -> ImagePipeline:
        """Open a model.

        Args:
            source: A folder as diffusers or PrismML lay it out, ``hf:org/repo``, a GGUF file, or
                ``seedling-picture``, which comes with the package; None: ``OXIBONSAI_IMAGE_MODEL``, or
                parts alone, or else, with a line on stderr that says so, ``seedling-picture``.
            transformer, vae, text_encoder, tokenizer: Files or folders that replace those of the model.
            text_encoder_out_layers: Whose hidden states the transformer reads; None: as the model says.
            keep_text_encoder: Keep it in memory between prompts; else it is loaded for each new one.
            lora: A safetensors file of an adapter, or a list of such, each by itself or with a scale:
                ``["a.safetensors", ("b.safetensors", 0.5)]``.
            device: ``"cpu"``, ``"cuda:0"`` ...; None: ``OXIBONSAI_DEVICE``, else the processor.
            threads: None: ``OXIBONSAI_THREADS``, or all usable cores.

        Raises:
            SourceError: A file is missing.
            FormatError: A file is damaged.
            UnsupportedError: The model is of another kind.
        """
        parts = PartNames(transformer, vae, text_encoder, tokenizer)
        if source is None:
            source = os.environ.get("OXIBONSAI_IMAGE_MODEL") or None
            parts = parts.over(PartNames.from_environment())
            if source is None and parts == PartNames():
                source = IMAGE_MODEL
                say_demonstration(
                    source,
                    " that draws coloured shapes and potted trees",
                    "--model or OXIBONSAI_IMAGE_MODEL",
                )
        files = open_image_model(source, parts)
        if text_encoder_out_layers is not None:
            files = replace(files, text_layers=tuple(text_encoder_out_layers))
        name = chosen_device(device)
        # Kernels for images have not run on a GPU yet, so that auto is the processor.
        opened = open_device(CPU if name == AUTO else name, threads)
        adapters = [_open_adapter(source, scale) for source, scale in chosen_adapters(lora)]
        diffusion = DiffusionPipeline(
            files, opened, keep_text_encoder=keep_text_encoder, adapters=adapters
        )
        return cls(diffusion)

    def __call__(
        self,
        prompt: str | Sequence[str] | None = None,
        image: Any = None,
        *,
        height: int | None = None,
        width: int | None = None,
        num_inference_steps: int = STEPS,
        guidance_scale: float = 1.0,
        num_images_per_prompt: int = 1,
        seed: int | Sequence[int] | None = None,
        rng: str = "mlx",
        generator: Any = None,
        strength: float | None = None,
        latents: Floats | None = None,
        prompt_embeds: Floats | None = None,
        max_sequence_length: int | None = None,
        output_type: str = "pil",
        callback_on_step_end: StepCallback | None = None,
    ) -> ImagePipelineOutput:
        """Draw images.

        Args:
            prompt: One, or several.
            image: With ``strength``, an image to start from; without, the image or images that the
                prompt is about: paths, images of Pillow's, or uint8 [h, w, 3].
            height, width: Multiples of 16 from 16 to 2048; None: those of the first reference, else the
                model's default, usually 512.
            num_inference_steps: Passes of the transformer.
            guidance_scale: Only 1: the model is distilled.
            num_images_per_prompt: Images of each prompt, with the seeds ``seed``, ``seed`` + 1 ...
            seed: One, or one for each image of a prompt; None: a random one. An image depends on its
                own seed alone.
            rng: Whose noise: ``"mlx"`` or ``"torch"``.
            generator: One of torch's on the CPU, or a list with one for each image, whose next numbers
                are the noise as with diffusers; instead of seeds.
            strength: How much of ``image`` is kept, from 0 to 1: more is kept with a higher one.
            latents: float32 [n, channels, rows, cols] of noise, instead of seeds.
            prompt_embeds: float32 [n, tokens, width] of a text encoder, instead of prompts.
            max_sequence_length: Tokens of a prompt with its padding; None: as the model says, usually
                512. Another one draws another image.
            output_type: ``"pil"``, ``"np"`` or ``"latent"``.
            callback_on_step_end: Called after each step as by diffusers.

        Returns:
            The images, those of one prompt after the other.

        Raises:
            RequestError: An argument makes no sense; it is named.
        """
        sizes = {"height": height, "width": width, "max_sequence_length": max_sequence_length}
        for name, value in sizes.items():
            if value is not None:
                _check_whole(name, value)
        _check_whole("num_inference_steps", num_inference_steps)
        _check_whole("num_images_per_prompt", num_images_per_prompt)
        if output_type not in OUTPUT_TYPES:
            raise RequestError(
                f"output_type {output_type!r}; it is one of {', '.join(OUTPUT_TYPES)}"
            )
        if guidance_scale != 1.0:
            raise RequestError(
                f"guidance_scale {guidance_scale}: the model is distilled and draws without; leave it at 1"
            )
        request = self._request(image, strength, width, height, num_inference_steps, rng)
        texts = self._texts(prompt, prompt_embeds)
        if generator is not None:
            if latents is not None or seed is not None:
                raise RequestError("give one of generator, seed and latents")
            grid = self.diffusion.grid(request.width, request.height)
            shape = (self.diffusion.channels, grid.rows, grid.cols)
            latents = _drawn_by_torch(generator, len(texts) * num_images_per_prompt, shape)
            texts = [text for text in texts for _ in range(num_images_per_prompt)]
            num_images_per_prompt = 1
        starts = self._starts(latents, seed, num_images_per_prompt, len(texts))
        drawn, seeds = [], []
        for text in texts:
            embedded = (
                self.diffusion.embed_prompt(text, max_sequence_length)
                if isinstance(text, str)
                else self.diffusion.embed(text)
            )
            for start in starts if latents is None else [starts.pop(0)]:
                one = replace(request, seed=start if isinstance(start, int) else 0)
                given = None if isinstance(start, int) else start
                on_step = _as_on_step(self, callback_on_step_end)
                drawn.append(self.diffusion.denoise(one, embedded, on_step, given))
                seeds += [start] if isinstance(start, int) else []
        return ImagePipelineOutput(self._output(drawn, output_type), seeds)

    def _request(
        self,
        image: Any,
        strength: float | None,
        width: int | None,
        height: int | None,
        steps: int,
        rng: str,
    ) -> ImageRequest:
        """Return the checked request without its prompt and seed."""
        sources = image if isinstance(image, list | tuple) else [] if image is None else [image]
        images = [read_image(source).image for source in sources]
        if strength is not None and len(images) != 1:
            raise RequestError("strength is for one image to start from; references have none")
        if strength is None and images:
            reference = as_reference(images[0], self.diffusion.vae.scale)
            width, height = width or reference.width, height or reference.height
        side = self.diffusion.default_pixels
        request = ImageRequest("", 0, width or side, height or side, steps, rng)
        if strength is not None:
            request = replace(request, start=images[0], strength=strength)
        else:
            request = replace(request, references=tuple(images))
        self.diffusion.check(request)
        return request

    def _texts(
        self, prompt: str | Sequence[str] | None, embeds: Floats | None
    ) -> Sequence[str | Floats]:
        if (prompt is None) == (embeds is None):
            raise RequestError("give either prompt or prompt_embeds")
        if embeds is not None:
            width = self.diffusion.transformer.config.joint_attention_dim
            if embeds.ndim != 3 or embeds.shape[2] != width or 0 in embeds.shape:
                raise RequestError(
                    f"prompt_embeds of shape {embeds.shape}; they need [n, tokens, {width}]"
                )
            return list(np.asarray(embeds, np.float32))
        if isinstance(prompt, str):
            return [prompt]
        if not isinstance(prompt, Sequence) or not all(isinstance(p, str) for p in prompt):
            raise RequestError(f"prompt is {prompt!r}; it must be a string or a list of strings")
        if not prompt:
            raise RequestError("prompt is an empty list: there is nothing to draw")
        return list(prompt)

    def _starts(
        self, latents: Floats | None, seed: int | Sequence[int] | None, each: int, prompts: int
    ) -> list[Any]:
        """Return the seeds of the images of each prompt, or the latents of all images."""
        if latents is not None:
            if seed is not None or each != 1 or latents.ndim != 4 or len(latents) != prompts:
                raise RequestError(
                    f"latents need the shape [{prompts}, channels, rows, cols], and no seed"
                )
            array = np.asarray(latents, np.float32)
            return [x.reshape(x.shape[0], -1).T.copy() for x in array]
        if each < 1:
            raise RequestError(f"num_images_per_prompt is {each}; it must be at least 1")
        if seed is None:
            seed = random_seed()
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(each)]
        if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str):
            raise RequestError(f"seed is {seed!r}; it must be a whole number or a list of such")
        for one in seed:
            _check_whole("seed", one)
        if each not in (1, len(seed)):
            raise RequestError(f"{len(seed)} seeds for num_images_per_prompt {each}")
        return [int(s) for s in seed]

    def _output(self, drawn: list[tuple[Floats, Grid]], output_type: str) -> Any:
        if output_type == "latent":
            return np.stack([x.T.reshape(-1, g.rows, g.cols) for x, g in drawn])
        values = (self.diffusion.decode(x, grid) for x, grid in drawn)
        if output_type == "np":
            half = np.float32(0.5)
            return np.stack([np.clip(v * half + half, 0.0, 1.0) for v in values])
        from PIL import Image

        return [Image.fromarray(to_pixels(v)) for v in values]


def _drawn_by_torch(generator: Any, count: int, shape: tuple[int, int, int]) -> Floats:
    """Return noise of diffusers: float32 [count, *shape]."""
    with needs_extra("hf"):
        import torch

    each = generator if isinstance(generator, list | tuple) else [generator]
    for one in each:
        if not isinstance(one, torch.Generator) or one.device.type != "cpu":
            raise RequestError(
                f"generator is {one!r}; it must be a torch.Generator on the CPU; or give a seed"
            )
    if len(each) not in (1, count):
        raise RequestError(f"{len(each)} generators for {count} pictures")
    if len(each) == 1:
        return torch.randn((count, *shape), generator=each[0]).numpy()
    return torch.stack([torch.randn(shape, generator=g) for g in each]).numpy()


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise RequestError(f"{name} is {value!r}; it must be a whole number")


def _as_on_step(pipeline: ImagePipeline, callback: StepCallback | None) -> OnStep | None:
    """Wrap the callback, which gets latents as [1, tokens, channels], as diffusers has them there."""
    if callback is None:
        return None

    def on_step(step: Step) -> Floats | None:
        returned = callback(pipeline, step.index, step.timestep, {"latents": step.latents[None]})
        latents = (returned or {}).get("latents")
        return None if latents is None else np.asarray(latents, np.float32)[0]

    return on_step
