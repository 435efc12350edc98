"""The networks of FLUX.2-klein 4B at full size on random ternary weights: seconds, rates, memory.

    python bench/images.py [--size 512] [--double 1] [--single 2] [--vae]

Measures a forward pass with so many blocks of each kind and reckons up what 5 and 20 of them take;
with --vae, the decoder too. Seconds of the processor are those of all threads: on a machine that is
busy otherwise they say more than the clock.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import default_threads
from oxibonsai.images.parameters import ArrayTensors
from oxibonsai.images.transformer import ImageTransformer
from oxibonsai.images.vae import Vae

CONFIG = {
    "in_channels": 128,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 7680,
    "guidance_embeds": False,
}
DIM, MLP, TEXT_TOKENS = 3072, 9216, 512
RANDOM = np.random.default_rng(0)


def ternary(name: str, rows: int, cols: int) -> _core.Weight:
    """Random blocks of TQ2_0_g128: 32 bytes of codes, then a scale."""
    digits = RANDOM.integers(0, 3, (rows, cols // 128, 32, 4), dtype=np.uint8)
    codes = (digits << np.array([0, 2, 4, 6], np.uint8)).sum(-1, dtype=np.uint8)
    scale = np.full((rows, cols // 128, 1), cols**-0.5, np.float16).view(np.uint8)
    blocks = np.concatenate([codes, scale], axis=-1).reshape(rows, -1)
    return _core.Weight.from_blocks(name, "TQ2_0_g128", blocks, cols)


def floats(*shape: int) -> Any:
    """Random numbers, scaled by the inputs of an output."""
    scale = np.float32(np.prod(shape[1:]) ** -0.5)
    return RANDOM.standard_normal(shape, dtype=np.float32) * scale


def transformer_tensors(double: int, single: int) -> dict[str, Any]:
    """By diffusers' names; what PrismML packs is ternary."""
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
            t[f"{block}.{name}.weight"] = ternary(f"{block}.{name}.weight", *shape)
        t |= {f"{block}.attn.{n}.weight": np.ones(128, np.float32) for n in norms}
    for i in range(single):
        attn = f"single_transformer_blocks.{i}.attn"
        for name, shape in (
            ("to_qkv_mlp_proj", (3 * DIM + 2 * MLP, DIM)),
            ("to_out", (DIM, DIM + MLP)),
        ):
            t[f"{attn}.{name}.weight"] = ternary(f"{attn}.{name}.weight", *shape)
        t |= {f"{attn}.{n}.weight": np.ones(128, np.float32) for n in ("norm_q", "norm_k")}
    return t


def measure(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processor, of a run."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - processor


def step_seconds(device: _core.CpuDevice, size: int, double: int, single: int) -> tuple[float, ...]:
    """Of one forward pass with so many blocks."""
    config = {**CONFIG, "num_layers": double, "num_single_layers": single}
    tensors = ArrayTensors(transformer_tensors(double, single))
    network = ImageTransformer.load(config, tensors, device)
    side = size // 16
    ids = np.zeros((side * side, 4), np.int32)
    ids[:, 1], ids[:, 2] = np.divmod(np.arange(side * side), side)
    latents = floats(1, side * side, 128) * 128
    text = floats(1, TEXT_TOKENS, 7680) * 512
    context = network.embed_text(text)
    network.velocity(latents, context, 1000.0, ids)
    return measure(lambda: network.velocity(latents, context, 1000.0, ids))


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


def main() -> None:
    """Prints what each part takes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=512, help="of a side, in pixels")
    parser.add_argument("--double", type=int, default=1, help="blocks of both streams")
    parser.add_argument("--single", type=int, default=2, help="blocks of one stream")
    parser.add_argument("--vae", action="store_true", help="measure the decoder, too")
    parser.add_argument("--threads", type=int, default=default_threads())
    options = parser.parse_args()
    device = _core.CpuDevice(options.threads)
    rows = TEXT_TOKENS + (options.size // 16) ** 2
    blocks = options.double + options.single
    clock, processor = step_seconds(device, options.size, options.double, options.single)
    work = blocks * (2 * rows * 122_683_392 + 4 * rows * rows * DIM)
    print(
        f"{device.tier}, {options.threads} threads, {options.size} x {options.size}, {rows} tokens"
    )
    print(
        f"{blocks} blocks: {clock:.2f} s, {processor:.2f} s of the processor, {work / 1e12:.2f} TFLOP"
    )
    whole, own = (seconds / blocks * 25 * 4 for seconds in (clock, processor))
    print(f"25 blocks x 4 steps: {whole:.0f} s, {own:.0f} s of the processor")
    if options.vae:
        vae = Vae.load({}, ArrayTensors(vae_tensors()), device)
        side = options.size // 16
        clock, processor = measure(lambda: vae.decode(floats(side, side, 128) * 32))
        print(f"decoder: {clock:.2f} s, {processor:.2f} s of the processor")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory: {peak:.2f} GiB")


if __name__ == "__main__":
    main()
