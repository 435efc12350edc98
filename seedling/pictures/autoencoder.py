"""The small autoencoder: pictures to 4 x 4 tokens of 64 numbers, and back."""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKLFlux2

from pictures.captions import training_scenes
from pictures.drawing import SIDE, draw

CONFIG: dict[str, Any] = {
    "block_out_channels": (16, 32, 64, 64),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 1,
    "latent_channels": 16,
    "norm_num_groups": 2,  # many groups of few channels would lose the plain colours
    "sample_size": SIDE,
}
# Of the latents' standard deviation. It is the error that the decoder forgives the transformer, and
# without it the latents would hold details that a small transformer cannot learn.
_NOISE = 0.4
_LEARNING_RATE = 1.5e-3
_WARMUP = 50  # steps


def pictures(count: int, seed: int) -> torch.Tensor:
    """Drawn training scenes: float32 [count, 3, 64, 64] from -1 to 1."""
    rng = random.Random(seed)
    drawn = np.stack([draw(scene, rng) for scene in training_scenes(count, seed)])
    return torch.from_numpy(drawn).permute(0, 3, 1, 2).float() / 127.5 - 1


def train_autoencoder(
    folder: Path,
    steps: int,
    begun: Path | None = None,
    batch: int = 8,
    *,
    minutes: float = math.inf,
    decoder_only: bool = False,
) -> None:
    """Trains and saves it as diffusers does.

    Args:
        folder: Written.
        steps: Of the optimizer.
        begun: Folder of networks to go on with; None: new ones.
        batch: Pictures of a step, all new.
        minutes: The steps end after so many at the latest, and the rate falls in time.
        decoder_only: Leave the latents as they are, so that a trained transformer still fits.
    """
    torch.manual_seed(0)
    vae: Any = AutoencoderKLFlux2(**CONFIG) if begun is None else load_autoencoder(begun).train()
    vae.requires_grad_(True)
    if decoder_only:
        vae.encoder.requires_grad_(False)
        vae.quant_conv.requires_grad_(False)
    trained = [p for p in vae.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, _LEARNING_RATE, weight_decay=0.0, fused=True)
    begin = time.monotonic()
    for step in range(steps):
        seed = steps + step
        done = max(step / steps, (time.monotonic() - begin) / (60 * minutes))
        if done >= 1.0:
            break
        optimizer.param_groups[0]["lr"] = _LEARNING_RATE * learning_rate(step, done)
        x = pictures(batch, seed)
        with torch.autocast("cpu", torch.bfloat16):
            latents = vae.encode(x).latent_dist.mean.float()
            noise = _NOISE * latents.std(dim=(0, 2, 3), keepdim=True) * torch.randn_like(latents)
            decoded = vae.decode(latents + noise).sample
        difference = decoded.float() - x
        error = difference.abs().mean()
        loss = error + difference.square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if step % 25 == 0 or step == steps - 1:
            seconds = time.monotonic() - begin
            print(f"step {step}: error {error:.4f}, loss {loss:.4f}, {seconds:.0f} s", flush=True)
    if not decoder_only:
        _measure_latents(vae)
    vae.save_pretrained(folder)


def _measure_latents(vae: Any) -> None:
    """Keeps the statistics of the latents that it gives."""
    with torch.no_grad():
        latents = patchified(vae.encode(pictures(128, seed=1_000_000)).latent_dist.mean)
        vae.bn.running_mean.copy_(latents.mean(dim=(0, 2, 3)))
        vae.bn.running_var.copy_(latents.var(dim=(0, 2, 3)))


def learning_rate(step: int, done: float) -> float:
    """A share of the highest rate: it rises for some steps, and falls to zero over the training.

    Args:
        step: Of the optimizer.
        done: Share of the training.
    """
    return min((step + 1) / _WARMUP, 1.0 - done)


def load_autoencoder(folder: Path) -> Any:
    """What :func:`train_autoencoder` saved."""
    return AutoencoderKLFlux2.from_pretrained(folder).eval().requires_grad_(False)


def encode(vae: Any, x: torch.Tensor) -> torch.Tensor:
    """Tokens, as the transformer works on them: [n, 16, 64]."""
    latents = patchified(vae.encode(x).latent_dist.mean)
    mean, variance = (v[:, None, None] for v in (vae.bn.running_mean, vae.bn.running_var))
    tokens: torch.Tensor = (latents - mean) / (variance + vae.bn.eps).sqrt()
    return tokens.flatten(2).transpose(1, 2)


def patchified(x: torch.Tensor) -> torch.Tensor:
    """[n, c, 2 h, 2 w] to [n, 4 c, h, w]."""
    return torch.nn.functional.pixel_unshuffle(x, 2)
