"""Folders of compressed-tensors, written and read by that package: ours are the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compressed_folders import change_config, group, small, write, write_floats
from hf_folders import logits

import oxibonsai
from oxibonsai import FormatError, UnsupportedError, _core
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.language_model import convert

torch = pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
pytest.importorskip("compressed_tensors", reason="needs compressed-tensors")

pytestmark = pytest.mark.hf

TOKENS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
FLOATS = {**TOKENS, "type": "float"}
# Each config group with the type that its matrices have in a GGUF file.
GROUPS: dict[str, tuple[Any, str]] = {
    "4 bits in groups of 32": (group(4, 32), "Q4_0"),
    "4 bits in groups of 128": (group(4, 128), "Q4_0"),
    "4 bits by row": (group(4), "Q4_0"),
    "4 bits for all": (group(4, strategy="tensor"), "Q4_0"),
    "4 bits with zero points": (group(4, 64, symmetric=False), "Q4_1"),
    "4 bits with zero points by row": (group(4, symmetric=False), "Q4_1"),
    "4 bits with a zero point for all": (group(4, strategy="tensor", symmetric=False), "Q4_1"),
    "4 bits, a code a byte": (group(4, 32, format="naive-quantized"), "Q4_0"),
    "4 bits in groups of 16": (group(4, 16), "BF16"),
    "1 bit": (group(1, 32), "Q4_0"),
    "2 bits": (group(2, 64), "Q4_0"),
    "3 bits with zero points": (group(3, 32, symmetric=False), "Q4_1"),
    "5 bits": (group(5, 32), "Q8_0"),
    "7 bits with zero points": (group(7, 32, symmetric=False), "BF16"),
    "8 bits in groups of 128": (group(8, 128, format="pack-quantized"), "Q8_0"),
    "8 bits and activations": (group(8, input_activations=TOKENS), "Q8_0"),
    "8 bits with zero points": (group(8, symmetric=False, input_activations=TOKENS), "BF16"),
    "8 bits in blocks": (
        group(8, strategy="block", block_structure=[24, 32], input_activations=TOKENS), "Q8_0",
    ),
    "floats by row": (group(8, type="float", input_activations=FLOATS), "BF16"),
    "floats for all": (group(8, type="float", strategy="tensor", input_activations=FLOATS), "BF16"),
    "floats in blocks": (
        group(8, type="float", strategy="block", block_structure=[48, 80], input_activations=FLOATS),
        "BF16",
    ),
    "floats, activations as they are": (group(8, type="float"), "BF16"),
}  # fmt: skip


MATRICES = ("token_embd.weight", "output.weight")  # that are not packed


def tensors_of(path: Path) -> dict[str, tuple[str, Any]]:
    """Types and values of a GGUF file's tensors."""
    file = _core.GgufFile(str(path))
    return {
        t.name: (t.quant_type, _core.decode(t.quant_type, file.tensor_bytes(t.name)))
        for t in file.tensors
    }


@pytest.mark.parametrize(
    ("name", "architecture"),
    [(name, "llama") for name in GROUPS]
    + [
        (n, "qwen3")
        for n in ("4 bits in groups of 32", "8 bits and activations", "floats in blocks")
    ],
)
def test_weights_are_those_of_the_package(name: str, architecture: str, tmp_path: Path) -> None:
    case, (settings, kind) = small(architecture), GROUPS[name]
    written = write(case, tmp_path / "packed", {"group_0": settings})
    found = ModelFolder(tmp_path / "packed").parameters
    assert found.keys() == written.values.keys()
    for key, held in found.items():
        assert np.array_equal(held.values(), written.values[key].numpy()), key
    # In a file of floats they are the package's, too; in blocks they are codes times scales.
    write_floats(
        case, tmp_path / "floats", written.exact if kind.startswith("Q") else written.values
    )
    convert(tmp_path / "floats", tmp_path / "floats.gguf", dtype="f32")
    convert(tmp_path / "packed", tmp_path / "packed.gguf")
    wanted = tensors_of(tmp_path / "floats.gguf")
    packed = tensors_of(tmp_path / "packed.gguf")
    assert packed.keys() == wanted.keys()
    for key, (own, values) in packed.items():
        matrix = key.startswith("blk.") and "norm" not in key
        assert own == (kind if matrix else "BF16" if key in MATRICES else "F32"), key
        if own != "Q4_1":
            assert np.array_equal(values, wanted[key][1]), key
            continue
        error = np.abs(values - wanted[key][1])  # minima are rounded to float16
        assert error.max() <= 2**-11 * np.abs(wanted[key][1]).max() * 2, key


