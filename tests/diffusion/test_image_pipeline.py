"""From a prompt and a seed to a picture: as diffusers' own pipeline, and the same bytes every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_images import LENGTH, prompt_states

from oxibonsai import ImagePipeline, _core
from oxibonsai.diffusion.diffusion_pipeline import DiffusionPipeline, Step
from oxibonsai.diffusion.pixels import to_pixels
from oxibonsai.diffusion.request import ImageRequest
from oxibonsai.errors import FormatError, RequestError

PROMPT = "a tiny bonsai tree in a ceramic pot"
# Accents of their own, Hangul of jamo, full-width forms, the sign of kelvin.
DECOMPOSED = "cafe\u0301 \u1112\u1161\u11ab \uff21\uff22 5 \u212a"
SIZE: dict[str, Any] = {"width": 96, "height": 64}


def relative_error(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.fixture(scope="module")
def states(diffusers_pipeline: Any, image_folder: Path) -> Any:
    return prompt_states(diffusers_pipeline, image_folder, PROMPT)


def latents(seed: int = 1, width: int = 96, height: int = 64) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 32, height // 16, width // 16, generator=generator)


def picture(seed: int, width: int, height: int) -> Image.Image:
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("prompt", [PROMPT, DECOMPOSED])
def test_a_prompt_is_read_as_transformers_reads_it(
    pipeline: ImagePipeline, diffusers_pipeline: Any, image_folder: Path, prompt: str
) -> None:
    ours = pipeline.diffusion.encode_prompt(prompt, LENGTH)
    assert ours.shape == (LENGTH, 192)
    assert relative_error(ours, prompt_states(diffusers_pipeline, image_folder, prompt)[0]) < 1e-5


@pytest.mark.parametrize(
    ("width", "height"), [(96, 64), (64, 64), (176, 112), (16, 16), (16, 2048)]
)
def test_every_step_and_the_picture_are_those_of_diffusers(
    pipeline: ImagePipeline, diffusers_pipeline: Any, states: Any, width: int, height: int
) -> None:
    theirs: list[Any] = []
    size: dict[str, Any] = {"width": width, "height": height}
    expected = diffusers_pipeline(
        prompt_embeds=states,
        latents=latents(**size),
        **size,
        num_inference_steps=4,
        guidance_scale=1.0,
        output_type="np",
        callback_on_step_end=lambda _, i, t, values: (theirs.append(values["latents"]), {})[1],
    ).images
    ours: list[Any] = []
    drawn = pipeline(
        prompt_embeds=states.numpy(),
        latents=latents(**size).numpy(),
        **size,
        output_type="np",
        callback_on_step_end=lambda _, i, t, values: ours.append(values["latents"]),
    )
    assert len(ours) == 4
    for a, b in zip(ours, theirs, strict=True):
        assert relative_error(a, b) < 1e-5
    assert drawn.images.shape == (1, height, width, 3)
    assert np.abs(drawn.images - expected).max() < 1e-4
    assert np.abs(np.rint(drawn.images * 255) - np.rint(expected * 255)).max() <= 1


@pytest.mark.parametrize("prompt", [PROMPT, DECOMPOSED])
def test_a_seed_draws_what_it_draws_from_the_same_noise(
    pipeline: ImagePipeline, diffusers_pipeline: Any, image_folder: Path, prompt: str
) -> None:
    """With ``rng="torch"`` a seed is that of diffusers' generator."""
    states = prompt_states(diffusers_pipeline, image_folder, prompt)
    ours = pipeline(
        prompt, **SIZE, seed=7, rng="torch", output_type="np", max_sequence_length=LENGTH
    )
    theirs = diffusers_pipeline(
        prompt_embeds=states,
        generator=torch.Generator().manual_seed(7),
        **SIZE,
        num_inference_steps=4,
        guidance_scale=1.0,
        output_type="np",
    )
    assert np.abs(ours.images - theirs.images).max() < 1e-3


def test_a_generator_of_torch_gives_the_noise_as_with_diffusers(
    pipeline: ImagePipeline, diffusers_pipeline: Any, states: Any
) -> None:
    settings: dict[str, Any] = {**SIZE, "num_inference_steps": 1, "output_type": "np"}
    generator = torch.Generator().manual_seed(7)
    torch.randn(3, generator=generator)  # it need not be fresh
    theirs = diffusers_pipeline(
        prompt_embeds=states,
        num_images_per_prompt=2,
        generator=generator.clone_state(),
        guidance_scale=1.0,
        **settings,
    ).images
    ours = pipeline(
        PROMPT,
        num_images_per_prompt=2,
        generator=generator,
        max_sequence_length=LENGTH,
        **settings,
    ).images
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < 1e-3
    assert np.abs(ours[0] - ours[1]).max() > 0.01


