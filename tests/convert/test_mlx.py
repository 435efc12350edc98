"""MLX's affine packs: exact where the biases allow, else refused with the group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hf_folders import CASES, save

import oxibonsai
from oxibonsai import FormatError, OxiBonsaiError, UnsupportedError, _core
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.families import CONVERTERS
from oxibonsai.convert.language_model import convert

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 60).tolist()
BY_NAME = {c.name: c for c in CASES}
GROUP = 64
KEY = "model.layers.1.self_attn.q_proj"  # the rows of q are permuted in a Llama
TYPES = {1: "Q1_0", 2: "Q2_0_g64", 4: "Q4_1", 8: "Q8_0"}
# Bias per scale under which a type holds the codes.
BIAS = {1: -0.5, 2: -1.0, 4: -7.5, 8: -128.0}


def pack(codes: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint32]:
    """Words as MLX has them, made from whole numbers of any size."""
    per_word = 32 // bits
    words = codes.reshape(codes.shape[0], -1, per_word).astype(np.uint64)
    shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(bits)
    return (words << shifts).sum(axis=2).astype(np.uint32)


def write(folder: Path, bits: int, group: int, bias: float | None = None) -> dict[str, Any]:
    """Saves a model whose linear layers are packed; returns the values of each."""
    from safetensors.numpy import save_file

    tensors = {k: v.numpy() for k, v in save(BY_NAME["llama"], folder).state_dict().items()}
    random = np.random.default_rng(bits)
    truth = {}
    for key in [k for k in tensors if k.endswith("_proj.weight")]:
        rows, cols = tensors.pop(key).shape
        codes = random.integers(0, 1 << bits, (rows, cols))
        step = random.uniform(0.01, 0.05, (rows, cols // group)) / 2 ** (bits - 1)
        scales = step.astype(np.float16)
        ratio = BIAS[bits] if bias is None else bias
        biases = (scales.astype(np.float32) * ratio).astype(np.float16 if bits == 4 else np.float32)
        module = key.removesuffix(".weight")
        tensors[key] = pack(codes, bits)
        tensors[f"{module}.scales"], tensors[f"{module}.biases"] = scales, biases
        spread = [np.repeat(v.astype(np.float32), group, axis=1) for v in (scales, biases)]
        truth[module] = spread[0] * codes.astype(np.float32) + spread[1]
    save_file(tensors, folder / "model.safetensors")
    settings = {"quantization": {"group_size": group, "bits": bits}}
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return truth


@pytest.mark.parametrize("bits", TYPES)
def test_packs_keep_every_value(bits: int, tmp_path: Path) -> None:
    truth = write(tmp_path / "model", bits, 128 if bits == 1 else GROUP)
    convert(tmp_path / "model", tmp_path / "m.gguf")
    convert(tmp_path / "model", tmp_path / "f.gguf", dtype="f32")
    file = _core.GgufFile(str(tmp_path / "m.gguf"))
    floats = _core.GgufFile(str(tmp_path / "f.gguf"))
    info = file.tensor("blk.1.ffn_up.weight")
    assert info.quant_type == TYPES[bits]
    found = _core.decode(info.quant_type, file.tensor_bytes(info.name)).reshape(info.shape)
    assert np.array_equal(found, truth["model.layers.1.mlp.up_proj"])
    name = "blk.1.attn_q.weight"
    found = _core.decode(TYPES[bits], file.tensor_bytes(name))
    assert np.array_equal(found, _core.decode("F32", floats.tensor_bytes(name)))
    assert np.isfinite(oxibonsai.load(tmp_path / "m.gguf").logits(IDS)).all()


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_other_biases_are_refused_with_the_group(bits: int, tmp_path: Path) -> None:
    write(tmp_path / "model", bits, 128 if bits == 1 else GROUP, bias=BIAS[bits] * 0.75)
    with pytest.raises(FormatError, match=r"layers\.0\.mlp\.down_proj\.weight: group 0 "):
        convert(tmp_path / "model", tmp_path / "m.gguf")
    convert(tmp_path / "model", tmp_path / "m.gguf", dtype="f16")


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"bits": 3}, UnsupportedError, "packed with bits 3"),
        ({"bits": 2}, FormatError, "need floats"),
        ({"group_size": 0}, FormatError, "group_size 0"),
        ({"group_size": 128}, FormatError, "need floats"),
        ({"group_size": "64"}, FormatError, "group_size '64'"),
        ({"mode": "mxfp4"}, UnsupportedError, "mode 'mxfp4'"),
        ({"mode": {}, "bits": None}, OxiBonsaiError, "bits None"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    change: dict[str, Any], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    write(tmp_path / "model", 4, GROUP)
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    config["quantization"] |= change
    file.write_text(json.dumps(config))
    with pytest.raises(error, match=sentence):
        convert(tmp_path / "model", tmp_path / "m.gguf")


def test_a_module_may_have_its_own_settings(tmp_path: Path) -> None:
    truth = write(tmp_path / "model", 4, GROUP)
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    own = {m: {"bits": 4, "group_size": GROUP} for m in truth}
    config["quantization"] = {"bits": 8, "group_size": 32, **own}
    file.write_text(json.dumps(config))
    convert(tmp_path / "model", tmp_path / "m.gguf")
    assert _core.GgufFile(str(tmp_path / "m.gguf")).tensor("blk.0.attn_v.weight").gguf_id == 3


@pytest.mark.parametrize("kind", ["gemma3", "llama4", "qwen3_5", "qwen3_5_moe", "qwen3_vl"])
def test_settings_beside_a_part_for_texts_are_its_own(kind: str, tmp_path: Path) -> None:
    config = {"model_type": kind, "text_config": {"hidden_size": 64}, "quantization": {"bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = CONVERTERS[kind].config(ModelFolder(tmp_path))
    assert found["quantization"] == {"bits": 4}
    assert found["hidden_size"] == 64
