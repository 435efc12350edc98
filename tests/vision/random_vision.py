"""Small random models with eyes, as transformers has them, and the two files that llama.cpp makes of one.

Weights leave nothing at its default: a norm, a bias or a factor that is missing changes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
import transformers
from dense_models import random_values
from expert_models import _LLAMA4
from hf_folders import write_tokenizer
from random_models import _tensor_name
from recurrent_models import _MIXED, _QWEN35
from recurrent_models import VOCABULARY as RECURRENT_VOCABULARY
from recurrent_models import random_values as recurrent_values

from oxibonsai.convert.language_model import convert

Floats = npt.NDArray[np.float32]
VOCABULARY, HIDDEN, TEXT_LAYERS, HEADS, KV_HEADS, HEAD_DIM, FF = 317, 64, 3, 4, 2, 16, 96
IMAGE_TOKEN, EXPERT_FF = 7, 40
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": FF,
    "num_hidden_layers": TEXT_LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": 4096,
}  # fmt: skip
MEAN, STD = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]


@dataclass(frozen=True)
class Eyed:
    """A model.

    Attributes:
        truth: Of transformers, in float32.
        text: GGUF file of the language model.
        tower: That of the tower.
    """

    truth: Any
    text: Path
    tower: Path


def randomise(model: torch.nn.Module) -> None:
    """Every parameter a function of its name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = random_values(name, tuple(parameter.shape))
            if parameter.ndim > 2 and "experts" not in name:  # a convolution
                values *= 1.6 / np.sqrt(np.prod(parameter.shape[1:])) / values.std()
            if name.endswith("input_projection_weight"):
                values *= parameter.shape[1] ** 0.5 / parameter.shape[0] ** 0.5
            parameter.copy_(torch.from_numpy(values))


def randomise_text(model: Any) -> None:
    """Every parameter of a hybrid language model random, as its kind wants it."""
    random = np.random.default_rng(7)
    with torch.no_grad():
        for part in (model.model.language_model, model.lm_head):
            for name, parameter in sorted(part.named_parameters()):
                values = recurrent_values(random, name, tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values))


