"""A whole image model as one GGUF file of the architecture ``bonsai-image``.

The transformer's tensors have diffusers' names, packed matrices without ``.weight``, as in
OxiBonsai's files of the transformer alone. Those of the VAE have the prefix ``vae.``; the text encoder
is stored like the language model that it is, its keys and its tokenizer included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.diffusion.latents import MOST_PIXELS
from oxibonsai.diffusion.text_encoder import LENGTH
from oxibonsai.errors import FormatError, SourceError

ARCHITECTURE = "bonsai-image"
# Of files with a transformer by Black Forest Labs' names: city96's; stable-diffusion.cpp writes no key.
ORIGINAL_ARCHITECTURES = ("flux", None)
VAE_PREFIX = "vae."
TEXT_PREFIXES = ("token_embd.", "blk.", "output_norm.", "output.")
TEXT_ARCHITECTURE_KEY = f"{ARCHITECTURE}.text_encoder.architecture"
VAE_CONFIG_KEY = f"{ARCHITECTURE}.vae.config"
TEXT_LAYERS_KEY = f"{ARCHITECTURE}.text_encoder.layers"
# Counts that small models have of their own, by the field of ModelFiles: the key in GGUF (after the
# architecture) and in diffusers' index, and the largest value.
COUNTS = {
    "prompt_length": ("max_sequence_length", LENGTH),
    "default_pixels": ("default_size", MOST_PIXELS),
}
_OTHER_KEYS = (
    TEXT_ARCHITECTURE_KEY,
    TEXT_LAYERS_KEY,
    VAE_CONFIG_KEY,
    f"{ARCHITECTURE}.minimum_size",  # of older files: a bound that the networks don't have
    *(f"{ARCHITECTURE}.{key}" for key, _ in COUNTS.values()),
)

# Keys of the transformer's configuration: GGUF's, after the architecture, by diffusers'; with GGUF's
# type of the value.
TRANSFORMER_KEYS = {
    "num_layers": ("num_layers", "u32"),
    "num_single_layers": ("num_single_layers", "u32"),
    "num_attention_heads": ("attention.head_count", "u32"),
    "attention_head_dim": ("attention.head_dim", "u32"),
    "joint_attention_dim": ("joint_attention_dim", "u32"),
    "in_channels": ("in_channels", "u32"),
    "mlp_ratio": ("mlp_ratio", "f32"),
    "axes_dims_rope": ("rope.axes_dims", "arr[u32]"),
    "rope_theta": ("rope.theta", "f32"),
    "guidance_embeds": ("guidance_embeds", "bool"),
    "timestep_guidance_channels": ("timestep_guidance_channels", "u32"),
    "eps": ("layer_norm_epsilon", "f32"),
}
_NEEDED = ("num_layers", "num_single_layers", "num_attention_heads", "attention_head_dim")


def open_image_gguf(path: Path) -> Checkpoint:
    """Return a GGUF file of an image model, or of its transformer alone.

    Raises:
        FormatError, UnsupportedError: It can't be opened.
    """
    if not path.is_file():
        raise SourceError(f"{path} is no file")
    # Type 42 is OxiBonsai's of the transformer, or else that of a ternary text encoder.
    try:
        return Checkpoint(path, "TQ2_0_g128")
    except FormatError:
        return Checkpoint(path, "Q2_0_g64")


def transformer_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the transformer's configuration by diffusers' names; every key of the architecture is known.

    Raises:
        FormatError: A key is missing or unknown, or the file is of another architecture.
    """
    if checkpoint.architecture != ARCHITECTURE:
        raise FormatError(
            f"{checkpoint.path} is of architecture {checkpoint.architecture}, not {ARCHITECTURE}"
        )
    known = {key: ours for ours, (key, _) in TRANSFORMER_KEYS.items()}
    config: dict[str, Any] = {}
    keys = checkpoint.file.keys()
    for full in keys:
        if not full.startswith(f"{ARCHITECTURE}.") or full in _OTHER_KEYS:
            continue
        key = full.removeprefix(f"{ARCHITECTURE}.")
        if key not in known:
            raise FormatError(f"{checkpoint.path}: this version does not know the key {full}")
        value = checkpoint.file.get(full)
        config[known[key]] = value.tolist() if isinstance(value, np.ndarray) else value
    for name in _NEEDED:
        if name not in config:
            key = f"{ARCHITECTURE}.{TRANSFORMER_KEYS[name][0]}"
            raise FormatError(f"{checkpoint.path}: the key {key} is missing")
    return config


def vae_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the VAE's configuration."""
    text = checkpoint.file.get(VAE_CONFIG_KEY)
    try:
        config = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise FormatError(f"{checkpoint.path}: {VAE_CONFIG_KEY} is no JSON object")
    return config


def counts(checkpoint: Checkpoint) -> dict[str, int]:
    """Return the file's values of ``COUNTS``, by the field of ModelFiles."""
    given = {key: checkpoint.file.get(f"{ARCHITECTURE}.{key}") for key, _ in COUNTS.values()}
    return checked_counts({k: v for k, v in given.items() if v is not None}, checkpoint.path)


def checked_counts(given: Mapping[str, Any], where: Path) -> dict[str, int]:
    """Count by the field of ModelFiles.

    Args:
        given: By the key; other keys are ignored.
        where: Names the file in errors.

    Raises:
        FormatError: A value is no count, or too large.
    """
    found: dict[str, int] = {}
    for field, (key, most) in COUNTS.items():
        if key not in given:
            continue
        value = given[key]
        if type(value) is not int or not 1 <= value <= most:
            raise FormatError(f"{where}: {key} is {value!r}, not a count up to {most}")
        found[field] = value
    return found


def text_layers(checkpoint: Checkpoint) -> tuple[int, ...] | None:
    """Return the layers whose hidden states the transformer reads, where the file says it."""
    found = checkpoint.file.get(TEXT_LAYERS_KEY)
    if found is None:
        return None
    layers = tuple(found.tolist()) if isinstance(found, np.ndarray) else ()
    if not layers or any(type(n) is not int or n < 0 for n in layers):
        raise FormatError(f"{checkpoint.path}: {TEXT_LAYERS_KEY} is no list of layers")
    return layers


def text_encoder_of(checkpoint: Checkpoint) -> Checkpoint:
    """Return the text encoder that the file holds.

    Raises:
        SourceError: It holds none.
    """
    architecture = checkpoint.file.get(TEXT_ARCHITECTURE_KEY)
    if not isinstance(architecture, str):
        raise SourceError(f"{checkpoint.path} holds no text encoder: name one")
    return checkpoint.part(architecture, TEXT_PREFIXES)