@pytest.mark.parametrize(("dtype", "kind"), [("float16", "F16"), ("float32", "F32")])
def test_the_type_of_scales_is_that_of_weights(dtype: str, kind: str, tmp_path: Path) -> None:
    written = write(
        small("llama"), tmp_path / "m", {"g": group(7, 32, symmetric=False)}, dtype=dtype
    )
    for key, held in ModelFolder(tmp_path / "m").parameters.items():
        assert np.array_equal(held.values(), written.values[key].numpy()), key
    convert(tmp_path / "m", tmp_path / "m.gguf")
    assert tensors_of(tmp_path / "m.gguf")["blk.0.ffn_up.weight"][0] == kind


def test_config_groups_have_targets_of_each_kind(tmp_path: Path) -> None:
    groups = {
        "all": group(4, 32),
        "pattern": group(8, 32, targets=[r"re:.*mlp\.(up|down)_proj$"], format="pack-quantized"),
        "name": group(8, targets=["model.layers.0.mlp.up_proj"], format="naive-quantized"),
        "tables": group(4, 128, targets=["Embedding"], symmetric=False),
    }
    ignore = ["re:.*self_attn.[kv]_proj", "lm_head"]
    written = write(small("qwen3"), tmp_path / "m", groups, ignore=ignore)
    found = ModelFolder(tmp_path / "m").parameters
    for key, held in found.items():
        assert np.array_equal(held.values(), written.values[key].numpy()), key
    layer = "model.layers.0"
    assert {n: found[f"{n}.weight"].exact_type for n in (
        "model.embed_tokens", "lm_head", f"{layer}.self_attn.q_proj", f"{layer}.self_attn.k_proj",
        f"{layer}.mlp.up_proj", f"{layer}.mlp.gate_proj",
    )} == {
        "model.embed_tokens": "q4_1", "lm_head": "bf16", f"{layer}.self_attn.q_proj": "q4_0",
        f"{layer}.self_attn.k_proj": "bf16", f"{layer}.mlp.up_proj": "q8_0",
        f"{layer}.mlp.gate_proj": "q4_0",
    }  # fmt: skip


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_logits_are_those_of_the_decompressed_model(architecture: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    case, ids = small(architecture), np.random.default_rng(2).integers(4, 256, 60).tolist()
    written = write(case, tmp_path / "packed", {"g": group(8, 32, symmetric=False)})
    write_floats(case, tmp_path / "floats", written.values)
    truth = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "floats"), ids)
    convert(tmp_path / "packed", tmp_path / "m.gguf", dtype="f32")
    found = oxibonsai.load(tmp_path / "m.gguf").logits(ids)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()
    with pytest.warns(UserWarning, match="7 matrices of compressed-tensors are stored decoded"):
        opened = oxibonsai.load(tmp_path / "packed").logits(ids)
    convert(tmp_path / "packed", tmp_path / "auto.gguf")
    assert np.array_equal(opened, oxibonsai.load(tmp_path / "auto.gguf").logits(ids))


