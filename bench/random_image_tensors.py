"""Random tensors of FLUX.2-klein 4B by diffusers' names: ternary where PrismML packs, else floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

CONFIG = {
    "in_channels": 128,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 7680,
    "guidance_embeds": False,
}
DIM, MLP, TEXT_TOKENS = 3072, 9216, 512
RANDOM = np.random.default_rng(0)


def ternary_blocks(rows: int, cols: int) -> npt.NDArray[np.uint8]:
    """Random blocks of TQ2_0_g128: 32 bytes of codes, then a scale."""
    digits = RANDOM.integers(0, 3, (rows, cols // 128, 32, 4), dtype=np.uint8)
    codes = (digits << np.array([0, 2, 4, 6], np.uint8)).sum(-1, dtype=np.uint8)
    scale = np.full((rows, cols // 128, 1), cols**-0.5, np.float16).view(np.uint8)
    return np.concatenate([codes, scale], axis=-1).reshape(rows, -1)


def ternary(rows: int, cols: int) -> _core.Weight:
    """A matrix of such blocks."""
    return _core.Weight.from_blocks("ternary", "TQ2_0_g128", ternary_blocks(rows, cols), cols)


def floats(*shape: int) -> Any:
    """Random numbers, scaled by the inputs of an output."""
    scale = np.float32(np.prod(shape[1:]) ** -0.5)
    return RANDOM.standard_normal(shape, dtype=np.float32) * scale


def transformer_tensors(
    double: int, single: int, matrix: Callable[[int, int], Any] = ternary
) -> dict[str, Any]:
    """What PrismML packs is made by ``matrix`` of its rows and columns."""
    t: dict[str, Any] = {
        "x_embedder.weight": floats(DIM, 128),
        "context_embedder.weight": floats(DIM, 7680),
        "time_guidance_embed.timestep_embedder.linear_1.weight": floats(DIM, 256),
        "time_guidance_embed.timestep_embedder.linear_2.weight": floats(DIM, DIM),
        "double_stream_modulation_img.linear.weight": floats(6 * DIM, DIM),
        "double_stream_modulation_txt.linear.weight": floats(6 * DIM, DIM),
        "single_stream_modulation.linear.weight": floats(3 * DIM, DIM),
        "norm_out.linear.weight": floats(2 * DIM, DIM),
        "proj_out.weight": floats(128, DIM),
    }
    square = ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj")
    shapes = {f"attn.{n}": (DIM, DIM) for n in (*square, "to_out.0", "to_add_out")}
    shapes |= {f"{n}.linear_in": (2 * MLP, DIM) for n in ("ff", "ff_context")}
    shapes |= {f"{n}.linear_out": (DIM, MLP) for n in ("ff", "ff_context")}
    norms = ("norm_q", "norm_k", "norm_added_q", "norm_added_k")
    for i in range(double):
        block = f"transformer_blocks.{i}"
        for name, shape in shapes.items():
            t[f"{block}.{name}.weight"] = matrix(*shape)
        t |= {f"{block}.attn.{n}.weight": np.ones(128, np.float32) for n in norms}
    for i in range(single):
        attn = f"single_transformer_blocks.{i}.attn"
        for name, shape in (
            ("to_qkv_mlp_proj", (3 * DIM + 2 * MLP, DIM)),
            ("to_out", (DIM, DIM + MLP)),
        ):
            t[f"{attn}.{name}.weight"] = matrix(*shape)
        t |= {f"{attn}.{n}.weight": np.ones(128, np.float32) for n in ("norm_q", "norm_k")}
    return t


def vae_tensors() -> dict[str, Any]:
    """The full decoder."""
    t: dict[str, Any] = {
        "bn.running_mean": np.zeros(128, np.float32),
        "bn.running_var": np.ones(128, np.float32),
    }

    def conv(name: str, out: int, into: int, *kernel: int) -> None:
        t[f"{name}.weight"], t[f"{name}.bias"] = (
            floats(out, into, *kernel),
            np.zeros(out, np.float32),
        )

    def norm(name: str, width: int) -> None:
        t[f"{name}.weight"], t[f"{name}.bias"] = (
            np.ones(width, np.float32),
            np.zeros(width, np.float32),
        )

    def resnet(name: str, out: int, into: int) -> None:
        norm(f"{name}.norm1", into)
        conv(f"{name}.conv1", out, into, 3, 3)
        norm(f"{name}.norm2", out)
        conv(f"{name}.conv2", out, out, 3, 3)
        if out != into:
            conv(f"{name}.conv_shortcut", out, into, 1, 1)

    conv("post_quant_conv", 32, 32, 1, 1)
    conv("decoder.conv_in", 512, 32, 3, 3)
    for i in range(2):
        resnet(f"decoder.mid_block.resnets.{i}", 512, 512)
    attention = "decoder.mid_block.attentions.0"
    norm(f"{attention}.group_norm", 512)
    for part in ("to_q", "to_k", "to_v", "to_out.0"):
        conv(f"{attention}.{part}", 512, 512)
    into = 512
    for i, out in enumerate((512, 512, 256, 128)):
        block = f"decoder.up_blocks.{i}"
        for j in range(3):
            resnet(f"{block}.resnets.{j}", out, into if j == 0 else out)
        if i < 3:
            conv(f"{block}.upsamplers.0.conv", out, out, 3, 3)
        into = out
    norm("decoder.conv_norm_out", 128)
    conv("decoder.conv_out", 3, 128, 3, 3)
    return t
