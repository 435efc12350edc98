"""``oxibonsai image``: images of prompts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai import __version__
from oxibonsai.cli.foreign_options import SeveralValues
from oxibonsai.cli.image_options import free_name, named, read_prompts
from oxibonsai.cli.options import apply, device_option, json_option, threads_option
from oxibonsai.cli.output import OutputFile, OutputFolder
from oxibonsai.cli.progress import image_progress
from oxibonsai.diffusion.diffusion_pipeline import DiffusionPipeline, OnStep, Step
from oxibonsai.diffusion.latents import GENERATORS
from oxibonsai.diffusion.pipeline import ImagePipeline, random_seed
from oxibonsai.diffusion.pixels import as_reference, encode_png, to_pixels
from oxibonsai.diffusion.request import (
    SIDE,
    STEPS,
    STRENGTH,
    ImageRequest,
    png_texts,
    read_record,
    record_of,
)
from oxibonsai.errors import RequestError
from oxibonsai.files.whole_file import is_replaced, make_folder, make_room, written_whole
from oxibonsai.loading import split_scaled
from oxibonsai.vision.image_input import read_image

_FROM_RECORD = ("prompt", "seed", "steps", "width", "height", "rng", "image_strength")

_MODEL = [
    click.option(
        "--model",
        "-m",
        help="A folder in the layout of diffusers or PrismML, hf:org/repo, a GGUF file, or "
        "seedling-picture, the tiny model of the package. Default: OXIBONSAI_IMAGE_MODEL, else "
        "seedling-picture.",
    ),
    click.option(
        "--transformer",
        "--dit",
        "--diffusion-model",
        help="A file (GGUF, safetensors) or folder to use instead of the model's.",
    ),
    click.option("--vae", help="A folder or safetensors file to use instead of the model's."),
    click.option(
        "--text-encoder",
        "--te",
        "--llm",
        help="A folder or GGUF file to use instead of the model's.",
    ),
    click.option("--tokenizer", help="The folder with the text encoder's tokenizer.json."),
    click.option(
        "--lora",
        multiple=True,
        metavar="FILE",
        help="A LoRA adapter for the transformer, a safetensors file; may be repeated.",
    ),
    click.option(
        "--lora-scaled",
        multiple=True,
        metavar="FILE:SCALE",
        help="A LoRA adapter with a scale, for example 0.5; may be repeated.",
    ),
]
_PROMPT = [
    click.option(
        "--prompt", "-p", help="The prompt, also without the option; - reads it from stdin."
    ),
    click.option(
        "--prompt-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A file with the prompt; read again for each picture.",
    ),
    click.option(
        "--batch-prompts-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A file with one prompt per line; a picture is generated for each.",
    ),
    click.option(
        "--config-from-metadata",
        "-C",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Take settings that are not given from a generated picture, or from the JSON file beside it.",
    ),
]
_IMAGE = [
    click.option(
        "--seed",
        multiple=True,
        metavar="N",
        help="Seed of the noise. Repeated, or as --seed 1,2,3 or --seed 1 2 3: a picture for each. "
        "Default: random.",
    ),
    click.option(
        "--auto-seeds",
        type=click.IntRange(1),
        help="Generate this many pictures, each with a random seed.",
    ),
    click.option(
        "--steps",
        "--num-inference-steps",
        type=click.IntRange(1),
        help=f"Number of denoising steps. Default: {STEPS}.",
    ),
    click.option(
        "--width",
        "-W",
        type=int,
        help=f"Width in pixels, a multiple of 16 up to 2048. Default: as the model says, usually "
        f"{SIDE}.",
    ),
    click.option("--height", "-H", type=int, help="Height in pixels, likewise."),
    click.option(
        "--guidance",
        "--guidance-scale",
        "--cfg-scale",
        type=float,
        default=1.0,
        help="Only 1 is possible: the model is distilled and needs no guidance.",
    ),
    click.option(
        "--rng",
        type=click.Choice(GENERATORS),
        help="Which noise a seed gives: mflux's (mlx, the default) or diffusers' (torch).",
    ),
    click.option(
        "--image",
        "--image-path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A picture to start from.",
    ),
    click.option(
        "--strength",
        "--image-strength",
        type=click.FloatRange(0, 1),
        help=f"How much of --image is kept: the higher, the more. Default: {STRENGTH}.",
    ),
    click.option(
        "--image-paths",
        "--reference",
        "--ref-image",
        "-r",
        "references",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        help="A picture to edit or to combine with others as the prompt says; may be repeated.",
    ),
]
_OUTPUT = [
    click.option(
        "--output",
        "--out",
        "-o",
        type=OutputFile(),
        default=Path("image.png"),
        show_default=True,
        help="The PNG file, in a folder that is there, or - for standard output; {seed} in its name is "
        "replaced. An existing file is kept: a number is added.",
    ),
    click.option(
        "--metadata",
        is_flag=True,
        help="Also write NAME.metadata.json, which has times and paths, too.",
    ),
    click.option(
        "--no-exif",
        "--disable-image-metadata",
        is_flag=True,
        help="Leave the settings out of the PNG file.",
    ),
    click.option(
        "--stepwise-image-output-dir",
        "steps_folder",
        type=OutputFolder(),
        help="A folder for previews: the picture after each step. Each costs a run of the decoder.",
    ),
]


@dataclass(frozen=True)
class _Output:
    """Where images go, and with what beside them."""

    path: Path
    sidecar: bool
    texts: bool
    steps_folder: Path | None


def _options(command: Any) -> Any:
    machine = [device_option, threads_option, json_option]
    return apply([*_MODEL, *_PROMPT, *_IMAGE, *_OUTPUT, *machine], command)


@click.command(cls=SeveralValues)
@click.argument("text", metavar="[PROMPT]", required=False)
@_options
def image(
    text: str | None,
    model: str | None,
    transformer: str | None,
    vae: str | None,
    text_encoder: str | None,
    tokenizer: str | None,
    lora: tuple[str, ...],
    lora_scaled: tuple[str, ...],
    output: Path,
    metadata: bool,
    no_exif: bool,
    steps_folder: Path | None,
    device: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Generate pictures from prompts.

    The same prompt, seed, size and number of steps give the same file.
    """
    if options["guidance"] != 1.0:
        raise RequestError("--guidance: the model is distilled and draws without; leave it at 1")
    old = read_record(options["config_from_metadata"]) if options["config_from_metadata"] else {}
    if old.get("loras") and not lora and not lora_scaled:
        raise RequestError("the picture was drawn with adapters: give them with --lora, too")
    recorded = {name: old.get(name) for name in _FROM_RECORD}
    if text is not None and options["prompt"] is not None:
        raise RequestError(f"the prompt is given twice: by --prompt, and as {text!r}")
    prompts = read_prompts(
        options["prompt"] if text is None else text,
        options["prompt_file"],
        options["batch_prompts_file"],
        recorded["prompt"],
    )
    seeds = _seeds(options["seed"], options["auto_seeds"], recorded["seed"])
    request = _request(options, recorded)
    many = len(prompts) * len(seeds) > 1
    out = _Output(output, metadata, not no_exif, steps_folder)
    _check_places(out, seeds, many=many)
    diffusion = ImagePipeline.from_pretrained(
        model,
        transformer=transformer,
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        lora=[*lora, *map(split_scaled, lora_scaled)],
        device=device,
        threads=threads,
    ).diffusion
    request = _with_size(request, options, recorded, diffusion)
    diffusion.check(request)
    paths = [str(p) for p in (options["image"], *options["references"]) if p is not None]
    drawn = []
    for prompt in prompts:
        for seed in seeds:
            one = replace(request, prompt=prompt(), seed=seed)
            drawn.append(_draw(diffusion, one, out, paths, many=many, quiet=as_json))
    if as_json:
        click.echo(json.dumps({"pictures": drawn}))


