"""A small picture model of random weights in diffusers' layout, and diffusers' own pipeline of it.

Every parameter is away from what it is initialised to: with the defaults, a network whose blocks are
left out gives nearly the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_folders import BYTE_OF

LAYERS = (1, 2, 3)
LENGTH = 48  # tokens of a prompt
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def tiny_pipeline(seed: int = 0) -> Any:
    """Diffusers' pipeline in float32."""
    from diffusers import (
        AutoencoderKLFlux2,
        Flux2KleinPipeline,
        Flux2Transformer2DModel,
        FlowMatchEulerDiscreteScheduler,
    )
    from transformers import Qwen3Config, Qwen3ForCausalLM

    transformer = Flux2Transformer2DModel(
        patch_size=1,
        in_channels=32,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=192,
        timestep_guidance_channels=256,
        mlp_ratio=3.0,
        axes_dims_rope=(8, 8, 8, 8),
        rope_theta=2000,
        guidance_embeds=False,
    )
    text_encoder = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=272,
            hidden_size=64,
            intermediate_size=192,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=1024,
            rope_theta=1e6,
            tie_word_embeddings=True,
        )
    )
    vae = AutoencoderKLFlux2(
        block_out_channels=(16, 16, 32, 32),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=8,
        norm_num_groups=8,
        sample_size=64,
    )
    scheduler = FlowMatchEulerDiscreteScheduler(
        num_train_timesteps=1000,
        shift=3.0,
        use_dynamic_shifting=True,
        base_shift=0.5,
        max_shift=1.15,
        base_image_seq_len=256,
        max_image_seq_len=4096,
    )
    random = torch.Generator().manual_seed(seed)
    for network in (transformer, text_encoder, vae):
        _enliven(network, random)
    pipeline = Flux2KleinPipeline(
        scheduler, vae.eval(), text_encoder.eval(), None, transformer.eval(), is_distilled=True
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _enliven(network: torch.nn.Module, random: torch.Generator) -> None:
    def normal(shape: torch.Size, deviation: float, mean: float = 0.0) -> torch.Tensor:
        return mean + deviation * torch.randn(shape, generator=random)

    with torch.no_grad():
        for name, parameter in network.named_parameters():
            shape = parameter.shape
            if parameter.ndim >= 2:
                embedding = "embed_tokens" in name
                fan_in = 1.0 if embedding else float(np.prod(shape[1:]))
                parameter.copy_(normal(shape, fan_in**-0.5))
            elif name.endswith("bias"):
                parameter.copy_(normal(shape, 0.1))
            elif any(k in name for k in ("norm_q", "norm_k", "norm_added", "q_norm", "k_norm")):
                parameter.copy_(normal(shape, 0.3, 1.5))
            else:
                parameter.copy_(normal(shape, 0.2, 1.0))
        for name, buffer in network.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(normal(buffer.shape, 0.3))
            elif name.endswith("running_var"):
                buffer.copy_(0.3 + 2 * torch.rand(buffer.shape, generator=random))


def save_tiny(pipeline: Any, folder: Path) -> None:
    """In diffusers' layout, with a tokenizer of bytes."""
    for name in ("transformer", "vae", "text_encoder", "scheduler"):
        getattr(pipeline, name).save_pretrained(folder / name)
    write_tokenizer(folder / "tokenizer")
    index = {
        "_class_name": "Flux2KleinPipeline",
        "is_distilled": True,
        "text_encoder_out_layers": list(LAYERS),
        "minimum_size": 32,
    }
    (folder / "model_index.json").write_text(json.dumps(index))


def write_tokenizer(folder: Path) -> None:
    """``tokenizer.json`` of bytes with Qwen's split and control tokens."""
    folder.mkdir(parents=True)
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    special = [
        {"id": 256 + i, "content": t, "special": True, **flags} for i, t in enumerate(_SPECIAL)
    ]
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {
        "type": "Split",
        "pattern": {"Regex": _SPLIT},
        "behavior": "Isolated",
        "invert": False,
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, plain]},
        "post_processor": None,
        "decoder": plain,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {piece: i for i, piece in enumerate(BYTE_OF)},
            "merges": [],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def prompt_states(pipeline: Any, folder: Path, prompt: str) -> torch.Tensor:
    """Hidden states of a prompt by transformers: [1, LENGTH, width]."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer" / "tokenizer.json"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_TEMPLATE,
    )
    with torch.no_grad():
        return pipeline._get_qwen3_prompt_embeds(
            pipeline.text_encoder,
            tokenizer,
            prompt,
            max_sequence_length=LENGTH,
            hidden_states_layers=list(LAYERS),
        )