def write_gguf(
    path: Path, architecture: str, keys: Mapping[str, Any], tensors: Mapping[str, Floats]
) -> None:
    """A file of float32 tensors."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in keys.items():
        name = f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def parameters(module: torch.nn.Module) -> dict[str, Floats]:
    return {n: p.detach().numpy() for n, p in module.named_parameters()}


def text_tensors(module: torch.nn.Module, head: Floats | None, *, gemma: bool) -> dict[str, Floats]:
    """Tensors of a language model that is Qwen3's or Gemma 3's but for its pictures."""
    named = {}
    for name, values in parameters(module).items():
        plus = np.float32(1.0) if gemma and "norm" in name else np.float32(0.0)
        layer, _, rest = name.removeprefix("layers.").partition(".")
        if rest == "mlp.gate.weight":
            named[f"blk.{layer}.ffn_gate_inp.weight"] = values
            continue
        if rest == "mlp.experts.gate_up_proj":
            named[f"blk.{layer}.ffn_gate_exps.weight"] = values[:, : values.shape[1] // 2]
            named[f"blk.{layer}.ffn_up_exps.weight"] = values[:, values.shape[1] // 2 :]
            continue
        if rest == "mlp.experts.down_proj":
            named[f"blk.{layer}.ffn_down_exps.weight"] = values
            continue
        named[_tensor_name(f"model.{name}", gemma)] = values + plus
    if head is not None:
        named["output.weight"] = head
    return named


def text_keys(eps: float, theta: float) -> dict[str, Any]:
    return {
        "context_length": 4096, "embedding_length": HIDDEN, "block_count": TEXT_LAYERS,
        "feed_forward_length": FF, "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM, "attention.layer_norm_rms_epsilon": eps,
        "rope.freq_base": theta,
    }  # fmt: skip


def vision_keys(config: Any, projector: str, eps: float, **more: Any) -> dict[str, Any]:
    return {
        "has_vision_encoder": True, "projector_type": projector, "use_gelu": True,
        "vision.embedding_length": config.hidden_size,
        "vision.feed_forward_length": config.intermediate_size,
        "vision.block_count": config.num_hidden_layers,
        "vision.attention.head_count": config.num_attention_heads,
        "vision.attention.layer_norm_epsilon": eps,
        "vision.patch_size": config.patch_size, "vision.projection_dim": HIDDEN,
        "vision.image_mean": MEAN, "vision.image_std": STD, **more,
    }  # fmt: skip


def qwen3vl(folder: Path, *, experts: bool = False, **sizes: int) -> Eyed:
    """Deep stack behind two layers, places for a grid of 5 x 5 patches; or with a tower of other sizes."""
    kind = "Qwen3VLMoe" if experts else "Qwen3VL"
    mixed = {
        "moe_intermediate_size": EXPERT_FF, "num_experts": 4, "num_experts_per_tok": 2,
        "decoder_sparse_step": 1, "mlp_only_layers": [],
    }  # fmt: skip
    vision = {
        "depth": 3, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "patch_size": 4,
        "out_hidden_size": HIDDEN, "num_position_embeddings": 25,
        "deepstack_visual_indexes": [0, 2], **sizes,
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 5e4, "mrope_section": [4, 2, 2]}
    text = {**TEXT, "rope_parameters": rope, "rms_norm_eps": 1e-6, **(mixed if experts else {})}
    config = getattr(transformers, f"{kind}Config")(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE_TOKEN, video_token_id=8, vision_start_token_id=9,
        vision_end_token_id=10, tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).float().eval()
    randomise(model)
    keys = {
        **text_keys(1e-6, 5e4),
        "rope.dimension_sections": [4, 2, 2, 0],
        "n_deepstack_layers": 2,
    }
    tensors = text_tensors(
        model.model.language_model, model.lm_head.weight.detach().numpy(), gemma=False
    )
    if experts:
        keys |= {"expert_count": 4, "expert_used_count": 2}
        keys["expert_feed_forward_length"] = EXPERT_FF
    write_gguf(folder / "text.gguf", "qwen3vlmoe" if experts else "qwen3vl", keys, tensors)
    keys = vision_keys(
        model.config.vision_config, "qwen3vl_merger", 1e-6, **{
            "vision.image_size": 5 * vision["patch_size"], "vision.spatial_merge_size": 2,
            "vision.is_deepstack_layers": [True, False, True],
        },
    )  # fmt: skip
    write_gguf(folder / "mmproj.gguf", "clip", keys, qwen3vl_tensors(model.model.visual))
    return Eyed(model, folder / "text.gguf", folder / "mmproj.gguf")


def qwen35(folder: Path, *, experts: bool = False) -> Eyed:
    """Recurrent layers, and a quarter of a head's dims that turn; a tower without deep stack."""
    kind, text = ("Qwen3_5Moe", _MIXED) if experts else ("Qwen3_5", _QWEN35)
    hidden = _QWEN35["hidden_size"]
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "patch_size": 4,
        "out_hidden_size": hidden, "num_position_embeddings": 25,
    }  # fmt: skip
    rope = {**_QWEN35["rope_parameters"], "mrope_section": [2, 1, 1]}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**text, "vocab_size": RECURRENT_VOCABULARY, "rope_parameters": rope},
        vision_config=vision,
        image_token_id=IMAGE_TOKEN, video_token_id=8, vision_start_token_id=9,
        vision_end_token_id=10, tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).float().eval()
    randomise(model.model.visual)
    randomise_text(model)
    path = convert_text(model, folder)
    keys = vision_keys(
        model.config.vision_config, "qwen3vl_merger", 1e-6, **{
            "vision.image_size": 20, "vision.projection_dim": hidden,
        },
    )  # fmt: skip
    write_gguf(folder / "mmproj.gguf", "clip", keys, qwen3vl_tensors(model.model.visual))
    return Eyed(model, path, folder / "mmproj.gguf")


def convert_text(model: Any, folder: Path) -> Path:
    """The language model's file, as convert writes it."""
    model.save_pretrained(folder)
    write_tokenizer(folder, spm=False)
    (folder / "text").mkdir()
    path = folder / "text/text.gguf"  # away from the tower, for whose tokens its tokenizer has none
    convert(folder, path)
    return path


