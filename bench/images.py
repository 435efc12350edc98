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

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import default_threads
from oxibonsai.images.parameters import ArrayTensors
from oxibonsai.images.transformer import ImageTransformer
from oxibonsai.images.vae import Vae
from random_image_tensors import CONFIG, DIM, TEXT_TOKENS, floats, transformer_tensors, vae_tensors


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