def test_references_are_looked_at_as_by_diffusers(
    pipeline: ImagePipeline, diffusers_pipeline: Any, states: Any
) -> None:
    """The second one has sides that are no multiples of 16, so its middle is cut out."""
    references = [picture(0, 64, 80), picture(1, 105, 70)]
    arguments: dict[str, Any] = {**SIZE, "num_inference_steps": 3, "output_type": "np"}
    theirs = diffusers_pipeline(
        prompt_embeds=states, image=references, latents=latents(), guidance_scale=1.0, **arguments
    ).images
    ours = pipeline(
        prompt_embeds=states.numpy(), image=references, latents=latents().numpy(), **arguments
    ).images
    assert np.abs(ours - theirs).max() < 1e-4
    swapped = pipeline(
        prompt_embeds=states.numpy(), image=references[::-1], latents=latents().numpy(), **arguments
    ).images
    assert np.abs(swapped - theirs).max() > 1e-2


def test_an_edited_picture_has_the_size_of_its_reference(pipeline: ImagePipeline) -> None:
    drawn = pipeline(PROMPT, picture(1, 105, 70), seed=1, num_inference_steps=1)
    assert drawn.images[0].size == (96, 64)


def test_a_start_is_mixed_with_noise_of_the_first_step(
    pipeline: ImagePipeline, diffusers_pipeline: Any, states: Any
) -> None:
    """Strength 0.5 keeps the picture up to step 2 of 4."""
    start = picture(3, 96, 64)
    from oxibonsai.diffusion.schedule import sigmas

    level = float(sigmas(4, 24)[2])
    with torch.no_grad():
        values = torch.from_numpy(np.asarray(start).astype(np.float32) / 127.5 - 1)
        clean = diffusers_pipeline._encode_vae_image(values.permute(2, 0, 1)[None], None)
    theirs = diffusers_pipeline(
        prompt_embeds=states,
        latents=(1 - level) * clean + level * latents(),
        sigmas=list(np.linspace(1, 0.25, 4)[2:]),
        **SIZE,
        num_inference_steps=4,
        guidance_scale=1.0,
        output_type="np",
    ).images
    ours = pipeline(
        prompt_embeds=states.numpy(),
        image=start,
        strength=0.5,
        latents=latents().numpy(),
        **SIZE,
        output_type="np",
    ).images
    assert np.abs(ours - theirs).max() < 1e-4


def test_a_picture_depends_on_its_own_seed_alone(pipeline: ImagePipeline) -> None:
    alone = pipeline(PROMPT, **SIZE, seed=5, output_type="np").images[0]
    among = pipeline(["another", PROMPT], **SIZE, seed=[3, 5], output_type="np")
    assert np.array_equal(among.images[3], alone)
    assert among.seeds == [3, 5, 3, 5]
    assert not np.array_equal(among.images[2], alone)
    counted = pipeline(PROMPT, **SIZE, seed=4, num_images_per_prompt=2, output_type="np")
    assert np.array_equal(counted.images[1], alone)


def test_no_seed_is_a_random_one_that_is_told(pipeline: ImagePipeline) -> None:
    first = pipeline(PROMPT, **SIZE, num_inference_steps=1, output_type="latent")
    again = pipeline(
        PROMPT, **SIZE, num_inference_steps=1, output_type="latent", seed=first.seeds[0]
    )
    assert np.array_equal(first.images, again.images)


_DRAW = """
import sys
from oxibonsai import ImagePipeline
from oxibonsai.diffusion.pixels import encode_png
from oxibonsai.diffusion.request import ImageRequest
import hashlib
diffusion = ImagePipeline.from_pretrained(sys.argv[1]).diffusion
pixels = diffusion.draw(ImageRequest("a tree", 42, 96, 64))
print(hashlib.sha256(encode_png(pixels, {})).hexdigest())
"""


@pytest.mark.slow
def test_the_file_is_the_same_on_every_tier_and_number_of_threads(image_folder: Path) -> None:
    found = set()
    for tier in _core.cpu.tiers():
        for threads in ("1", "3"):
            environment = {**os.environ, "OXIBONSAI_ISA": tier, "OXIBONSAI_THREADS": threads}
            done = subprocess.run(
                [sys.executable, "-c", _DRAW, str(image_folder)],
                env=environment, capture_output=True, text=True, check=True,
            )  # fmt: skip
            found.add(done.stdout)
    assert len(found) == 1


