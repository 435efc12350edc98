"""The small transformer: flow matching from noise to tokens, with ternary matrices in its blocks."""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import Flux2Transformer2DModel
from safetensors.torch import load_file, save_file
from torch.nn.utils import parametrize

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import CPU, open_device
from oxibonsai.diffusion.latents import Grid
from oxibonsai.diffusion.schedule import shift, sigmas
from oxibonsai.diffusion.text_encoder import TextEncoder
from oxibonsai.train.network import GroupQuantizer
from oxibonsai.train.rounding import quantized
from oxibonsai.train.settings import FORMATS, WeightFormat
from pictures.autoencoder import encode, learning_rate, load_autoencoder
from pictures.captions import all_scenes, training_scenes
from pictures.drawing import draw

TYPE = "pq2_0"
TEXT_LAYERS = (0, 2)
PROMPT_LENGTH = 20
CONFIG: dict[str, Any] = {
    "patch_size": 1,
    "in_channels": 64,
    "num_layers": 1,
    "num_single_layers": 2,
    "attention_head_dim": 64,
    "num_attention_heads": 4,
    "joint_attention_dim": 512,
    "timestep_guidance_channels": 256,
    "mlp_ratio": 3.0,
    "axes_dims_rope": (16, 16, 16, 16),
    "rope_theta": 2000,
    "eps": 1e-6,
    "guidance_embeds": False,
}
_GRID = Grid(4, 4)
_STEPS = 4  # of the schedule whose noise levels half of the training sees
_LEARNING_RATE = 1.5e-3
_LEARNT = "learnt.safetensors"  # before they are made ternary


def prompt_states(text_encoder: Path) -> dict[str, torch.Tensor]:
    """What the transformer reads of every caption, as the package computes it: [20, 512] each."""
    device = open_device(CPU, 1)
    encoder = TextEncoder(Checkpoint(text_encoder), device, TEXT_LAYERS)
    captions = [scene.caption for scene in all_scenes()]
    return {c: torch.from_numpy(encoder.encode([c], PROMPT_LENGTH)[0]) for c in captions}


def examples(vae: Any, count: int, seed: int) -> tuple[torch.Tensor, list[str]]:
    """Tokens [count, 16, 64] of drawn pictures, and their captions."""
    rng = random.Random(seed)
    scenes = training_scenes(count, seed)
    tokens = []
    for begin in range(0, count, 64):
        drawn = np.stack([draw(s, rng) for s in scenes[begin : begin + 64]])
        x = torch.from_numpy(drawn).permute(0, 3, 1, 2).float() / 127.5 - 1
        with torch.no_grad():
            tokens.append(encode(vae, x))
    return torch.cat(tokens), [scene.caption for scene in scenes]


def train_transformer(
    folder: Path,
    vae: Path,
    text_encoder: Path,
    steps: int,
    count: int,
    minutes: float = math.inf,
    float_share: float = 0.3,
    batch: int = 32,
    begun: Path | None = None,
) -> None:
    """Trains and saves it as diffusers does, with matrices that are ternary in the file.

    Args:
        folder: Written.
        vae: Folder of the autoencoder.
        text_encoder: A GGUF file.
        steps: Of the optimizer.
        count: Pictures to learn from.
        minutes: The steps end after so many at the latest, and the rate falls in time.
        float_share: Of the steps, before the matrices become ternary.
        batch: Pictures of a step.
        begun: Weights to go on with, ``learnt.safetensors`` of another training that has come to its
            ternary matrices; None: new ones.
    """
    torch.manual_seed(0)
    tokens, captions = examples(load_autoencoder(vae), count, seed=2_000_000)
    states = prompt_states(text_encoder)
    spread = _spread(list(states.values()))
    model: Any = Flux2Transformer2DModel(**CONFIG)
    torch.nn.init.zeros_(model.proj_out.weight)
    ternary = begun is not None
    if begun is not None:
        model.load_state_dict(load_file(begun))
        _make_ternary(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), _LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    image_ids, text_ids = positions()
    begin, total = time.monotonic(), 0.0
    for step in range(steps):
        done = max(step / steps, (time.monotonic() - begin) / (60 * minutes))
        if done >= 1.0:
            break
        if done >= float_share and not ternary:
            _make_ternary(model)
            ternary = True
        optimizer.param_groups[0]["lr"] = _LEARNING_RATE * learning_rate(step, done)
        chosen = torch.randint(count, (batch,))
        x = tokens[chosen]
        text = torch.stack([states[captions[i]] for i in chosen]) / spread
        noise, level = torch.randn_like(x), noise_levels(batch)
        mixed = (1 - level[:, None, None]) * x + level[:, None, None] * noise
        with torch.autocast("cpu", torch.bfloat16):
            inputs = mixed, text, level, image_ids, text_ids
            velocity = model(*inputs, return_dict=False)[0]
        loss = (velocity.float() - (noise - x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if step % 25 == 24:
            seconds = time.monotonic() - begin
            print(f"step {step + 1}: loss {total / 25:.4f}, {seconds:.0f} s", flush=True)
            total = 0.0
        if step % 250 == 249:
            _save(model, spread, folder)
    _save(model, spread, folder)


def noise_levels(count: int) -> torch.Tensor:
    """Half of them from the usual schedule, the others even before that schedule's shift."""
    usual = torch.from_numpy(sigmas(_STEPS, _GRID.tokens)[:_STEPS].copy())
    stretch = float(np.exp(shift(_GRID.tokens, _STEPS)))
    even = torch.rand(count)
    shifted = stretch * even / (stretch * even + 1 - even)
    return torch.where(torch.rand(count) < 0.5, usual[torch.randint(_STEPS, (count,))], shifted)


def positions() -> tuple[torch.Tensor, torch.Tensor]:
    """Of the picture's tokens and of the prompt's, on the four axes."""
    text = torch.zeros(PROMPT_LENGTH, 4)
    text[:, 3] = torch.arange(PROMPT_LENGTH)
    return torch.from_numpy(_GRID.positions()).float(), text


def _spread(states: list[torch.Tensor]) -> torch.Tensor:
    """Root mean square of each column, without the first tokens, which are the same in all prompts."""
    return torch.stack(states)[:, 3:].square().mean(dim=(0, 1)).sqrt()


def _format() -> WeightFormat:
    found = FORMATS[TYPE]
    assert found is not None
    return found


def _matrices(model: Any) -> list[torch.nn.Linear]:
    """Of the blocks."""
    blocks = [*model.transformer_blocks, *model.single_transformer_blocks]
    return [m for block in blocks for m in block.modules() if isinstance(m, torch.nn.Linear)]


def _make_ternary(model: Any) -> None:
    for module in _matrices(model):
        parametrize.register_parametrization(module, "weight", GroupQuantizer(_format()))


def _save(model: Any, spread: torch.Tensor, folder: Path) -> None:
    """As float16, which holds the ternary matrices exactly; the text's scale joins its matrix."""
    copy: Any = Flux2Transformer2DModel(**CONFIG)
    suffix = ".parametrizations.weight.original"
    learnt = {n.replace(suffix, ".weight"): t for n, t in model.state_dict().items()}
    copy.load_state_dict(learnt)
    with torch.no_grad():
        for module in _matrices(copy):
            module.weight.copy_(quantized(module.weight, _format()))
        copy.context_embedder.weight.div_(spread)
    copy.half().save_pretrained(folder)
    save_file(learnt, folder / _LEARNT)
