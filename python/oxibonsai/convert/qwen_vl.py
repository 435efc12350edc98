"""Language models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: positions of three axes, rows behind layers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.gated_delta import section_keys
from oxibonsai.convert.multimodal import with_vision
from oxibonsai.convert.qwen3moe import QWEN3MOE
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.stacked_experts import either_way_pieces
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_SECTIONS = ("mrope_section", "mrope_interleaved")


def _metadata(folder: ModelFolder, architecture: str) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("use_sliding_window", False)
    rope: Any = folder.config.get("rope_parameters") or folder.config.get("rope_scaling")
    if not isinstance(rope, dict) or rope.get("mrope_section") is None:
        raise FormatError(f"{folder.path / 'config.json'} has no mrope_section")
    kind, numbers = read_rope(folder, ("default", "mrope"), rope, also=_SECTIONS)
    return {
        **decoder.dimension_keys(folder, architecture),
        **rope_keys(architecture, kind, numbers),
        **section_keys(folder, architecture),
        **tokenizer_keys(folder),
    }


def _metadata_3(folder: ModelFolder, architecture: str) -> Metadata:
    folder.require("attention_bias", False)
    deep = folder.part("vision_config").config.get("deepstack_visual_indexes", [])
    if not isinstance(deep, list):
        raise FormatError(
            f"{folder.path / 'config.json'}: deepstack_visual_indexes is {deep!r}, no list of layers"
        )
    found = _metadata(folder, architecture)
    found[f"{architecture}.n_deepstack_layers"] = (len(deep), "u32")
    return found


def _metadata_moe(folder: ModelFolder) -> Metadata:
    folder.require("norm_topk_prob", True)
    folder.require("decoder_sparse_step", 1)
    folder.require("mlp_only_layers", [], None)
    return _metadata_3(folder, "qwen3vlmoe") | experts.expert_keys(folder, "qwen3vlmoe")


_BIASED = ("attn_q", "attn_k", "attn_v")
_LAYER_3 = {**decoder.LAYER, **decoder.HEAD_NORMS}
QWEN2VL = with_vision(
    Recipe(
        "qwen2vl",
        partial(_metadata, architecture="qwen2vl"),
        decoder.namer("Qwen2", decoder.LAYER, _BIASED),
        decoder.is_matrix,
        shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values(), _BIASED),
    )
)
QWEN3VL = with_vision(
    Recipe(
        "qwen3vl",
        partial(_metadata_3, architecture="qwen3vl"),
        decoder.namer("Qwen3", _LAYER_3),
        decoder.is_matrix,
        shapes=lambda folder: decoder.shapes(folder, _LAYER_3.values()),
    )
)
QWEN3VLMOE = with_vision(
    replace(QWEN3MOE, architecture="qwen3vlmoe", metadata=_metadata_moe, pieces=either_way_pieces)
)
