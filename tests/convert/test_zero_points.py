"""Four-bit packs of AutoAWQ and GPTQ, packed here code by code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dense_models
import expert_models
import numpy as np
import pytest
from hf_folders import CASES, logits, save

import oxibonsai
from oxibonsai import FormatError, UnsupportedError, _core
from oxibonsai.convert.language_model import convert

torch = pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 60).tolist()
LLAMA = next(c for c in CASES if c.name == "llama")
GROUP = 32
AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]


def words(codes: Any, columns: list[int]) -> Any:
    """Eight codes a word along the last axis; nibble i is the code at ``columns[i]``."""
    packed = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for word in range(packed.shape[1]):
        for i, column in enumerate(columns):
            packed[:, word] |= codes[:, word * 8 + column].astype(np.uint32) << np.uint32(4 * i)
    return packed.view(np.int32)


def write(folder: Path, method: str, **changes: Any) -> Any:
    """Saves a packed model; returns transformers' model with the same values."""
    from safetensors.numpy import save_file

    model = save(LLAMA, folder)
    tensors = {}
    random = np.random.default_rng(8)
    for key, value in model.state_dict().items():
        if not key.endswith("_proj.weight"):
            tensors[key] = value.numpy()
            continue
        rows, cols = value.shape
        codes = random.integers(0, 16, (cols, rows))
        zeros = random.integers(1, 16, (cols // GROUP, rows))
        scales = random.uniform(0.005, 0.02, zeros.shape).astype(np.float16)
        spread = [np.repeat(v, GROUP, axis=0) for v in (zeros, scales.astype(np.float32))]
        value.copy_(torch.from_numpy(((codes - spread[0]) * spread[1]).T.astype(np.float32)))
        module = key.removesuffix("weight")
        if method == "awq":
            tensors[f"{module}qweight"] = words(codes, AWQ_COLUMNS)
            tensors[f"{module}qzeros"] = words(zeros, AWQ_COLUMNS)
        else:
            plain = list(range(8))
            tensors[f"{module}qweight"] = np.ascontiguousarray(words(codes.T, plain).T)
            tensors[f"{module}qzeros"] = words(zeros - 1, plain)
            tensors[f"{module}g_idx"] = (np.arange(cols) // GROUP).astype(np.int32)
        tensors[f"{module}scales"] = scales
    tensors |= changes.pop("tensors", {})
    save_file(tensors, folder / "model.safetensors")
    settings = {"quant_method": method, "bits": 4, "group_size": GROUP, **changes}
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "quantization_config": settings}))
    return model


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_packs_have_the_logits_of_their_values(method: str, tmp_path: Path) -> None:
    model = write(tmp_path / "model", method)
    truth = logits(model, IDS)
    convert(tmp_path / "model", tmp_path / "f.gguf", dtype="f32")
    found = oxibonsai.load(tmp_path / "f.gguf").logits(IDS)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()
    convert(tmp_path / "model", tmp_path / "m.gguf")
    file = _core.GgufFile(str(tmp_path / "m.gguf"))
    info = file.tensor("blk.2.ffn_down.weight")
    assert info.quant_type == "Q4_1"
    values = _core.decode("Q4_1", file.tensor_bytes(info.name)).reshape(info.shape)
    weight = model.state_dict()["model.layers.2.mlp.down_proj.weight"].numpy()
    assert np.abs(values - weight).max() <= 2**-11 * 15 * 0.02


KEY = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize(
    ("method", "changes", "error", "sentence"),
    [
        ("awq", {"bits": 8}, UnsupportedError, "bits 8"),
        ("awq", {"version": "gemv"}, UnsupportedError, "version 'gemv'"),
        ("gptq", {"quant_method": "aqlm"}, UnsupportedError, "'aqlm'"),
        (
            "gptq",
            {"tensors": {f"{KEY}.g_idx": np.zeros(128, np.int32)}},
            UnsupportedError,
            "out of order",
        ),
        (
            "gptq",
            {"tensors": {f"{KEY}.qzeros": np.zeros((4, 8), np.int32)}},
            FormatError,
            "do not fit",
        ),
        ("awq", {"tensors": {f"{KEY}.scales": np.ones(4, np.float16)}}, FormatError, "has scales"),
        ("awq", {"tensors": {f"{KEY}.qzeros": np.ones(4, np.int8)}}, FormatError, "no I32"),
    ],
)
def test_other_packs_are_refused(
    method: str, changes: dict[str, Any], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    write(tmp_path / "model", method, **changes)
    with pytest.raises(error, match=sentence):
        convert(tmp_path / "model", tmp_path / "m.gguf")


def test_packed_experts_keep_their_codes_in_a_stack(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    case = next(c for c in expert_models.CASES if c.name == "qwen3moe")
    dense_models.save(case, tmp_path / "model")
    path, random = tmp_path / "model" / "model.safetensors", np.random.default_rng(8)
    tensors, wanted = load_file(path), {}
    for name in [n for n in tensors if ".experts." in n]:
        rows, cols = tensors.pop(name).shape
        codes = random.integers(0, 16, (cols, rows))
        zeros = random.integers(1, 16, (cols // GROUP, rows))
        scales = random.uniform(0.005, 0.02, zeros.shape).astype(np.float16)
        module = name.removesuffix("weight")
        tensors[f"{module}qweight"] = words(codes, AWQ_COLUMNS)
        tensors[f"{module}qzeros"] = words(zeros, AWQ_COLUMNS)
        tensors[f"{module}scales"] = scales
        exact = scales.astype(np.float32)
        minima = (-zeros * exact).astype(np.float16).astype(np.float32)
        spread = [np.repeat(v, GROUP, axis=0) for v in (exact, minima)]
        wanted[name] = (codes.astype(np.float32) * spread[0] + spread[1]).T
    save_file(tensors, path)
    file = tmp_path / "model" / "config.json"
    settings = {"quant_method": "awq", "bits": 4, "group_size": GROUP}
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": settings}))
    convert(tmp_path / "model", tmp_path / "m.gguf")
    held = _core.GgufFile(str(tmp_path / "m.gguf"))
    for part in ("gate", "up", "down"):
        info = held.tensor(f"blk.1.ffn_{part}_exps.weight")
        assert info.quant_type == "Q4_1"
        found = _core.decode("Q4_1", held.tensor_bytes(info.name)).reshape(info.shape)
        experts = [wanted[f"model.layers.1.mlp.experts.{e}.{part}_proj.weight"] for e in range(5)]
        assert np.array_equal(found, np.stack(experts))
