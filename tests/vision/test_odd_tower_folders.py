"""Configurations of towers: what published ones leave unsaid, and nonsense, which is one typed error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from oxibonsai import FormatError, UnsupportedError
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.vision_tower import TOWERS, convert_tower

PREPARED: dict[str, Any] = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 24, "patch_size": 4,
}  # fmt: skip
VISION: dict[str, dict[str, Any]] = {
    "glm4v": {
        **SIZES, "depth": 2, "num_heads": 2, "out_hidden_size": 16, "hidden_act": "silu",
        "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0},
    },
    "internvl": {**SIZES, "hidden_act": "gelu"},
    "llama4": {**SIZES, "intermediate_size": 128, "projector_output_dim": 8, "rope_theta": 10000},
    "llava": {**SIZES, "model_type": "clip_vision_model"},
    "mistral3": {**SIZES, "model_type": "pixtral"},
    "smolvlm": SIZES,
    "qwen2_5_vl": {
        **SIZES, "depth": 2, "num_heads": 2, "spatial_merge_size": 2, "hidden_act": "silu",
        "window_size": 112, "fullatt_block_indexes": [1],
    },
}  # fmt: skip


def write(folder: Path, kind: str, vision: dict[str, Any], **outer: Any) -> None:
    """A folder without weights."""
    config = {
        "model_type": kind, "text_config": {"hidden_size": 16}, "spatial_merge_size": 2,
        "vision_config": {**VISION[kind], **vision}, **outer,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARED))


def test_the_text_part_of_llava_may_leave_its_width_to_transformers(tmp_path: Path) -> None:
    """As those of llava-1.5-7b-hf and llava-v1.6-mistral-7b-hf do."""
    for kind in ("llama", "mistral"):
        write(tmp_path, "llava", {}, text_config={"model_type": kind, "vocab_size": 32064})
        keys = TOWERS["llava"].metadata(ModelFolder(tmp_path))
        assert keys["clip.vision.projection_dim"] == (4096, "u32")


@pytest.mark.parametrize(
    ("kind", "vision", "outer", "error", "message"),
    [
        ("qwen2_5_vl", {"fullatt_block_indexes": [-1]}, {}, FormatError, "no numbers of layers"),
        ("qwen2_5_vl", {"fullatt_block_indexes": [0]}, {}, UnsupportedError, "every so many"),
        ("internvl", {}, {"downsample_ratio": 5e-324}, FormatError, "no 1 / n"),
        ("internvl", {}, {"downsample_ratio": 0.4}, FormatError, "no 1 / n"),
        (
            "glm4v",
            {"rope_parameters": {"rope_theta": 5e3}},
            {},
            UnsupportedError,
            "rope_theta of the",
        ),
        ("glm4v", {"out_hidden_size": 32}, {}, FormatError, "the language model reads 16"),
        (
            "llama4",
            {"rope_theta": 5e3},
            {},
            UnsupportedError,
            "rope_theta of the vision tower is 5000",
        ),
        ("llama4", {"pixel_shuffle_ratio": 0.4}, {}, FormatError, "no 1 / n"),
        ("llama4", {"intermediate_size": 64}, {}, FormatError, "2 x 2 patches of 32 columns"),
        ("llama4", {"norm_eps": 1e-6}, {}, UnsupportedError, "norm_eps is 1e-06"),
        ("llava", {}, {"vision_feature_layer": -4}, UnsupportedError, "one layer"),
        ("llava", {}, {"text_config": {"hidden_size": 0}}, FormatError, "hidden_size is 0"),
    ],
)
def test_nonsense_is_named(
    tmp_path: Path,
    kind: str,
    vision: dict[str, Any],
    outer: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    write(tmp_path, kind, vision, **outer)
    with pytest.raises(error, match=message):
        convert_tower(tmp_path, tmp_path / "mmproj.gguf")


@pytest.mark.parametrize("mean", [None, "0.5", [0.5], [0.5, 0.5, True], [0.5, 0.5, 10**400]])
def test_means_are_three_numbers_of_float32(tmp_path: Path, mean: Any) -> None:
    write(tmp_path, "llava", {})
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**PREPARED, "image_mean": mean}))
    with pytest.raises(FormatError, match=r"image_mean is .*no three numbers"):
        convert_tower(tmp_path, tmp_path / "mmproj.gguf")


@pytest.mark.parametrize(
    ("prepared", "bounds"),
    [
        ({}, {}),
        ({"min_pixels": 3136, "max_pixels": 12845056}, {}),  # of Qwen2.5-VL's own folders
        ({"max_pixels": 1003520}, {"max": 1003520}),
        ({"size": {"shortest_edge": 6272, "longest_edge": 12845056}}, {"min": 6272}),
    ],
)
def test_bounds_on_pixels_are_kept(
    tmp_path: Path, prepared: dict[str, Any], bounds: dict[str, int]
) -> None:
    write(tmp_path, "qwen2_5_vl", {})
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**PREPARED, **prepared}))
    keys = TOWERS["qwen2_5_vl"].metadata(ModelFolder(tmp_path))
    found = {k: keys.get(f"clip.vision.image_{k}_pixels") for k in ("min", "max")}
    assert {k: v[0] for k, v in found.items() if v is not None} == bounds


@pytest.mark.parametrize(
    ("size", "bounds"),
    [
        ({"shortest_edge": 12544, "longest_edge": 11760000}, {}),
        (
            {"shortest_edge": 12544, "longest_edge": 9633792},
            {"max": 4816896},
        ),  # of GLM-4.1V's folder
        ({"shortest_edge": 12545}, {"min": 6273}),
    ],
)
def test_glms_bounds_on_pixels_are_those_of_a_frame(
    tmp_path: Path, size: dict[str, int], bounds: dict[str, int]
) -> None:
    """Its processor counts two."""
    write(tmp_path, "glm4v", {})
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**PREPARED, "size": size}))
    keys = TOWERS["glm4v"].metadata(ModelFolder(tmp_path))
    found = {k: keys.get(f"clip.vision.image_{k}_pixels") for k in ("min", "max")}
    assert {k: v[0] for k, v in found.items() if v is not None} == bounds


def test_llama4s_largest_canvas_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "llama4", {})
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**PREPARED, "resize_to_max_canvas": True}))
    with pytest.raises(UnsupportedError, match="resize_to_max_canvas"):
        convert_tower(tmp_path, tmp_path / "mmproj.gguf")


@pytest.mark.parametrize("edge", [-1, 2**40, "large"])
def test_the_longest_edge_is_a_count(tmp_path: Path, edge: Any) -> None:
    write(tmp_path, "smolvlm", {})
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**PREPARED, "size": {"longest_edge": edge}}))
    with pytest.raises(FormatError, match="longest_edge of the processor is"):
        convert_tower(tmp_path, tmp_path / "mmproj.gguf")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (None, "has no token"),
        (7, "has no token"),
        ([{"content": "[IMG_BREAK]", "id": -1}], "has no token"),
        ([{"content": "[IMG_BREAK]", "id": 9}], "has no row 9"),
    ],
)
def test_pixtral_needs_the_token_between_lines(tmp_path: Path, tokens: Any, message: str) -> None:
    write(tmp_path, "mistral3", {})
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))
    table = {"language_model.model.embed_tokens.weight": np.zeros((9, 16), np.float32)}
    save_file(table, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=message):
        convert_tower(tmp_path, tmp_path / "mmproj.gguf")