def qwen3vl_tensors(visual: torch.nn.Module) -> dict[str, Floats]:
    layers = [0, 2]
    fixed = {
        "patch_embed.proj.bias": "v.patch_embd.bias",
        "pos_embed.weight": "v.position_embd.weight",
        **{f"merger.norm.{k}": f"v.post_ln.{k}" for k in ("weight", "bias")},
        **{f"merger.linear_fc1.{k}": f"mm.0.{k}" for k in ("weight", "bias")},
        **{f"merger.linear_fc2.{k}": f"mm.2.{k}" for k in ("weight", "bias")},
    }
    parts = {
        "norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out",
        "mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down",
        "norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2",
    }  # fmt: skip
    found = {}
    for name, values in parameters(visual).items():
        if name == "patch_embed.proj.weight":
            found["v.patch_embd.weight"] = values[:, :, 0]
            found["v.patch_embd.weight.1"] = values[:, :, 1]
        elif name in fixed:
            found[fixed[name]] = values
        else:
            group, number, rest = name.split(".", 2)
            module, _, kind = rest.rpartition(".")
            deep = group == "deepstack_merger_list"
            prefix = f"v.deepstack.{layers[int(number)]}" if deep else f"v.blk.{number}"
            found[f"{prefix}.{parts[module]}.{kind}"] = values
    return found


def gemma3(folder: Path, **sizes: int) -> Eyed:
    """Windows shorter than a picture's 16 rows; every second layer is global."""
    small = {
        "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 48, "patch_size": 6,
    }  # fmt: skip
    vision = transformers.SiglipVisionConfig(**{**small, **sizes}, layer_norm_eps=1e-6)
    options = {
        "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "query_pre_attn_scalar": HEAD_DIM, "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }  # fmt: skip
    text = {**TEXT, "num_hidden_layers": 4}
    config = transformers.Gemma3Config(
        text_config={**text, **options}, vision_config=vision.to_dict(), mm_tokens_per_image=16,
        image_token_id=IMAGE_TOKEN, boi_token_id=9, eoi_token_id=10,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.Gemma3ForConditionalGeneration(config).float().eval()
    randomise(model)
    keys = {
        **text_keys(1e-6, 1e6), "block_count": 4, "attention.sliding_window": 9,
        "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 1e4,
    }  # fmt: skip
    write_gguf(
        folder / "text.gguf", "gemma3", keys,
        text_tensors(model.model.language_model, None, gemma=True),
    )  # fmt: skip
    keys = vision_keys(
        vision, "gemma3", 1e-6, **{
            "vision.image_size": vision.image_size,
            "vision.projector.scale_factor": vision.image_size // vision.patch_size // 4,
        },
    )  # fmt: skip
    projector = parameters(model.model.multi_modal_projector)
    tensors = siglip_tensors(model.model.vision_tower)
    tensors["mm.input_projection.weight"] = projector["mm_input_projection_weight"]
    tensors["mm.soft_emb_norm.weight"] = projector["mm_soft_emb_norm.weight"] + 1
    write_gguf(folder / "mmproj.gguf", "clip", keys, tensors)
    return Eyed(model, folder / "text.gguf", folder / "mmproj.gguf")


def siglip_tensors(tower: torch.nn.Module) -> dict[str, Floats]:
    parts = {
        "layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
    }  # fmt: skip
    found = {}
    for name, values in parameters(tower).items():
        name = name.removeprefix("vision_model.")
        module, _, kind = name.rpartition(".")
        if name.startswith("encoder.layers."):
            _, _, number, rest = module.split(".", 3)
            found[f"v.blk.{number}.{parts[rest]}.{kind}"] = values
        elif name.startswith("embeddings."):
            kept = {"embeddings.patch_embedding": "patch_embd"}
            found[f"v.{kept.get(module, 'position_embd')}.{kind}"] = values
        elif name.startswith("post_layernorm"):
            found[f"v.post_ln.{kind}"] = values
    return found


def qwen2vl(folder: Path, *, windowed: bool = False, window: int = 16) -> Eyed:
    """Qwen2.5-VL's windows are 2 x 2 rows, and its second layer sees the whole picture.

    Args:
        folder: For the files.
        windowed: Qwen2.5-VL.
        window: Side of its windows in pixels.
    """
    kind = "Qwen2_5_VL" if windowed else "Qwen2VL"
    vision = {"depth": 3, "num_heads": 2, "patch_size": 4, "hidden_act": "quick_gelu"}
    if windowed:
        vision |= {
            "hidden_size": 32, "intermediate_size": 40, "out_hidden_size": HIDDEN,
            "window_size": window, "fullatt_block_indexes": [1], "hidden_act": "silu",
        }  # fmt: skip
    else:
        vision |= {"embed_dim": 32, "hidden_size": HIDDEN, "mlp_ratio": 2}
    rope = {"rope_type": "default", "rope_theta": 5e4, "mrope_section": [4, 2, 2]}
    text = {k: v for k, v in TEXT.items() if k != "head_dim"}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**text, "rope_parameters": rope, "rms_norm_eps": 1e-6},
        vision_config=vision, image_token_id=IMAGE_TOKEN, video_token_id=8,
        vision_start_token_id=9, vision_end_token_id=10, tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).float().eval()
    randomise(model)
    keys = {**text_keys(1e-6, 5e4), "rope.dimension_sections": [4, 2, 2, 0]}
    head = model.lm_head.weight.detach().numpy()
    tensors = text_tensors(model.model.language_model, head, gemma=False)
    write_gguf(folder / "text.gguf", "qwen2vl", keys, tensors)
    keys = {
        "has_vision_encoder": True,
        "projector_type": "qwen2.5vl_merger" if windowed else "qwen2vl_merger",
        "vision.embedding_length": 32, "vision.feed_forward_length": 40 if windowed else 64,
        "vision.block_count": 3, "vision.attention.head_count": 2,
        "vision.attention.layer_norm_epsilon": 1e-6, "vision.patch_size": 4,
        "vision.projection_dim": HIDDEN, "vision.image_size": 560,
        "vision.image_mean": MEAN, "vision.image_std": STD,
    }  # fmt: skip
    if windowed:
        keys |= {"use_silu": True, "vision.n_wa_pattern": 2, "vision.window_size": window}
    write_gguf(folder / "mmproj.gguf", "clip", keys, qwen2vl_tensors(model.model.visual))
    return Eyed(model, folder / "text.gguf", folder / "mmproj.gguf")


