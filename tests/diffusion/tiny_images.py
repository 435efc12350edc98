"""A small picture model of live weights in diffusers' layout, and diffusers' own pipeline of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from diffusers_models import TEXT_LAYERS, text_encoder, transformer, vae
from hf_folders import BYTE_OF

LENGTH = 48  # tokens of a prompt
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n<think>\n\n</think>\n\n' }}"
)


def tiny_pipeline() -> Any:
    """Diffusers' pipeline in float32."""
    return pipeline_of(transformer(), text_encoder(), vae())


def pipeline_of(transformer: Any, text_encoder: Any, vae: Any) -> Any:
    """Diffusers' pipeline of networks; the text encoder gets the head that repositories have."""
    from diffusers import FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline
    from transformers import Qwen3ForCausalLM

    scheduler = FlowMatchEulerDiscreteScheduler(
        num_train_timesteps=1000,
        shift=3.0,
        use_dynamic_shifting=True,
        base_shift=0.5,
        max_shift=1.15,
        base_image_seq_len=256,
        max_image_seq_len=4096,
    )
    language_model = Qwen3ForCausalLM(text_encoder.config)
    language_model.model = text_encoder
    language_model.tie_weights()
    networks = vae, language_model.eval(), None, transformer
    pipeline = Flux2KleinPipeline(scheduler, *networks, is_distilled=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def save_tiny(pipeline: Any, folder: Path) -> None:
    """In diffusers' layout, with a tokenizer of bytes."""
    for name in ("transformer", "vae", "text_encoder", "scheduler"):
        getattr(pipeline, name).save_pretrained(folder / name)
    write_tokenizer(folder / "tokenizer")
    index = {
        "_class_name": "Flux2KleinPipeline",
        "is_distilled": True,
        "text_encoder_out_layers": list(TEXT_LAYERS),
    }
    (folder / "model_index.json").write_text(json.dumps(index))


def write_tokenizer(folder: Path) -> None:
    """``tokenizer.json`` of bytes with Qwen's split and control tokens."""
    folder.mkdir(parents=True)
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    special = [
        {"id": 256 + i, "content": t, "special": True, **flags} for i, t in enumerate(_SPECIAL)
    ]
    plain = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
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
            hidden_states_layers=list(TEXT_LAYERS),
        )
