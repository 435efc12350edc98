"""``oxibonsai bench image``: seconds of each part of an image, and the steps' share of the limit."""

from __future__ import annotations

import json
import statistics
import time
from itertools import pairwise
from typing import Any

import rich_click as click

from oxibonsai import _core
from oxibonsai.cli.options import device_option, json_option, profile_option, threads_option
from oxibonsai.devices import OpShare, profile, profile_lines
from oxibonsai.diffusion.diffusion_pipeline import DiffusionPipeline, Step
from oxibonsai.diffusion.pipeline import ImagePipeline
from oxibonsai.diffusion.request import STEPS, ImageRequest
from oxibonsai.files.platform import peak_memory

_PROMPT = "a tiny bonsai tree in a ceramic pot"
_PASSES = 3  # of the measurement of the limit; the fastest counts
# Matrices of the double blocks that the rows of the text go through.
_OF_TEXT = (".add_", ".to_add_out", ".ff_context.")


@click.command(short_help="Measure the speed of image generation.")
@click.option("--model", "-m", help="As for oxibonsai image, with the same default.")
@click.option("--width", type=int, help="Default: as the model says.")
@click.option("--height", type=int, help="Likewise.")
@click.option("--steps", type=click.IntRange(1), default=STEPS, show_default=True)
@click.option("-r", "--repetitions", type=click.IntRange(1), default=1, show_default=True)
@device_option
@threads_option
@profile_option
@json_option
def image(
    model: str | None,
    width: int | None,
    height: int | None,
    steps: int,
    repetitions: int,
    device: str | None,
    threads: int | None,
    with_profile: bool,
    as_json: bool,
) -> None:
    """Measure image generation: opening the model, the prompt, each step, decoding.

    A step's share is the rate of int8 multiply-adds in the matrices of its blocks, over the time of the
    whole step, divided by the processor's rate.
    """
    begin = time.perf_counter()
    diffusion = ImagePipeline.from_pretrained(model, device=device, threads=threads).diffusion
    seconds: dict[str, list[float]] = {"open": [time.perf_counter() - begin]}
    side = diffusion.default_pixels
    request = ImageRequest(_PROMPT, 42, width or side, height or side, steps)
    diffusion.check(request)
    for _ in range(repetitions):
        for name, found in _draw(diffusion, request).items():
            seconds.setdefault(name, []).extend(found)
    rows = {name: round(statistics.median(found), 4) for name, found in seconds.items()}
    peak = peak_memory()
    report: dict[str, Any] = {
        "model": diffusion.name,
        "size": f"{request.width}x{request.height}",
        "steps": steps,
        "seconds": rows,
        "picture_seconds": round(rows["prompt"] + steps * rows["step"] + rows["decode"], 4),
        "peak_mib": round(peak / 2**20),
        **_share(diffusion, request, rows["step"]),
    }
    profiles = _profiles(diffusion, request) if with_profile else {}
    if with_profile:
        report["profile"] = {part: [op.as_json() for op in ops] for part, ops in profiles.items()}
    click.echo(json.dumps(report) if as_json else _table(report, profiles))


def _draw(diffusion: DiffusionPipeline, request: ImageRequest) -> dict[str, list[float]]:
    """Return the seconds of the parts of one image; the steps by themselves."""
    begin = time.perf_counter()
    text = diffusion.embed(diffusion.encode_prompt(request.prompt))
    after_prompt = time.perf_counter()
    ends = [after_prompt]

    def on_step(_: Step) -> None:
        ends.append(time.perf_counter())

    latents, grid = diffusion.denoise(request, text, on_step)
    before_decode = time.perf_counter()
    diffusion.decode(latents, grid)
    return {
        "prompt": [after_prompt - begin],
        "step": [b - a for a, b in pairwise(ends)],
        "decode": [time.perf_counter() - before_decode],
    }


def _profiles(diffusion: DiffusionPipeline, request: ImageRequest) -> dict[str, list[OpShare]]:
    """Return the time of the ops of each part of an image; all steps together."""
    found: dict[str, Any] = {}

    def encode() -> None:
        found["text"] = diffusion.embed(diffusion.encode_prompt(request.prompt))

    def denoise() -> None:
        found["latents"] = diffusion.denoise(request, found["text"])

    return {
        "prompt": profile(diffusion.device, encode),
        "steps": profile(diffusion.device, denoise),
        "decode": profile(diffusion.device, lambda: diffusion.decode(*found["latents"])),
    }


def _share(
    diffusion: DiffusionPipeline, request: ImageRequest, step_seconds: float
) -> dict[str, Any]:
    """Return multiply-adds of the blocks per second, and the share of the processor's int8 rate."""
    device = diffusion.device
    if not isinstance(device, _core.CpuDevice) or _core.cpu.name() == "scalar":
        return {}
    rate = _products(diffusion, request) / step_seconds
    peak = device.pool.int8_peak(_core.cpu.name(), _PASSES)
    return {
        "gmac_s": round(rate / 1e9, 1),
        "int8_gmac_s": round(peak / 1e9, 1),
        "share_of_int8_peak": round(rate / peak, 4),
    }


def _products(diffusion: DiffusionPipeline, request: ImageRequest) -> int:
    """Return multiply-adds of a step in the matrices of all blocks."""
    image = diffusion.grid(request.width, request.height).tokens
    text = diffusion.prompt_length
    total = 0
    for name, size in diffusion.matrix_sizes().items():
        if name.startswith("single_transformer_blocks."):
            total += size * (image + text)
        elif name.startswith("transformer_blocks."):
            total += size * (text if any(part in name for part in _OF_TEXT) else image)
    return total


def _table(report: dict[str, Any], profiles: dict[str, list[OpShare]]) -> str:
    lines = [f"{report['model']}, {report['size']}, {report['steps']} steps"]
    lines += [f"  {name:8} {value:10.3f} s" for name, value in report["seconds"].items()]
    lines.append(f"  picture  {report['picture_seconds']:10.3f} s, peak {report['peak_mib']} MiB")
    if "gmac_s" in report:
        lines.append(
            f"  a step's matrices: {report['gmac_s']} GMAC/s, "
            f"{report['share_of_int8_peak']:.1%} of {report['int8_gmac_s']}"
        )
    peak = report.get("int8_gmac_s")
    for part, ops in profiles.items():
        lines += [f"{part}:", *profile_lines(ops, peak and peak * 1e9)]
    return "\n".join(lines)
