"""Writes one GGUF file with the shapes of Bonsai-Image (FLUX.2-klein 4B) and random weights.

    python bench/make_random_image_model.py OUT.gguf

The transformer is ternary, the text encoder (Qwen3 4B up to the layers that are used) has 4 bits, and all
else is BF16, as in the published model. What it draws is noise; time and memory are the real ones:

    oxibonsai bench image OUT.gguf --width 512 --height 512 --steps 4
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import make_random_bonsai
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.diffusion.model_files import ModelFiles
from oxibonsai.diffusion.network import Network
from oxibonsai.diffusion.parameters import ArrayTensors
from oxibonsai.diffusion.text_encoder import LAYERS
from oxibonsai.diffusion.write_one_file import write_one_file
from oxibonsai.quantize.weight_types import type_named
from random_image_tensors import CONFIG, ternary_blocks, transformer_tensors, vae_tensors

DOUBLE_BLOCKS, SINGLE_BLOCKS = 5, 20
BLOCK = type_named("TQ2_0_g128")


class RandomTensors(ArrayTensors):
    """Arrays that can be written to a file: bytes are blocks of TQ2_0_g128, floats become BF16."""

    def __init__(self, tensors: dict[str, npt.NDArray[Any]]) -> None:
        super().__init__({})
        self._stored = tensors

    @property
    def names(self) -> set[str]:
        """Of all tensors."""
        return set(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor that is there."""
        tensor = self._stored[name]
        if tensor.dtype == np.uint8:
            return len(tensor), tensor.shape[1] // BLOCK.size(BLOCK.group) * BLOCK.group
        return tensor.shape

    def quant_type(self, name: str) -> str:
        """A tensor's type."""
        return BLOCK.name if self._stored[name].dtype == np.uint8 else "BF16"

    def stored(self, name: str) -> npt.NDArray[np.uint8]:
        """A tensor's bytes."""
        tensor = self._stored[name]
        if tensor.dtype == np.uint8:
            return tensor
        upper_half = np.ascontiguousarray(tensor).reshape(-1).view(np.uint16)[1::2]
        return np.ascontiguousarray(upper_half).view(np.uint8)

    def release(self) -> None:
        """Nothing is mapped."""


def write(out: Path) -> None:
    """Writes the file; the text encoder passes through a temporary one beside it."""
    config: dict[str, Any] = {
        **CONFIG,
        "num_layers": DOUBLE_BLOCKS,
        "num_single_layers": SINGLE_BLOCKS,
    }
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        text = Path(folder) / "text.gguf"
        make_random_bonsai.write(text, "4B", "Q4_0", LAYERS[-1], None, 0)
        transformer = transformer_tensors(DOUBLE_BLOCKS, SINGLE_BLOCKS, ternary_blocks)
        files = ModelFiles(
            "random Bonsai-Image 4B",
            Network(config, RandomTensors(transformer)),
            Network({}, RandomTensors(vae_tensors())),
            Checkpoint(text),
        )
        write_one_file(files, out)


def main() -> None:
    """Writes the file that is named."""
    parser = argparse.ArgumentParser(description="Write a random model of Bonsai-Image's shapes.")
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    write(out)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