def _seeds(given: tuple[str, ...], automatic: int | None, recorded: Any) -> list[int]:
    if given and automatic:
        raise RequestError("give either --seed or --auto-seeds")
    texts = [t for text in given for t in text.replace(",", " ").split()]
    try:
        seeds = [int(t) for t in texts]
    except ValueError as e:
        raise RequestError(f"--seed {' '.join(given)!r}: seeds are whole numbers") from e
    if seeds:
        return seeds
    if automatic:
        return [random_seed() for _ in range(automatic)]
    return [recorded] if isinstance(recorded, int) else [random_seed()]


def _request(options: dict[str, Any], recorded: dict[str, Any]) -> ImageRequest:
    """Return the request without its prompt and seed."""
    if options["image"] and options["references"]:
        raise RequestError("give either --image, to start from it, or --image-paths, to edit them")
    strength = options["strength"]
    if strength is not None and not options["image"]:
        raise RequestError("--strength is for --image")

    def chosen(name: str, default: Any) -> Any:
        value = options[name] if options[name] is not None else recorded[name]
        return default if value is None else value

    request = ImageRequest(
        "", 0, chosen("width", SIDE), chosen("height", SIDE), chosen("steps", STEPS),
        chosen("rng", "mlx"),
    )  # fmt: skip
    if any(type(v) is not int for v in (request.width, request.height, request.steps)):
        raise RequestError("the picture's settings in --config-from-metadata are no numbers")
    if options["image"]:
        kept = strength if strength is not None else recorded["image_strength"]
        start = read_image(options["image"]).image
        return replace(request, start=start, strength=STRENGTH if kept is None else kept)
    return replace(request, references=tuple(read_image(p).image for p in options["references"]))