def test_columns_are_in_groups_of_any_order(tmp_path: Path) -> None:
    """The package no longer writes weight_g_idx: here the columns of what it has written are moved."""
    from compressed_tensors.compressors.pack_quantized.helpers import (
        pack_to_int32,
        unpack_from_int32,
    )
    from safetensors.torch import load_file, save_file

    written = write(small("llama"), tmp_path / "m", {"g": group(4, 32)})
    file, name = tmp_path / "m" / "model.safetensors", "model.layers.0.mlp.down_proj"
    tensors = load_file(file)
    order = torch.from_numpy(np.random.default_rng(5).permutation(256))
    codes = unpack_from_int32(tensors[f"{name}.weight_packed"], 4, torch.Size([128, 256]))
    tensors[f"{name}.weight_packed"] = pack_to_int32(codes[:, order].contiguous(), 4)
    tensors[f"{name}.weight_g_idx"] = (order // 32).int()
    other = "model.layers.0.mlp.up_proj"
    tensors[f"{other}.weight_g_idx"] = (torch.arange(128) // 32).int()
    save_file(tensors, file)
    found = ModelFolder(tmp_path / "m").parameters
    wanted = written.values[f"{name}.weight"][:, order].numpy()
    assert np.array_equal(found[f"{name}.weight"].values(), wanted)
    assert found[f"{name}.weight"].exact_type == "bf16"
    assert found[f"{other}.weight"].exact_type == "q4_0"
    notes = convert(tmp_path / "m", tmp_path / "m.gguf")
    assert [n for n in notes if f"{name}.weight" in n and "BF16" in n]
    assert not [n for n in convert(tmp_path / "m", tmp_path / "m.gguf", dtype="q4_0") if name in n]


KEY = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"format": "marlin-24"}, UnsupportedError, "'marlin-24'; convert knows pack-quantized"),
        ({"format": "nvfp4-pack-quantized"}, UnsupportedError, "'nvfp4-pack-quantized'"),
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, UnsupportedError, "'sparse-24-bit"),
        ({"transform_config": {"config_groups": {"u": {}}}}, UnsupportedError, "rotates"),
        ({"moe_sparsity_config": {"method": "prune"}}, UnsupportedError, "leaves experts out"),
        ({"config_groups": {"W4A16": ["Linear"]}}, UnsupportedError, "no presets"),
        ({"config_groups": {}}, FormatError, "no config_groups"),
        ({"config_groups": {"g": group(4, 32, targets=["LlamaMLP"])}}, FormatError, "(LlamaMLP)"),
        ({"ignore": ["re:.*up_proj"]}, FormatError, f"{KEY} is packed, but among those to ignore"),
        ({"ignore": ["re:("]}, FormatError, "no regular expression"),
        ({"ignore": ["re:(.*a)*b"]}, UnsupportedError, "repeats a group"),
        ({"config_groups": {"g": group(5, 32)}}, FormatError, "do not fit together"),
        ({"config_groups": {"g": group(9, 32)}}, UnsupportedError, "num_bits 9"),
        ({"config_groups": {"g": group(4, 64)}}, FormatError, "weight_scale BF16"),
        ({"config_groups": {"g": group(4, 48)}}, FormatError, "groups of 48 do not divide"),
        ({"config_groups": {"g": group(4, 32, symmetric=False)}}, FormatError, "no weight_zero_po"),
        ({"config_groups": {"g": group(4, 32, actorder="group")}}, FormatError, "no weight_g_idx"),
        ({"config_groups": {"g": group(8, type="float")}}, UnsupportedError, "not packed"),
    ],
)
def test_other_configurations_are_refused(
    changes: dict[str, Any], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    import re

    write(small("llama"), tmp_path / "m", {"g": group(4, 32)})
    change_config(tmp_path / "m", **changes)
    with pytest.raises(error, match=re.escape(sentence)):
        convert(tmp_path / "m", tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("part", "values", "sentence"),
    [
        ("weight_scale", None, "no weight_scale"),
        ("weight_scale", np.full((256, 1), np.inf, np.float16), "not finite"),
        ("weight_scale", np.ones((128, 1), np.float16), "weight_scale F16 (128, 1)"),
        ("weight_zero_point", None, "no weight_zero_point"),
        (
            "weight_zero_point",
            np.full((256, 1), 8, np.int8),
            "zero points that are no integers of 4",
        ),
        ("weight_zero_point", np.zeros((256, 2), np.int8), "weight_zero_point I8 (256, 2)"),
        ("weight", np.full((256, 128), -9, np.int8), "codes that are no integers of 4 bits"),
        ("weight", np.zeros((256, 128), np.float32), "stored as F32"),
        ("weight", np.zeros((2, 256, 128), np.int8), "is no matrix"),
        ("weight_packed", np.zeros((256, 16), np.int32), "both weight and weight_packed"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    part: str, values: Any, sentence: str, tmp_path: Path
) -> None:
    import re

    from safetensors.torch import load_file, save_file

    settings = group(4, symmetric=False, format="naive-quantized")
    write(small("llama"), tmp_path / "m", {"g": settings})
    file = tmp_path / "m" / "model.safetensors"
    tensors = load_file(file)
    tensors.pop(f"{KEY}.{part}", None)
    if values is not None:
        tensors[f"{KEY}.{part}"] = torch.from_numpy(values)
    save_file(tensors, file)
    with pytest.raises((FormatError, UnsupportedError), match=re.escape(sentence)):
        convert(tmp_path / "m", tmp_path / "m.gguf")
