"""Records what transformers' processor of Llama 4 makes of odd pictures; it needs torchvision.

Of each picture, rows and columns of tiles and the tiles, as the bits of bfloat16; of many sizes, rows and
columns of tiles and what a picture is resized to within them.
"""

from __future__ import annotations

import io

import llama4_pictures as truth
import numpy as np
import torch
from odd_pictures import ODD_PICTURES
from PIL import Image
from transformers.image_utils import SizeDict
from transformers.models.llama4 import image_processing_llama4 as peer

from oxibonsai.vision.decoding import decode_image


def grid_and_size(height: int, width: int) -> list[int]:
    """Sides of the canvas in tiles, then those of the picture in it in pixels."""
    side = truth.SIDE_OF_SIZES
    sizes = peer.find_supported_resolutions(truth.TILES_OF_SIZES, SizeDict(height=side, width=side))
    canvas = peer.get_best_fit((height, width), torch.tensor(sizes))
    bounds = tuple(min(max(n, side), c) for n, c in zip((height, width), canvas, strict=True))
    fitted = peer.get_max_res_without_distortion((height, width), bounds)
    return [*(int(c) // side for c in canvas), *(max(int(n), 1) for n in fitted)]


def main() -> None:
    processor = peer.Llama4ImageProcessor(
        size={"height": truth.SIDE, "width": truth.SIDE}, max_patches=truth.TILES,
        image_mean=list(truth.MEAN), image_std=list(truth.STD),
    )  # fmt: skip
    found: dict[str, np.ndarray] = {}
    for name in truth.PICTURES:
        image = decode_image(ODD_PICTURES[name]).image
        made = processor(Image.fromarray(np.asarray(image)), return_tensors="pt")
        found[f"{name}: tiles"] = made["aspect_ratios"][0].numpy()
        found[f"{name}: pixels"] = made["pixel_values"].view(torch.int16).numpy().view(np.uint16)
    random = np.random.default_rng(0)
    sizes = np.exp2(random.uniform(0, 12, (400, 2))).astype(np.int64)
    # Of ratios that a canvas has exactly, whose sizes depend on the rounding of float32.
    sizes = np.concatenate([sizes, [(3216, 1206), (1206, 3216), (1672, 627), (2010, 670)]])
    found["sizes"] = np.array([[h, w, *grid_and_size(h, w)] for h, w in sizes.tolist()])
    file = io.BytesIO()
    np.savez_compressed(file, **found)
    truth.RECORDED.write_bytes(file.getvalue())


if __name__ == "__main__":
    main()