def test_a_callback_can_change_latents_and_end_the_drawing(pipeline: ImagePipeline) -> None:
    fixed = latents(9).numpy().reshape(1, 32, -1).transpose(0, 2, 1)
    drawn = pipeline(
        PROMPT,
        **SIZE,
        seed=1,
        output_type="latent",
        callback_on_step_end=lambda _, i, t, values: {"latents": fixed},
    )
    assert np.array_equal(drawn.images[0].reshape(32, -1).T, fixed[0])

    def stop(_: Any, i: int, t: float, values: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline(PROMPT, **SIZE, seed=1, callback_on_step_end=stop)


def test_previews_come_near_the_picture(pipeline: ImagePipeline) -> None:
    """The last preview is the picture; earlier ones have less noise than the latents they go on from."""
    diffusion, steps = pipeline.diffusion, []
    pixels = diffusion.draw(ImageRequest(PROMPT, 1, 96, 64), lambda step: steps.append(step))

    def shown(step: Step) -> Any:
        return to_pixels(diffusion.decode(step.estimate, step.grid))

    assert np.array_equal(shown(steps[-1]), pixels)
    last = steps[-1].latents
    errors = [np.linalg.norm(s.estimate - last) for s in steps]
    noisy = [np.linalg.norm(s.latents - last) for s in steps]
    assert errors == sorted(errors, reverse=True)
    assert all(e < n for e, n in zip(errors[:-1], noisy[:-1], strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 100}, "width 100 is no multiple of 16: give 96 or 112"),
        ({"height": 8}, "from 16 to 2048"),
        ({"width": 2064}, "from 16 to 2048"),
        ({"num_inference_steps": 0}, "0 steps"),
        ({"guidance_scale": 4.0}, "distilled"),
        ({"output_type": "pt"}, "pil, np, latent"),
        ({"seed": 2**64}, "out of range"),
        ({"seed": [1, 2], "num_images_per_prompt": 3}, "2 seeds"),
        ({"num_images_per_prompt": 0}, "num_images_per_prompt is 0"),
        ({"prompt": []}, "an empty list"),
        ({"max_sequence_length": 0}, "0 tokens"),
        ({"prompt": 3}, "prompt is 3; it must be a string"),
        ({"width": 64.0}, "width is 64.0; it must be a whole number"),
        ({"num_inference_steps": 2.5}, "num_inference_steps is 2.5"),
        ({"seed": "one"}, "seed is 'one'"),
        ({"seed": [1, 2.5]}, "seed is 2.5"),
        ({"generator": 7}, "generator is 7; it must be a torch.Generator"),
        ({"generator": torch.Generator(), "seed": 1}, "one of generator, seed and latents"),
        ({"generator": [torch.Generator()] * 2}, "2 generators for 1 pictures"),
        ({"callback_on_step_end": lambda *_: {"latents": np.zeros((1, 2, 3))}}, "gave latents"),
        ({"rng": "cuda"}, "no generator"),
        ({"prompt": None}, "either prompt or prompt_embeds"),
        ({"prompt_embeds": np.zeros((1, 8, 192), np.float32)}, "either prompt or prompt_embeds"),
        ({"strength": 0.5}, "one image"),
        ({"image": "no_such_file.png"}, "no_such_file.png"),
        ({"image": np.zeros((8, 8))}, "must be uint8"),
        ({"image": picture(0, 32, 32)}, "at least 64"),
        ({"image": picture(0, 640, 64)}, "more than 8 times"),
        ({"latents": np.zeros((1, 32, 5, 5), np.float32)}, "need"),
        ({"latents": np.zeros((2, 32, 4, 6), np.float32)}, "no seed"),
    ],
)
def test_arguments_that_make_no_sense_are_named(
    pipeline: ImagePipeline, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        pipeline(**{"prompt": PROMPT, "num_inference_steps": 1, **SIZE, **arguments})


def test_latents_that_are_not_finite_are_refused(pipeline: ImagePipeline) -> None:
    wrong = latents().numpy()
    wrong[0, 0, 0, 0] = np.nan
    with pytest.raises(RequestError, match="not finite"):
        pipeline(PROMPT, **SIZE, latents=wrong)


def test_networks_that_do_not_fit_are_refused(pipeline: ImagePipeline, image_folder: Path) -> None:
    other = ImagePipeline.from_pretrained(image_folder, text_encoder_out_layers=(1, 2))
    with pytest.raises(FormatError, match="belong to different models"):
        other(PROMPT, **SIZE, seed=1)
    assert isinstance(pipeline.diffusion, DiffusionPipeline)


def test_the_gate_sees_other_positions(pipeline: ImagePipeline, monkeypatch: Any) -> None:
    """Rows and columns exchanged is a mistake that a picture can hide; the comparison must not."""
    right = pipeline(PROMPT, **SIZE, seed=1, num_inference_steps=1, output_type="latent").images
    from oxibonsai.diffusion import diffusion_pipeline

    original = diffusion_pipeline.joint_positions
    monkeypatch.setattr(
        diffusion_pipeline, "joint_positions", lambda g, r: original(g, r)[:, [0, 2, 1, 3]]
    )
    wrong = pipeline(PROMPT, **SIZE, seed=1, num_inference_steps=1, output_type="latent").images
    assert relative_error(wrong, right) > 1e-3
