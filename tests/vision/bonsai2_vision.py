"""Bonsai 2's eyes: towers of the published size, and a small language model of its kind that sees.

Weights are random, none near its default, and each is exactly a number of float16, as published towers
have them: what differs from transformers is then arithmetic.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from random_vision import randomise, randomise_text
from recurrent_models import _QWEN35
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))
from hf_folders import write_tokenizer

from oxibonsai.convert.vision_tower import convert_tower

Floats = npt.NDArray[np.float32]
# The width of the language model's embeddings, by Bonsai 2's sizes.
WIDTHS = {"2B": 2048, "4B": 2560, "9B": 4096, "27B": 5120}
LAYERS = 27
# transformers' defaults are the published tower; this says them once more.
PUBLISHED = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
    "in_channels": 3, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
SMALL = {
    **PUBLISHED,
    "hidden_size": 64,
    "intermediate_size": 88,
    "num_heads": 2,
    "num_position_embeddings": 36,
}
TOKENS = (
    "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
# In the manner of Qwen's; with add_vision_id, pictures are counted through all turns.
TEMPLATE = """\
{%- set ns = namespace(count=0) %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.content is string %}{{ m.content }}{% else %}
{%- for p in m.content %}
{%- if p.type != 'image' and 'image' not in p %}{{ p.text }}{% else %}
{%- set ns.count = ns.count + 1 %}
{%- if add_vision_id %}{{ 'Picture ' ~ ns.count ~ ': ' }}{% endif %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
# Few tokens for each picture, so that passes are short.
_EDGES = {"shortest_edge": 4 * 32 * 32, "longest_edge": 24 * 32 * 32}
_PREPARED = {
    "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "patch_size": 16, "merge_size": 2,
    "temporal_patch_size": 2, "size": _EDGES,
}  # fmt: skip
Names = str  # of a folder's parameters: "hub" or "mlx"


def narrow(module: torch.nn.Module) -> None:
    """Round every parameter to float16."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.half().float())


def make_tower(width: int, layers: int, **sizes: Any) -> Any:
    """transformers' vision model of the published size, or of other sizes."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5VisionConfig, Qwen3_5VisionModel

    config = Qwen3_5VisionConfig(**{**PUBLISHED, **sizes}, depth=layers, out_hidden_size=width)
    config._attn_implementation = "eager"
    tower = Qwen3_5VisionModel(config).float().eval()
    randomise(tower)
    narrow(tower)
    return tower


def tower_parameters(tower: Any, names: Names) -> dict[str, torch.Tensor]:
    """Parameters as a folder holds them, in float16; MLX's has its channels last."""
    prefix = {"hub": "model.visual", "mlx": "vision_tower"}[names]
    found = {f"{prefix}.{n}": p.detach().half() for n, p in tower.named_parameters()}
    if names == "mlx":
        name = f"{prefix}.patch_embed.proj.weight"
        found[name] = found[name].permute(0, 2, 3, 4, 1)
    return {n: p.contiguous() for n, p in found.items()}


def vision_config(tower: Any) -> dict[str, Any]:
    """Of ``config.json``."""
    config: dict[str, Any] = tower.config.to_dict()
    return config


def write_processor(folder: Path) -> None:
    """What says how pictures are prepared."""
    (folder / "preprocessor_config.json").write_text(json.dumps(_PREPARED))


def write_mmproj(tower: Any, folder: Path, dtype: str = "f16") -> Path:
    """The file of a tower, by way of a folder as the hub has it."""
    folder.mkdir()
    text = {"hidden_size": tower.config.out_hidden_size}
    config = {"model_type": "qwen3_5", "text_config": text, "vision_config": vision_config(tower)}
    (folder / "config.json").write_text(json.dumps(config))
    write_processor(folder)
    save_file(tower_parameters(tower, "hub"), folder / "model.safetensors")
    convert_tower(folder, folder / "mmproj.gguf", dtype=dtype)
    return folder / "mmproj.gguf"


def add_tokens(folder: Path) -> dict[str, int]:
    """Put the tokens of turns and pictures into a tokenizer's file; return their ids."""
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    like = document["added_tokens"][0]
    first = max(t["id"] for t in document["added_tokens"]) + 1
    ids = {text: first + i for i, text in enumerate(TOKENS)}
    document["added_tokens"] += [{**like, "id": i, "content": text} for text, i in ids.items()]
    path.write_text(json.dumps(document))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return ids


def write_model(folder: Path, *, context: int = 2048) -> Any:
    """A folder with delta rules, heads and M-RoPE of the published size; return transformers' model."""
    folder.mkdir()
    write_tokenizer(folder, spm=False)
    ids = add_tokens(folder)
    rope = {
        "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10], "mrope_interleaved": True,
    }  # fmt: skip
    text = {
        **_QWEN35, "head_dim": 256, "num_attention_heads": 2, "num_key_value_heads": 1,
        "rope_parameters": rope, "max_position_embeddings": context,
        "vocab_size": max(ids.values()) + 1,
    }  # fmt: skip
    vision = {**SMALL, "depth": 2, "out_hidden_size": text["hidden_size"]}
    config = transformers.Qwen3_5Config(
        text_config=text, vision_config=vision, tie_word_embeddings=False,
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.Qwen3_5ForConditionalGeneration(config).float().eval()
    randomise(model.model.visual)
    randomise_text(model)
    narrow(model.model.visual)
    model.save_pretrained(folder)
    stored = json.loads((folder / "config.json").read_text())
    for part in (stored, stored["text_config"]):
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            part.pop(name, None)
    (folder / "config.json").write_text(json.dumps(stored))
    (folder / "generation_config.json").unlink(missing_ok=True)
    # The tokenizer's end of a text is that of a turn.
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["eos_token"] = "<|im_end|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    write_processor(folder)
    return model


def make_processor(folder: Path) -> Any:
    """transformers' own processor of a folder; that of videos would need torchvision."""
    from transformers import PreTrainedTokenizerFast
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

    class WithoutVideos(Qwen3VLProcessor):  # type: ignore[misc]
        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            return type(argument)

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    images = Qwen2VLImageProcessorPil(**_PREPARED)
    return WithoutVideos(images, tokenizer, None, chat_template=TEMPLATE)
