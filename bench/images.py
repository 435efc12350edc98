"""The networks of FLUX.2-klein 4B at full size on random ternary weights: seconds, rates, memory.

    python bench/images.py [--size 512] [--double 1] [--single 2] [--vae] [--diffusers]

Measures a forward pass with so many blocks of each kind and reckons up what 5 and 20 of them take;
with --vae, the decoder too; with --diffusers, diffusers' own transformer with as many blocks in float32
on torch, in turn with ours. Seconds of the processor are those of all threads: on a machine that is busy
otherwise they say more than the clock. The shares are those of the int8 products that the processor can
do, measured before and after: of the whole pass, and of the blocks' linear layers by themselves, as a
last pass with the time of each op has them.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import default_threads, profile, profile_lines
from oxibonsai.diffusion.parameters import ArrayTensors
from oxibonsai.diffusion.transformer import ImageTransformer
from oxibonsai.diffusion.vae import Vae
from random_image_tensors import CONFIG, TEXT_TOKENS, floats, transformer_tensors, vae_tensors

Floats = npt.NDArray[np.float32]
TIME = 1000.0
PRODUCTS_OF_BLOCK = 122_683_392  # a token's, of either kind of block
PASSES = 3  # of the measurement of the int8 limit; the fastest counts


def measure(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processor, of a run."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - processor


@dataclass(frozen=True)
class Inputs:
    """Of a forward pass, as diffusers has them."""

    latents: Floats
    text: Floats
    ids: npt.NDArray[np.int32]


def inputs(size: int) -> Inputs:
    """Random ones."""
    side = size // 16
    ids = np.zeros((side * side, 4), np.int32)
    ids[:, 1], ids[:, 2] = np.divmod(np.arange(side * side), side)
    return Inputs(floats(1, side * side, 128) * 128, floats(1, TEXT_TOKENS, 7680) * 512, ids)


def our_step(
    device: _core.CpuDevice, config: dict[str, Any], given: Inputs
) -> Callable[[], object]:
    """A forward pass with the text already embedded, as in every step of a picture."""
    tensors = transformer_tensors(config["num_layers"], config["num_single_layers"])
    network = ImageTransformer.load(config, ArrayTensors(tensors), device)
    context = network.embed_text(given.text)
    return lambda: network.velocity(given.latents, context, TIME, given.ids)


def diffusers_step(config: dict[str, Any], given: Inputs, threads: int) -> Callable[[], object]:
    """The same of diffusers, in float32."""
    import torch
    from diffusers import Flux2Transformer2DModel

    torch.set_num_threads(threads)
    make: Any = Flux2Transformer2DModel
    network = make(**config, mlp_ratio=3.0, axes_dims_rope=(32,) * 4).eval()
    text_ids = torch.zeros((1, TEXT_TOKENS, 4), dtype=torch.int32)
    text_ids[0, :, 3] = torch.arange(TEXT_TOKENS)

    @torch.no_grad()
    def step() -> object:
        return network(
            hidden_states=torch.from_numpy(given.latents),
            encoder_hidden_states=torch.from_numpy(given.text),
            timestep=torch.tensor([TIME / 1000]),
            img_ids=torch.from_numpy(given.ids)[None],
            txt_ids=text_ids,
            return_dict=False,
        )

    return step


def report(name: str, found: list[tuple[float, float]], blocks: int) -> float:
    """Prints the median run, and what a whole picture takes; returns its seconds."""
    clock, processor = sorted(found)[len(found) // 2]
    whole, own = (seconds / blocks * 25 * 4 for seconds in (clock, processor))
    print(
        f"{name}: {blocks} blocks {clock:.2f} s ({processor:.2f} s of the processor); 25 blocks x 4 "
        f"steps {whole:.0f} s ({own:.0f} s)"
    )
    return clock


def main() -> None:
    """Prints what each part takes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=512, help="of a side, in pixels")
    parser.add_argument("--double", type=int, default=1, help="blocks of both streams")
    parser.add_argument("--single", type=int, default=2, help="blocks of one stream")
    parser.add_argument("--vae", action="store_true", help="measure the decoder, too")
    parser.add_argument("--diffusers", action="store_true", help="measure diffusers, too")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=default_threads())
    options = parser.parse_args()
    device = _core.CpuDevice(options.threads)
    config = {**CONFIG, "num_layers": options.double, "num_single_layers": options.single}
    given = inputs(options.size)
    runs = {"oxibonsai": our_step(device, config, given)}
    if options.diffusers:
        runs["diffusers, float32"] = diffusers_step(config, given, options.threads)
    for run in runs.values():
        run()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    peaks = [device.pool.int8_peak(_core.cpu.name(), PASSES)]
    for _ in range(options.rounds):
        for name, run in runs.items():
            found[name].append(measure(run))
    runs["oxibonsai"]()  # what ran before has left the memory and the caches in its own way
    ops = profile(device, runs["oxibonsai"])
    peaks.append(device.pool.int8_peak(_core.cpu.name(), PASSES))
    rows = TEXT_TOKENS + (options.size // 16) ** 2
    blocks = options.double + options.single
    print(
        f"{device.tier}, {options.threads} threads, {options.size} x {options.size}, {rows} tokens"
    )
    clocks = [report(name, times, blocks) for name, times in found.items()]
    products = blocks * rows * PRODUCTS_OF_BLOCK
    share = products / clocks[0] / max(peaks)
    print(
        f"linear layers of the blocks: {products / 1e12:.2f} T products, {share:.0%} of the int8 limit "
        f"of {max(peaks) / 1e9:.0f} G/s over the whole pass"
    )
    print("ops of a pass:", *profile_lines(ops, max(peaks)), sep="\n")
    if options.diffusers:
        print(f"oxibonsai is {clocks[1] / clocks[0]:.1f} times as fast as diffusers")
    if options.vae:
        vae = Vae.load({}, ArrayTensors(vae_tensors()), device)
        side = options.size // 16
        latents = floats(side, side, 128) * 32
        clock, processor = measure(lambda: vae.decode(latents))
        print(f"decoder: {clock:.2f} s, {processor:.2f} s of the processor; its ops:")
        print(*profile_lines(profile(device, lambda: vae.decode(latents))), sep="\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    whose = ", diffusers' network included" if options.diffusers else ""
    print(f"peak memory{whose}: {peak:.2f} GiB")


if __name__ == "__main__":
    main()