def qwen2vl_tensors(visual: torch.nn.Module) -> dict[str, Floats]:
    parts = {
        "norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    merger = {"merger.ln_q": "v.post_ln", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2"}
    found = {}
    for name, values in parameters(visual).items():
        module, _, kind = name.rpartition(".")
        if name == "patch_embed.proj.weight":
            found["v.patch_embd.weight"] = values[:, :, 0]
            found["v.patch_embd.weight.1"] = values[:, :, 1]
        elif module in merger:
            found[f"{merger[module]}.{kind}"] = values
        else:
            _, number, rest = module.split(".", 2)
            if rest == "attn.qkv":
                for part, rows in zip("qkv", np.split(values, 3), strict=True):
                    found[f"v.blk.{number}.attn_{part}.{kind}"] = rows
            else:
                found[f"v.blk.{number}.{parts[rest]}.{kind}"] = values
    return found


def idefics3(folder: Path) -> Eyed:
    """Tiles of 6 x 6 patches, of which squares of 3 x 3 are joined."""
    vision = {
        "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 24, "patch_size": 4, "layer_norm_eps": 1e-6,
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 5e4}
    text = {"model_type": "llama", **TEXT, "rope_parameters": rope, "rms_norm_eps": 1e-6}
    config = transformers.Idefics3Config(
        text_config={**text, "pad_token_id": 0}, vision_config=vision, scale_factor=3,
        image_token_id=IMAGE_TOKEN, tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.Idefics3ForConditionalGeneration(config).float().eval()
    randomise(model)
    write_llama(folder / "text.gguf", model.model.text_model, model.lm_head)
    keys = vision_keys(
        model.config.vision_config, "idefics3", 1e-6, **{
            "vision.image_size": 24, "vision.projector.scale_factor": 3,
            "vision.preproc_image_size": 48,
        },
    )  # fmt: skip
    tensors = siglip_tensors(model.model.vision_model)
    tensors["mm.model.fc.weight"] = (
        model.model.connector.modality_projection.proj.weight.detach().numpy()
    )
    write_gguf(folder / "mmproj.gguf", "clip", keys, tensors)
    return Eyed(model, folder / "text.gguf", folder / "mmproj.gguf")


def mistral3(folder: Path) -> Eyed:
    """Squares of 2 x 2 patches are joined."""
    vision = {
        "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 2, "image_size": 64, "patch_size": 4, "hidden_act": "silu",
        "rope_parameters": {"rope_type": "axial", "rope_theta": 1e4},
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 5e4}
    text = {"model_type": "mistral", **TEXT, "rope_parameters": rope, "rms_norm_eps": 1e-6}
    config = transformers.Mistral3Config(
        text_config={**text, "sliding_window": None}, vision_config=vision,
        spatial_merge_size=2, image_token_index=IMAGE_TOKEN, tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.Mistral3ForConditionalGeneration(config).float().eval()
    randomise(model)
    write_llama(folder / "text.gguf", model.model.language_model, model.lm_head)
    keys = vision_keys(
        model.config.vision_config, "pixtral", 1e-5, **{
            "vision.image_size": 64, "vision.spatial_merge_size": 2, "use_silu": True,
        },
    )  # fmt: skip
    del keys["use_gelu"]
    tensors = pixtral_tensors(model.model.vision_tower, model.model.multi_modal_projector)
    write_gguf(folder / "mmproj.gguf", "clip", keys, tensors)
    return Eyed(model, folder / "text.gguf", folder / "mmproj.gguf")


def pixtral_tensors(tower: torch.nn.Module, projector: torch.nn.Module) -> dict[str, Floats]:
    parts = {
        "attention_norm": "ln1", "ffn_norm": "ln2", "attention.q_proj": "attn_q",
        "attention.k_proj": "attn_k", "attention.v_proj": "attn_v",
        "attention.o_proj": "attn_out", "feed_forward.gate_proj": "ffn_gate",
        "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down",
    }  # fmt: skip
    found = {"v.token_embd.img_break": np.zeros(HIDDEN, np.float32)}
    for name, values in parameters(tower).items():
        if name == "patch_conv.weight":
            found["v.patch_embd.weight"] = values
        elif name == "ln_pre.weight":
            found["v.pre_ln.weight"] = values
        else:
            _, _, number, rest = name.removesuffix(".weight").split(".", 3)
            own = paired(values, 2) if rest.endswith(("q_proj", "k_proj")) else values
            found[f"v.blk.{number}.{parts[rest]}.weight"] = own
    names = {
        "norm": "mm.input_norm", "patch_merger.merging_layer": "mm.patch_merger",
        "linear_1": "mm.1", "linear_2": "mm.2",
    }  # fmt: skip
    for name, values in parameters(projector).items():
        module, _, kind = name.rpartition(".")
        found[f"{names[module]}.{kind}"] = values
    return found


def internvl(folder: Path, *, large: bool = False) -> Eyed:
    """Tiles of 6 x 6 patches and a class, of which squares of 2 x 2 are joined.

    Args:
        folder: For the files.
        large: As the tower of 6 billion parameters: RMSNorms, also of queries and keys.
    """
    vision = {
        "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 4,
        "num_attention_heads": 2, "image_size": [24, 24], "patch_size": [4, 4],
        "layer_norm_eps": 1e-6, "attention_bias": True, "hidden_act": "gelu",
        "use_mean_pooling": True,
        **({"use_qk_norm": True, "norm_type": "rms_norm", "attention_bias": False} if large else {}),
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 5e4}
    text = {"model_type": "llama", **TEXT, "rope_parameters": rope, "rms_norm_eps": 1e-6}
    config = transformers.InternVLConfig(
        text_config={**text, "pad_token_id": 0}, vision_config=vision,
        image_token_id=IMAGE_TOKEN, tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.InternVLForConditionalGeneration(config).float().eval()
    randomise(model)
    write_llama(folder / "text.gguf", model.model.language_model, model.lm_head)
    keys = vision_keys(
        model.config.vision_config, "internvl", 1e-6, **{
            "vision.image_size": 24, "vision.patch_size": 4, "vision.projector.scale_factor": 2,
            "vision.preproc_min_tiles": 1, "vision.preproc_max_tiles": 6,
        },
    )  # fmt: skip
    tensors = internvl_tensors(model.model.vision_tower, model.model.multi_modal_projector)
    write_gguf(folder / "mmproj.gguf", "clip", keys, tensors)
    return Eyed(model, folder / "text.gguf", folder / "mmproj.gguf")


def internvl_tensors(tower: torch.nn.Module, projector: torch.nn.Module) -> dict[str, Floats]:
    parts = {
        "layernorm_before": "ln1", "layernorm_after": "ln2", "attention.q_proj": "attn_q",
        "attention.k_proj": "attn_k", "attention.v_proj": "attn_v",
        "attention.q_norm": "attn_q_norm", "attention.k_norm": "attn_k_norm",
        "attention.projection_layer": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
    }  # fmt: skip
    fixed = {
        "embeddings.cls_token": "v.class_embd",
        "embeddings.position_embeddings": "v.position_embd.weight",
        "embeddings.patch_embeddings.projection.weight": "v.patch_embd.weight",
        "embeddings.patch_embeddings.projection.bias": "v.patch_embd.bias",
    }
    found = {}
    for name, values in parameters(tower).items():
        if name in fixed:
            found[fixed[name]] = values
            continue
        _, _, number, rest = name.split(".", 3)
        module, _, kind = rest.rpartition(".")
        scale = {"lambda_1": "ls1.weight", "lambda_2": "ls2.weight"}.get(rest)
        found[f"v.blk.{number}.{scale or f'{parts[module]}.{kind}'}"] = values
    names = {"layer_norm": 0, "linear_1": 1, "linear_2": 3}
    for name, values in parameters(projector).items():
        module, _, kind = name.rpartition(".")
        found[f"mm.model.mlp.{names[module]}.{kind}"] = values
    return found


def glm4v(folder: Path, *, kind: str = "Glm4v") -> Eyed:
    """Places for a grid of 5 x 5 patches; half of each head's dims turn."""
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 72, "num_heads": 2, "patch_size": 4,
        "image_size": 20, "out_hidden_size": HIDDEN, "attention_bias": kind == "Glm4vMoe",
    }  # fmt: skip
    rope = {
        "rope_type": "default", "rope_theta": 5e4, "mrope_section": [2, 1, 1],
        "partial_rotary_factor": 0.5,
    }  # fmt: skip
    text = {**TEXT, "rope_parameters": rope, "rms_norm_eps": 1e-6, "pad_token_id": 0}
    if kind == "Glm4vMoe":
        text |= {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": EXPERT_FF,
        }
    else:
        del text["head_dim"]
    if kind == "Glm46V":
        text["model_type"] = "glm4v_text"
        vision["model_type"] = "glm4v_vision"
    config = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config=vision, image_token_id=IMAGE_TOKEN, video_token_id=8,
        tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).float().eval()
    randomise(model)
    path = convert_text(model, folder)
    keys = vision_keys(
        model.config.vision_config, "glm4v", 1e-5, **{"vision.image_size": 20, "use_silu": True}
    )
    del keys["use_gelu"]
    write_gguf(folder / "mmproj.gguf", "clip", keys, glm4v_tensors(model.model.visual))
    return Eyed(model, path, folder / "mmproj.gguf")


def glm4v_tensors(visual: torch.nn.Module) -> dict[str, Floats]:
    fixed = {
        "patch_embed.proj.bias": "v.patch_embd.bias",
        "embeddings.position_embedding.weight": "v.position_embd.weight",
        "post_conv_layernorm.weight": "v.norm_embd.weight",
        "post_layernorm.weight": "v.post_ln.weight",
        **{f"downsample.{k}": f"mm.patch_merger.{k}" for k in ("weight", "bias")},
        "merger.proj.weight": "mm.model.fc.weight",
        **{f"merger.post_projection_norm.{k}": f"mm.post_norm.{k}" for k in ("weight", "bias")},
        **{f"merger.{n}_proj.weight": f"mm.{n}.weight" for n in ("gate", "up", "down")},
    }
    parts = {
        "norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    found = {}
    for name, values in parameters(visual).items():
        if name == "patch_embed.proj.weight":
            found["v.patch_embd.weight"] = values[:, :, 0]
            found["v.patch_embd.weight.1"] = values[:, :, 1]
        elif name in fixed:
            found[fixed[name]] = values
        else:
            _, number, rest = name.split(".", 2)
            module, _, kind = rest.rpartition(".")
            found[f"v.blk.{number}.{parts[module]}.{kind}"] = values
    return found


def llama4(folder: Path) -> Eyed:
    """Tiles of 6 x 6 patches and a class, of which squares of 2 x 2 are joined; chunks of 24 tokens."""
    vision = {
        "hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 2, "image_size": 24, "patch_size": 4, "hidden_act": "gelu",
        "projector_input_dim": 48, "projector_output_dim": 48, "vision_output_dim": 48,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip
    text = {
        **TEXT, **_LLAMA4, "hidden_size": HIDDEN, "interleave_moe_layer_step": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e4}, "rms_norm_eps": 1e-6,
    }  # fmt: skip
    config = transformers.Llama4Config(
        text_config={**text, "pad_token_id": 0}, vision_config=vision,
        image_token_index=IMAGE_TOKEN, tie_word_embeddings=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.Llama4ForConditionalGeneration(config).float().eval()
    randomise(model)
    path = convert_text(model, folder)
    keys = vision_keys(
        model.config.vision_config, "llama4", 1e-5, **{
            "vision.image_size": 24, "vision.projector.scale_factor": 2,
            "vision.preproc_max_tiles": 6,
        },
    )  # fmt: skip
    tensors = llama4_tensors(model.vision_model)
    tensors["mm.model.fc.weight"] = model.multi_modal_projector.linear_1.weight.detach().numpy()
    write_gguf(folder / "mmproj.gguf", "clip", keys, tensors)
    return Eyed(model, path, folder / "mmproj.gguf")


def llama4_tensors(tower: torch.nn.Module) -> dict[str, Floats]:
    parts = {
        "input_layernorm": "ln1", "post_attention_layernorm": "ln2", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
    }  # fmt: skip
    fixed = {
        "class_embedding": "v.class_embd",
        "positional_embedding_vlm": "v.position_embd.weight",
        "patch_embedding.linear.weight": "v.patch_embd.weight",
        "vision_adapter.mlp.fc1.weight": "mm.model.mlp.1.weight",
        "vision_adapter.mlp.fc2.weight": "mm.model.mlp.2.weight",
        **{
            f"layernorm_{n}.{k}": f"v.{n}_ln.{k}"
            for n in ("pre", "post")
            for k in ("weight", "bias")
        },
    }
    found = {}
    for name, values in parameters(tower).items():
        if name in fixed:
            found[fixed[name]] = values
        else:
            _, _, number, rest = name.split(".", 3)
            module, _, kind = rest.rpartition(".")
            found[f"v.blk.{number}.{parts[module]}.{kind}"] = values
    return found


def llava(folder: Path, *, tiled: bool = False) -> Eyed:
    """The result of the last layer but one; 1.6 with tiles in three shapes."""
    vision = {
        "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 40,
        "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 24, "patch_size": 4,
        "layer_norm_eps": 1e-6, "projection_dim": 16,
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 5e4}
    text = {"model_type": "llama", **TEXT, "rope_parameters": rope, "rms_norm_eps": 1e-6}
    more = {"image_grid_pinpoints": LLAVA_SIZES} if tiled else {}
    kind = "LlavaNext" if tiled else "Llava"
    config = getattr(transformers, f"{kind}Config")(
        text_config={**text, "pad_token_id": 0}, vision_config=vision, vision_feature_layer=-2,
        image_token_index=IMAGE_TOKEN, tie_word_embeddings=False, **more,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).float().eval()
    randomise(model)
    write_llama(folder / "text.gguf", model.model.language_model, model.lm_head)
    keys = vision_keys(
        model.config.vision_config, "mlp", 1e-6, **{
            "vision.image_size": 24, "vision.block_count": 2, "vision.projection_dim": 16,
            "use_gelu": False, "has_text_encoder": False, "has_llava_projector": True,
            "vision.feature_layer": [2],
        },
    )  # fmt: skip
    tensors = llava_tensors(model.model.vision_tower, model.model.multi_modal_projector)
    if tiled:
        keys["vision.mm_patch_merge_type"] = "spatial_unpad"
        keys["vision.image_grid_pinpoints"] = [n for h, w in LLAVA_SIZES for n in (w, h)]
        tensors["v.image_newline"] = model.model.image_newline.detach().numpy()
    write_gguf(folder / "mmproj.gguf", "clip", keys, tensors)
    return Eyed(model, folder / "text.gguf", folder / "mmproj.gguf")


LLAVA_SIZES = [(24, 48), (48, 24), (72, 24)]


def llava_tensors(tower: torch.nn.Module, projector: torch.nn.Module) -> dict[str, Floats]:
    """With the names of an MLP's matrices as llama.cpp's converter for LLaVA has them: swapped."""
    parts = {
        "layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up",
    }  # fmt: skip
    fixed = {
        "embeddings.class_embedding": "v.class_embd",
        "embeddings.patch_embedding.weight": "v.patch_embd.weight",
        "embeddings.position_embedding.weight": "v.position_embd.weight",
        "pre_layrnorm.weight": "v.pre_ln.weight",
        "pre_layrnorm.bias": "v.pre_ln.bias",
    }
    found = {}
    for name, values in parameters(tower).items():
        name = name.removeprefix("vision_model.")
        if name in fixed:
            found[fixed[name]] = values
        elif name.startswith(("encoder.layers.0.", "encoder.layers.1.")):
            _, _, number, rest = name.split(".", 3)
            module, _, kind = rest.rpartition(".")
            found[f"v.blk.{number}.{parts[module]}.{kind}"] = values
    for name, values in parameters(projector).items():
        found[name.replace("linear_1", "mm.0").replace("linear_2", "mm.2")] = values
    return found


def write_llama(path: Path, text: torch.nn.Module, head: torch.nn.Linear) -> None:
    """A language model of Llama's kind."""
    tensors = text_tensors(text, head.weight.detach().numpy(), gemma=False)
    for name, values in tensors.items():
        heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}
        for ending, count in heads.items():
            if name.endswith(ending):
                tensors[name] = paired(values, count)
    keys = {**text_keys(1e-6, 5e4), "rope.dimension_count": HEAD_DIM, "vocab_size": VOCABULARY}
    write_gguf(path, "llama", keys, tensors)


def paired(values: Floats, heads: int) -> Floats:
    """Rows from the order of halves (transformers) to that of interleaved pairs (Llama's files)."""
    rows = len(values) // heads
    halves = values.reshape(heads, 2, rows // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


MODELS: dict[str, Callable[[Path], Eyed]] = {
    "gemma3": gemma3,
    "glm4v": glm4v,
    "glm4v moe": partial(glm4v, kind="Glm4vMoe"),
    "idefics3": idefics3,
    "llama4": llama4,
    "llava": llava,
    "llava 1.6": partial(llava, tiled=True),
    "internvl": internvl,
    "internvl 6B": partial(internvl, large=True),
    "mistral3": mistral3,
    "qwen2vl": qwen2vl,
    "qwen2.5vl": partial(qwen2vl, windowed=True),
    "qwen3vl": qwen3vl,
    "qwen3vlmoe": partial(qwen3vl, experts=True),
    "qwen35": qwen35,
    "qwen35moe": partial(qwen35, experts=True),
}
