"""mflux's own pipeline class, with MLX on the processor, draws the same picture from the same seed.

Both come from PyPI, but mflux asks for MLX's build for cards, so its requirements are left out:

    pip install --no-deps mlx==0.32.4 mlx-cpu==0.32.4 mflux==0.24.0 piexif platformdirs toml
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from oxibonsai import ImagePipeline
from oxibonsai.diffusion.text_encoder import TextEncoder

pytestmark = pytest.mark.suite

PROMPT = "a tiny bonsai tree in a ceramic pot"
LAYERS = (9, 18, 27)  # mflux has no others
WIDTHS = (32, 32, 64, 64)
NAME = "diffusion_pytorch_model.safetensors"


def save_model(folder: Path) -> None:
    """Small networks of the numbers that mflux has fixed: channels, groups, layers of the encoder."""
    import torch
    from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
    from diffusers_models import TEXT_ENCODER, TRANSFORMER, VAE, live
    from tiny_images import pipeline_of, save_tiny
    from transformers import Qwen3Config, Qwen3Model

    transformer = live(Flux2Transformer2DModel(**{**TRANSFORMER, "in_channels": 128}), 0)
    widths = {"block_out_channels": WIDTHS, "decoder_block_out_channels": WIDTHS}
    sizes = {"latent_channels": 32, "norm_num_groups": 32}
    vae = live(AutoencoderKLFlux2(**{**VAE, **widths, **sizes}), 2)
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        vae.bn.running_mean.copy_(0.3 * torch.randn(128, generator=random))
        vae.bn.running_var.copy_(0.3 + 2 * torch.rand(128, generator=random))
    text_encoder = live(Qwen3Model(Qwen3Config(**{**TEXT_ENCODER, "num_hidden_layers": 28})), 1)
    save_tiny(pipeline_of(transformer, text_encoder, vae), folder)
    index = folder / "model_index.json"
    settings = {**json.loads(index.read_text()), "text_encoder_out_layers": LAYERS}
    index.write_text(json.dumps(settings))


def load(network: Any, tensors: dict[str, Any]) -> None:
    """Fills a network of mflux with tensors by diffusers' names; none is left over."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    known = dict(tree_flatten(network.parameters()))
    found = {}
    for name, value in tensors.items():
        name = name.removeprefix("model.").replace("to_out.0", "to_out")
        name = name.replace("time_guidance_embed.timestep_embedder.", "time_guidance_embed.")
        if value.ndim == 4:
            value = value.transpose(0, 2, 3, 1)
        found[name] = mx.array(np.ascontiguousarray(value))
    assert set(found) <= set(known)
    assert {
        n for n in set(known) - set(found) if not n.startswith(("encoder.", "rotary_emb"))
    } == set()
    network.load_weights(list(found.items()), strict=False)


def mflux_pipeline(folder: Path, ids: list[int], pad: int) -> Any:
    """Its class without its loader, in float32."""
    import mlx.core as mx
    from mflux.models.common.config.model_config import ModelConfig

    ModelConfig.precision = mx.float32  # before the networks are imported
    from diffusers_models import TEXT_ENCODER, TRANSFORMER
    from mflux.callbacks.callback_registry import CallbackRegistry
    from mflux.models.common.compute_precision import ComputePrecision
    from mflux.models.flux2.model.flux2_text_encoder.qwen3_text_encoder import Qwen3TextEncoder
    from mflux.models.flux2.model.flux2_transformer.transformer import Flux2Transformer
    from mflux.models.flux2.model.flux2_vae.vae import Flux2VAE
    from mflux.models.flux2.variants.txt2img.flux2_klein import Flux2Klein
    from mlx import nn

    settings = {k: v for k, v in TRANSFORMER.items() if k not in ("in_channels", "eps")}
    transformer = Flux2Transformer(in_channels=128, **settings)
    load(transformer, load_file(folder / "transformer" / NAME))
    other = ("tie_word_embeddings", "num_hidden_layers")
    settings = {k: v for k, v in TEXT_ENCODER.items() if k not in other}
    text_encoder = Qwen3TextEncoder(num_hidden_layers=28, **settings)
    load(text_encoder, load_file(folder / "text_encoder" / "model.safetensors"))
    vae = Flux2VAE(decoder_block_out_channels=WIDTHS)
    tensors = load_file(folder / "vae" / NAME)
    left_out = ("encoder.", "bn.num_batches_tracked")
    load(vae, {n: v for n, v in tensors.items() if not n.startswith(left_out)})

    def tokenize(prompt: str, max_length: int, **_: Any) -> Any:
        more = max_length - len(ids)
        return SimpleNamespace(
            input_ids=mx.array([ids + [pad] * more]),
            attention_mask=mx.array([[1] * len(ids) + [0] * more]),
        )

    pipeline = Flux2Klein.__new__(Flux2Klein)
    nn.Module.__init__(pipeline)
    attributes = {
        "vae": vae, "transformer": transformer, "text_encoder": text_encoder,
        "tokenizers": {"qwen3": SimpleNamespace(tokenize=tokenize)},
        "model_config": ModelConfig.flux2_klein_4b(), "callbacks": CallbackRegistry(),
        "compute_precision": ComputePrecision(None), "tiling_config": None, "bits": None,
        "lora_paths": [], "lora_scales": [], "small_text_encoder": False, "small_decoder": False,
    }  # fmt: skip
    for name, value in attributes.items():
        setattr(pipeline, name, value)
    return pipeline


def test_a_seed_and_a_prompt_draw_the_picture_of_mflux(tmp_path: Path) -> None:
    pytest.importorskip("mflux", reason="see above")
    save_model(tmp_path / "model")
    ours = ImagePipeline.from_pretrained(tmp_path / "model")
    diffusion = ours.diffusion
    encoder = TextEncoder(diffusion._files.text_encoder, diffusion._device, LAYERS)
    theirs = mflux_pipeline(tmp_path / "model", encoder.ids(PROMPT), encoder.pad_id)
    expected = theirs.generate_image(
        seed=42, prompt=PROMPT, num_inference_steps=4, width=96, height=64, guidance=1.0
    ).image
    drawn = ours(PROMPT, width=96, height=64, seed=42).images[0]
    difference = np.abs(np.asarray(drawn).astype(int) - np.asarray(expected).astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01
