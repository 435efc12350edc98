"""Folders opened as checkpoints: the model of the converted file, from which nothing is written."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import CASES, save

import oxibonsai
from oxibonsai import FormatError, OxiBonsaiError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.convert.vision_tower import convert_tower
from oxibonsai.loading import open_model
from without_writes import run_without_writes

pytest.importorskip("transformers", reason="needs transformers and torch")

import cases
import onnx_models
import test_mlx
import test_zero_points
import tower_folders
from random_vision import MODELS

IDS: list[int] = np.random.default_rng(5).integers(4, 100, 40).tolist()
BY_NAME = {c.name: c for c in CASES}
FAMILIES = {d.name: d for d in cases.ALL}

Write = Callable[[Path], Any]


def bfloat16(folder: Path) -> None:
    """A Llama whose matrices are bfloat16 and whose norms are float32, its heads to be rotated."""
    import torch
    from safetensors.torch import load_file, save_file

    save(BY_NAME["llama-tied-biased"], folder)
    file = folder / "model.safetensors"
    tensors = {n: t.to(torch.bfloat16) if t.ndim > 1 else t for n, t in load_file(file).items()}
    save_file(tensors, file)


def onnx(folder: Path) -> None:
    graph, _ = onnx_models.build(folder, "optimum", 4, 32, zeros=True)
    graph.save(folder / "model.onnx")


FOLDERS: dict[str, Write] = {
    "llama": lambda folder: save(BY_NAME["llama"], folder),
    "bfloat16, tied, biases": bfloat16,
    "gemma3": lambda folder: save(BY_NAME["gemma3"], folder),
    "mlx, 4 bits": lambda folder: test_mlx.write(folder, 4, 64),
    "mlx, 2 bits": lambda folder: test_mlx.write(folder, 2, 64),
    "gptq": lambda folder: test_zero_points.write(folder, "gptq"),
    "onnx": onnx,
    **{n: FAMILIES[n].save for n in ("qwen3moe", "gpt-oss", "gpt2", "mamba2", "bert")},
}


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the cache folder should be."""
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_the_model_of_its_file(name: str, tmp_path: Path) -> None:
    FOLDERS[name](tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "m.gguf")
    folder, file = open_model(tmp_path / "model"), Checkpoint(tmp_path / "m.gguf")
    assert folder.file.keys() == file.file.keys()
    for key in file.file.keys():  # noqa: SIM118 - no dictionary
        assert same(folder.file.get(key), file.file.get(key)), key
    assert [described(t) for t in folder.file.tensors] == [described(t) for t in file.file.tensors]
    for tensor in file.file.tensors:
        stored = file.file.tensor_bytes(tensor.name)
        assert np.array_equal(folder.file.tensor_bytes(tensor.name), stored), tensor.name
    if name != "bert":
        truth = oxibonsai.load(tmp_path / "m.gguf").logits(IDS).tobytes()
        assert oxibonsai.load(tmp_path / "model").logits(IDS).tobytes() == truth


def same(a: Any, b: Any) -> bool:
    arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    equal = bool(np.array_equal(a, b)) and a.dtype == b.dtype if arrays else bool(a == b)
    return type(a) is type(b) and equal


def described(tensor: Any) -> tuple[Any, ...]:
    return tensor.name, tuple(tensor.shape), tensor.quant_type, tensor.gguf_id, tensor.nbytes


LOGITS = """
import hashlib, sys, oxibonsai
ids = [int(i) for i in sys.argv[2].split()]
print(hashlib.sha256(oxibonsai.load(sys.argv[1]).logits(ids).tobytes()).hexdigest())
"""


@pytest.mark.parametrize("name", ["bfloat16, tied, biases", "mlx, 4 bits", "qwen3moe", "onnx"])
def test_opening_a_folder_writes_nothing(name: str, tmp_path: Path) -> None:
    FOLDERS[name](tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "m.gguf")
    before = listing(tmp_path / "model")
    ids = " ".join(map(str, IDS))
    of_folder = run_without_writes(LOGITS, tmp_path / "model", ids, home=tmp_path / "a")
    of_file = run_without_writes(LOGITS, tmp_path / "m.gguf", ids, home=tmp_path / "b")
    assert of_folder == of_file
    assert listing(tmp_path / "model") == before


