"""Tiny networks of diffusers with live weights: with default ones most mistakes would not be seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
from transformers import Qwen3Config, Qwen3Model

Floats = npt.NDArray[np.float32]

TRANSFORMER: dict[str, Any] = {
    "patch_size": 1,
    "in_channels": 32,
    "num_layers": 2,
    "num_single_layers": 3,
    "attention_head_dim": 32,
    "num_attention_heads": 4,
    "joint_attention_dim": 192,
    "timestep_guidance_channels": 256,
    "mlp_ratio": 3.0,
    "axes_dims_rope": (8, 8, 8, 8),
    "rope_theta": 2000,
    "eps": 1e-6,
    "guidance_embeds": False,
}
VAE: dict[str, Any] = {
    "block_out_channels": (16, 16, 32, 48),
    "decoder_block_out_channels": (16, 24, 40, 48),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 8,
    "norm_num_groups": 8,
    "sample_size": 64,
}
TEXT_ENCODER: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
TEXT_LAYERS = (1, 2, 3)


def transformer() -> Flux2Transformer2DModel:
    """Five blocks of both kinds."""
    return live(Flux2Transformer2DModel(**TRANSFORMER), seed=0)


def vae() -> AutoencoderKLFlux2:
    """Four levels whose widths differ, in the decoder from the encoder's, too."""
    model = live(AutoencoderKLFlux2(**VAE), seed=2)
    generator = torch.Generator().manual_seed(3)
    count = model.bn.running_mean.shape
    model.bn.running_mean.copy_(0.3 * torch.randn(count, generator=generator))
    model.bn.running_var.copy_(0.3 + 2.0 * torch.rand(count, generator=generator))
    return model


def text_encoder() -> Qwen3Model:
    """Four layers."""
    return live(Qwen3Model(Qwen3Config(**TEXT_ENCODER)), seed=1)


def tensors(model: torch.nn.Module) -> dict[str, Floats]:
    """Its parameters and statistics by name."""
    return {n: t.detach().float().numpy() for n, t in model.state_dict().items()}


def live(model: Any, seed: int) -> Any:
    """The network with parameters away from what they are initialised to."""
    generator = torch.Generator().manual_seed(seed)

    def normal(p: torch.Tensor) -> torch.Tensor:
        return torch.randn(p.shape, generator=generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if "embed_tokens" in name:
                p.copy_(normal(p))
            elif p.ndim > 1:
                p.copy_(normal(p) / math.sqrt(p[0].numel()))
            elif name.endswith("bias"):
                p.copy_(0.1 * normal(p))
            elif any(
                part in name for part in ("norm_q", "norm_k", "norm_added", "q_norm", "k_norm")
            ):
                p.copy_(1.5 + 0.3 * normal(p))  # attention that is sharp enough to see positions
            else:
                p.copy_(1.0 + 0.2 * normal(p))
    return model.eval().requires_grad_(False)