def _with_size(
    request: ImageRequest,
    options: dict[str, Any],
    recorded: dict[str, Any],
    diffusion: DiffusionPipeline,
) -> ImageRequest:
    """Return the request with a size: the given one, that of the first reference, or the model's own."""
    missing = [s for s in ("width", "height") if options[s] is None and recorded[s] is None]
    if request.references and len(missing) == 2:
        first = as_reference(request.references[0], diffusion.vae.scale)
        return replace(request, width=first.width, height=first.height)
    side = diffusion.default_pixels
    width = side if "width" in missing else request.width
    return replace(request, width=width, height=side if "height" in missing else request.height)


def _check_places(out: _Output, seeds: list[int], *, many: bool) -> None:
    """Refuse, before a model is loaded, names that no image could be written to."""
    for seed in seeds:
        make_room(named(out.path, seed, many=many), in_new_folder=False)
    if out.sidecar and not is_replaced(out.path):
        raise RequestError(f"--metadata is a file beside the picture, but {out.path} is no file")
    if out.steps_folder is not None:
        make_folder(out.steps_folder)


def _draw(
    diffusion: DiffusionPipeline,
    request: ImageRequest,
    out: _Output,
    inputs: list[str],
    *,
    many: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Draw one image and write its files."""
    place = free_name(named(out.path, request.seed, many=many))
    record = record_of(request, diffusion.name, diffusion.adapters)
    texts = png_texts(record) if out.texts else {}
    begin = time.monotonic()
    with image_progress(request.steps) as told:
        on_step = _with_previews(diffusion, told, out.steps_folder, place.stem)
        pixels = diffusion.draw(request, on_step)
    seconds = time.monotonic() - begin
    with written_whole(place := free_name(place), in_new_folder=False) as file:
        file.write(encode_png(pixels, texts))
    if out.sidecar:
        beside = {
            "version": __version__,
            **record,
            "image_paths": inputs,
            "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "generation_time_seconds": round(seconds, 3),
        }
        with written_whole(place.with_name(f"{place.stem}.metadata.json")) as file:
            file.write(json.dumps(beside, indent=2).encode())
    if not quiet:
        click.echo(f"{place}: seed {request.seed}, {seconds:.1f} s")
    return {"path": str(place), "seed": request.seed, "seconds": round(seconds, 3)}


def _with_previews(
    diffusion: DiffusionPipeline, told: OnStep, folder: Path | None, stem: str
) -> OnStep:
    if folder is None:
        return told

    def on_step(step: Step) -> None:
        told(step)
        pixels = to_pixels(diffusion.decode(step.estimate, step.grid))
        with written_whole(folder / f"{stem}_step{step.index + 1}of{step.steps}.png") as file:
            file.write(encode_png(pixels, {}))

    return on_step
