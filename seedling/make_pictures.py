"""Trains `seedling-picture`, writes its file, and looks at what it draws.

    python seedling/make_pictures.py autoencoder WORK
    python seedling/make_pictures.py transformer WORK
    python seedling/make_pictures.py decoder WORK         # the autoencoder's, further
    python seedling/make_pictures.py file WORK            # python/oxibonsai/seedling/seedling-picture.gguf
    python seedling/make_pictures.py results WORK         # seedling/pictures/results.json
    python seedling/make_pictures.py strip WORK           # docs/assets/seedling-picture.png

The text encoder is the packaged `seedling-ternary`, whose hidden states the transformer reads.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from oxibonsai import ImagePipeline
from oxibonsai.diffusion.model_files import PartNames, open_image_model
from oxibonsai.diffusion.write_one_file import write_one_file
from oxibonsai.sources.local import IMAGE_MODEL, resolve_packaged
from pictures.autoencoder import load_autoencoder, train_autoencoder
from pictures.captions import Scene, all_scenes, held_out_scenes
from pictures.drawing import SIDE
from pictures.recognition import seen
from pictures.transformer import PROMPT_LENGTH, TEXT_LAYERS, TYPE, train_transformer

HERE = Path(__file__).resolve().parent
TEXT_ENCODER = resolve_packaged("seedling-ternary")
FILE = TEXT_ENCODER.with_name(f"{IMAGE_MODEL}.gguf")
RESULTS = HERE / "pictures" / "results.json"
STRIP = HERE.parent / "docs" / "assets" / f"{IMAGE_MODEL}.png"

SHOWN = (
    "a green tree in a red pot",
    "a purple tree in a yellow pot on a black background",
    "an orange tree in a blue pot on a gray background",
    "a red heart",
    "a yellow star on a black background",
    "a blue circle",
    "a green triangle on a gray background",
    "an orange pot",
)


def main() -> None:
    """Reads the arguments, does one part."""
    parts: dict[str, Callable[[Path, Any], None]] = {
        "autoencoder": _autoencoder,
        "transformer": _transformer,
        "decoder": _decoder,
        "file": _file,
        "results": _results,
        "strip": _strip,
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=parts)
    parser.add_argument("work", type=Path, help="folder of the trained networks")
    parser.add_argument("--steps", type=int, help="of the optimizer")
    parser.add_argument(
        "--begun", type=Path, help="folder of an autoencoder, or learnt.safetensors, to go on with"
    )
    parser.add_argument("--pictures", type=int, default=8000, help="that the transformer learns")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of a training at most")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts[options.part](options.work, options)


def _autoencoder(work: Path, options: Any) -> None:
    steps, begun = options.steps or 3000, options.begun
    train_autoencoder(work / "vae", steps, begun, minutes=options.minutes)


def _decoder(work: Path, options: Any) -> None:
    folder, steps = work / "vae", options.steps or 2000
    train_autoencoder(folder, steps, folder, minutes=options.minutes, decoder_only=True)


def _transformer(work: Path, options: Any) -> None:
    train_transformer(
        work / "transformer",
        work / "vae",
        TEXT_ENCODER,
        options.steps or 6000,
        options.pictures,
        minutes=options.minutes,
        begun=options.begun,
    )


def _file(work: Path, _: Any) -> None:
    """Joins the networks: the autoencoder in float16, the matrices of blocks ternary."""
    folder = work / IMAGE_MODEL
    load_autoencoder(work / "vae").half().save_pretrained(folder / "vae")
    (folder / "transformer").mkdir(exist_ok=True)
    for name in ("config.json", "diffusion_pytorch_model.safetensors"):
        shutil.copyfile(work / "transformer" / name, folder / "transformer" / name)
    index = {
        "_class_name": "Flux2KleinPipeline",
        "text_encoder_out_layers": list(TEXT_LAYERS),
        "max_sequence_length": PROMPT_LENGTH,
        "default_size": SIDE,
    }
    (folder / "model_index.json").write_text(json.dumps(index))
    files = open_image_model(folder, PartNames(text_encoder=str(TEXT_ENCODER)))
    write_one_file(files, FILE, dtype=TYPE)
    print(f"{FILE}: {FILE.stat().st_size} bytes")


def _results(_: Path, options: Any) -> None:
    """Shares of pictures with the right shape and colours, by captions and number of steps."""
    pipe = ImagePipeline.from_pretrained(FILE, threads=options.threads, keep_text_encoder=True)
    learnt = [s for s in all_scenes() if not s.held_out]
    sets = {"held out": held_out_scenes(), "learnt": learnt[:: len(learnt) // 100][:100]}
    found: dict[str, Any] = {"bytes": FILE.stat().st_size}
    for steps in (4, 8):
        for name, scenes in sets.items():
            found[f"{name}, {steps} steps"] = _share(pipe, scenes, steps)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def _share(pipe: ImagePipeline, scenes: list[Scene], steps: int) -> dict[str, Any]:
    seeds = list(range(4))
    right = background = 0
    wrong = []
    for scene in scenes:
        for image in pipe(scene.caption, seed=seeds, num_inference_steps=steps).images:
            look = seen(np.asarray(image))
            right += look.is_of(scene)
            background += look.background == (scene.background or "white")
            if not look.is_of(scene):
                wrong.append(f"{scene.caption}: {look.colour} {look.shape}, pot {look.pot}")
    count = len(scenes) * len(seeds)
    return {
        "pictures": count,
        "shape and colours": round(right / count, 3),
        "background": round(background / count, 3),
        "wrong": wrong[:12],
    }


def _strip(_: Path, options: Any) -> None:
    """Pictures side by side, each with seed 1, twice as large."""
    pipe = ImagePipeline.from_pretrained(FILE, threads=options.threads, keep_text_encoder=True)
    pictures = [np.asarray(pipe(text, seed=1).images[0]) for text in SHOWN]
    row = Image.fromarray(np.concatenate(pictures, axis=1))
    STRIP.parent.mkdir(parents=True, exist_ok=True)
    row.resize((2 * row.width, 2 * row.height), Image.Resampling.NEAREST).save(STRIP, optimize=True)


if __name__ == "__main__":
    main()
