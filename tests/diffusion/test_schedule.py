"""Noise levels, sizes and positions are those of diffusers' pipeline."""

from __future__ import annotations

import numpy as np
import pytest

from oxibonsai.diffusion.latents import Grid, grid_of, joint_positions
from oxibonsai.diffusion.schedule import first_step, sigmas
from oxibonsai.errors import RequestError

# Of mlx in float32, by tokens, for four steps.
RECORDED = {
    256: [1, 0.9553907514, 0.8771342039, 0.7041116357, 0],
    1024: [1, 0.9580853581, 0.8839818239, 0.7174965739, 0],
    4096: [1, 0.9673840404, 0.9081439376, 0.7671999335, 0],
}


@pytest.mark.parametrize("tokens", RECORDED)
def test_sigmas_of_four_steps(tokens: int) -> None:
    np.testing.assert_allclose(sigmas(4, tokens), RECORDED[tokens], rtol=0, atol=1.2e-7)


@pytest.mark.parametrize("tokens", [16, 1024, 4300, 4301, 16384])
@pytest.mark.parametrize("steps", [1, 2, 4, 10, 50])
def test_sigmas_are_those_of_diffusers(steps: int, tokens: int) -> None:
    from diffusers import FlowMatchEulerDiscreteScheduler
    from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu

    scheduler = FlowMatchEulerDiscreteScheduler(
        shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15
    )
    even = np.linspace(1.0, 1 / steps, steps)
    scheduler.set_timesteps(sigmas=even, mu=compute_empirical_mu(tokens, steps))
    np.testing.assert_allclose(sigmas(steps, tokens), scheduler.sigmas, rtol=0, atol=1.2e-7)


def test_no_steps_are_refused() -> None:
    for steps in (0, -1, 1001):
        with pytest.raises(RequestError, match="1 to 1000"):
            sigmas(steps, 1024)


def test_more_strength_starts_later() -> None:
    """As mflux counts: the share of the picture that is kept."""
    assert [first_step(10, s) for s in (0.0, 0.05, 0.4, 0.99)] == [0, 1, 4, 9]
    with pytest.raises(RequestError, match="leaves none"):
        first_step(1, 0.4)
    for strength in (-0.1, 1.1, float("nan")):
        with pytest.raises(RequestError, match="out of range"):
            first_step(4, strength)


def test_sizes_are_multiples_of_a_token() -> None:
    assert grid_of(624, 416, 16) == Grid(rows=26, cols=39)
    assert grid_of(2048, 16, 16) == Grid(rows=1, cols=128)
    with pytest.raises(RequestError, match="width 500 is no multiple of 16: give 496 or 512"):
        grid_of(500, 512, 16)
    with pytest.raises(RequestError, match="height 24 is no multiple of 16: give 16 or 32"):
        grid_of(512, 24, 16)
    for width, height in ((8, 512), (512, 2064), (0, 512), (-512, 512)):
        with pytest.raises(RequestError, match="from 16 to 2048"):
            grid_of(width, height, 16)


def test_positions_are_those_of_diffusers() -> None:
    import torch
    from diffusers import Flux2KleinPipeline as Pipeline

    picture, references = Grid(3, 5), [Grid(2, 4), Grid(5, 1)]
    own = Pipeline._prepare_latent_ids(torch.zeros(1, 8, 3, 5))[0]
    others = Pipeline._prepare_image_ids([torch.zeros(1, 8, g.rows, g.cols) for g in references])[0]
    assert np.array_equal(joint_positions(picture, []), own)
    assert np.array_equal(joint_positions(picture, references), np.concatenate([own, others]))
