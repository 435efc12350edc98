"""What transformers' processor of Llama 4, which needs torchvision, makes of odd pictures."""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).parents[1] / "truth/vision/llama4_pictures.npz"
PICTURES = ("one pixel", "37 x 1001", "4000 x 30", "square", "wide", "tall JPEG", "grey")
SIDE, TILES = 12, 6
MEAN, STD = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)
SIDE_OF_SIZES, TILES_OF_SIZES = 336, 16  # as of the published models