TOWER = """
import hashlib, sys
from oxibonsai.loading import open_tower
file, digest = open_tower(sys.argv[1]).file, hashlib.sha256()
for key in file.keys():
    digest.update(f"{key} {file.get(key)};".encode())
for tensor in file.tensors:
    digest.update(f"{tensor.name} {tuple(tensor.shape)} {tensor.quant_type};".encode())
    digest.update(file.tensor_bytes(tensor.name).tobytes())
print(digest.hexdigest())
"""


def test_opening_the_tower_of_a_folder_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    tower_folders.save(MODELS["gemma3"](tmp_path / "files"), "gemma3", tmp_path / "model")
    convert_tower(tmp_path / "model", tmp_path / "mmproj.gguf", name="model")
    of_folder = run_without_writes(TOWER, tmp_path / "model", home=tmp_path / "a")
    assert of_folder == run_without_writes(TOWER, tmp_path / "mmproj.gguf", home=tmp_path / "b")


def listing(folder: Path) -> list[tuple[str, int, int]]:
    found = ((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*"))
    return sorted(found)


def test_only_what_needs_an_operation_is_computed(tmp_path: Path) -> None:
    """What is computed takes no memory before it is packed: its bytes are read from no file yet."""
    bfloat16(tmp_path / "model")
    tensors = {t.name: t for t in open_model(tmp_path / "model").file.tensors}
    as_stored = {name for name, t in tensors.items() if t.as_stored}  # type: ignore[attr-defined]
    mapped = ("token_embd.weight", "attn_v.weight", "ffn_down.weight", "attn_norm.weight")
    computed = ("attn_q.weight", "attn_k.weight", "attn_q.bias")
    assert {n for n in tensors if n.endswith(mapped)} <= as_stored
    assert not {n for n in tensors if n.endswith(computed)} & as_stored


def changed_in_place(file: Path) -> None:
    status = file.stat()
    with file.open("r+b") as f:
        f.seek(status.st_size - 64)
        f.write(b"\1" * 64)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize("name", ["bfloat16, tied, biases", "mlx, 4 bits"])
def test_a_file_that_changes_before_it_is_packed_is_noticed(name: str, tmp_path: Path) -> None:
    FOLDERS[name](tmp_path / "model")
    checkpoint = open_model(tmp_path / "model")
    changed_in_place(tmp_path / "model" / "model.safetensors")
    weight = checkpoint.weight("blk.0.attn_q.weight")
    with pytest.raises(FormatError, match=r"model\.safetensors was changed while it was in use"):
        _core.CpuDevice(1).pack([weight])
    with pytest.raises(FormatError, match=r"model\.safetensors was changed while it was in use"):
        checkpoint.vector("output_norm.weight")


def test_a_file_that_changes_while_the_model_runs_is_noticed(tmp_path: Path) -> None:
    """The token table is read in its file."""
    bfloat16(tmp_path / "model")
    engine = oxibonsai.load(tmp_path / "model")
    engine.logits(IDS)
    changed_in_place(tmp_path / "model" / "model.safetensors")
    with pytest.raises(FormatError, match=r"model\.safetensors was changed while it was in use"):
        engine.logits(IDS)


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path) -> None:
    bfloat16(tmp_path / "model")
    truth = oxibonsai.load(tmp_path / "model").logits(IDS)
    checkpoint = open_model(tmp_path / "model")
    stored = checkpoint.file.tensor_bytes("blk.0.attn_q.weight").tobytes()
    other = tmp_path / "other"
    save(BY_NAME["llama-tied-biased"], other)
    (other / "model.safetensors").replace(tmp_path / "model" / "model.safetensors")
    assert checkpoint.file.tensor_bytes("blk.0.attn_q.weight").tobytes() == stored
    assert not np.array_equal(oxibonsai.load(tmp_path / "model").logits(IDS), truth)


@pytest.mark.parametrize(
    ("tensor", "named"),
    [("self_attn.q_proj", "blk.1.attn_q.weight|self_attn.q_proj"), ("mlp.up_proj", "blk.1.ffn_up")],
    ids=["computed", "mapped"],
)
def test_a_value_that_is_not_finite_is_one_error(tensor: str, named: str, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    save(BY_NAME["llama"], tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = dict(load_file(file))
    spoiled = tensors[f"model.layers.1.{tensor}.weight"].copy()
    spoiled[3, 5] = np.nan
    save_file({**tensors, f"model.layers.1.{tensor}.weight": spoiled}, file)
    with pytest.raises(FormatError, match=named) as caught:
        oxibonsai.load(tmp_path / "model")
    assert str(tmp_path / "model") in str(caught.value)


def test_a_missing_parameter_is_named(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    save(BY_NAME["llama"], tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = dict(load_file(file))
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file)
    with pytest.raises(OxiBonsaiError, match=r"model lacks .*model\.layers\.1\.mlp\.up_proj"):
        open_model(tmp_path / "model")


def test_computed_bytes_take_memory_while_they_are_held_alone() -> None:
    """Each device that packs a matrix has its bytes written again, and its error is passed on."""
    calls: list[int] = []

    def write(out: Any) -> None:
        calls.append(out.size)
        if len(calls) == 3:
            raise FormatError("the third time")
        out.view(np.float32)[:] = np.arange(64 * 32)

    weight = _core.Weight.computed("w", "F32", 64, 32, 1, write)
    first, second = _core.CpuDevice(1), _core.CpuDevice(2)
    packed = first.pack([weight]), second.pack([weight])
    assert np.array_equal(np.asarray(packed[0]), np.asarray(packed[1]))
    assert calls == [64 * 32 * 4] * 2
    with pytest.raises(FormatError, match="the third time"):
        weight.inspect()
    assert weight.inspect()["not_finite"] == 0
    del packed, first, second, weight
    gc.collect()


PEAK = """
import sys, oxibonsai
engine = oxibonsai.load(sys.argv[1], ctx_size=64)
engine.logits([1, 2, 3])
with open("/proc/self/status") as f:
    print(next(line.split()[1] for line in f if line.startswith("VmHWM")))
"""


def peak_kib(source: Path) -> int:
    """The most memory that a fresh process has held, mapped files included."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(source)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def large(folder: Path, experts: int) -> None:
    """Some 300 MB of bfloat16: a Llama, or a Qwen3 with experts one by one."""
    import torch
    from safetensors.torch import save_file

    hidden, layers, words = 1024, 12, 2048
    config: dict[str, Any] = {
        "vocab_size": words, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 256,
        "intermediate_size": 2816, "rms_norm_eps": 1e-6, "hidden_act": "silu", "head_dim": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "tie_word_embeddings": False, "model_type": "llama", "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    if experts:
        config |= {
            "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
            "num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 352,
            "norm_topk_prob": True,
        }  # fmt: skip
    random = torch.Generator().manual_seed(0)

    def matrix(rows: int, cols: int) -> Any:
        return (torch.randn(rows, cols, generator=random) * cols**-0.5).to(torch.bfloat16)

    tensors = {
        "model.embed_tokens.weight": matrix(words, hidden),
        "lm_head.weight": matrix(words, hidden),
    }
    tensors["model.norm.weight"] = torch.ones(hidden)
    for i in range(layers):
        layer = f"model.layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}.{norm}.weight"] = torch.ones(hidden)
        for part in "qkvo":
            tensors[f"{layer}.self_attn.{part}_proj.weight"] = matrix(hidden, hidden)
        if experts:
            for part in "qk":
                tensors[f"{layer}.self_attn.{part}_norm.weight"] = torch.ones(64)
            tensors[f"{layer}.mlp.gate.weight"] = matrix(experts, hidden)
        width = 352 if experts else 2816
        for module in [f"experts.{e}." for e in range(experts)] or [""]:
            tensors[f"{layer}.mlp.{module}gate_proj.weight"] = matrix(width, hidden)
            tensors[f"{layer}.mlp.{module}up_proj.weight"] = matrix(width, hidden)
            tensors[f"{layer}.mlp.{module}down_proj.weight"] = matrix(hidden, width)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.slow
@pytest.mark.parametrize("experts", [0, 8], ids=["heads in another order", "stacked experts"])
def test_a_folder_needs_hardly_more_memory_than_its_file(experts: int, tmp_path: Path) -> None:
    large(tmp_path / "model", experts)
    convert(tmp_path / "model", tmp_path / "m.gguf")
    file, folder = peak_kib(tmp_path / "m.gguf"), peak_kib(tmp_path / "model")
    assert folder <= 1.1 * file, (folder, file)
