"""Random Bonsai 2 models in each of the forms that they are published in, and transformers' twin.

A model is the random GGUF file of ``bench/make_random_bonsai.py``, whole or cut to few layers; the rest has
its published shape. The other forms hold the same codes and scales.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))
from hf_folders import write_tokenizer

import gguf_copy
import make_random_bonsai as maker
from oxibonsai import _core

Floats = npt.NDArray[np.float32]
GROUP = 128
ROWS = 1501  # of the vocabulary; odd
_AT_ONCE = 2**16  # values of a transform, which fit into a cache
IDS: list[int] = np.random.default_rng(7).integers(0, ROWS, 40).tolist()
# Of a layer's parts, as Hugging Face calls them.
_LAYER = {
    "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z", "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b", "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
}  # fmt: skip
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_OTHERS = {"ssm_a": "linear_attn.A_log", "ssm_dt.bias": "linear_attn.dt_bias"}


@dataclass(frozen=True)
class Bonsai2:
    """A random file.

    Attributes:
        path: Of the file.
        size: Its shape.
        layers: Those that it is cut to.
    """

    path: Path
    size: maker.Size
    layers: int

    @cached_property
    def file(self) -> _core.GgufFile:
        return _core.GgufFile(str(self.path))

    @cached_property
    def rotated(self) -> set[str]:
        """Names of all rotated tensors."""
        return {*maker.rotated_names(self.size, self.layers), "token_embd.weight"}

    @cached_property
    def signs(self) -> dict[int, npt.NDArray[np.int64]]:
        """By width."""
        file = self.file
        widths = [int(w) for w in file.get("prism.hadamard.sign_widths")]
        values = np.asarray(file.get("prism.hadamard.sign_values"), np.int64)
        return dict(zip(widths, np.split(values, np.cumsum(widths)[:-1]), strict=True))

    def stored(self, name: str, rows: npt.NDArray[np.int64] | None = None) -> Floats:
        """A tensor as it is stored, in float32; of a matrix some rows, or all."""
        file = self.file
        info = file.tensor(name)
        raw = np.asarray(file.tensor_bytes(name))
        if rows is None:
            return _core.decode(info.quant_type, raw).reshape(info.shape)
        chosen = np.ascontiguousarray(raw.reshape(info.shape[0], -1)[rows])
        return _core.decode(info.quant_type, chosen.ravel()).reshape(len(rows), *info.shape[1:])

    def codes(self, name: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float16]]:
        """Codes [rows, columns] and scales [rows, groups] of a PQ2_0 tensor."""
        info = self.file.tensor(name)
        raw = np.frombuffer(self.file.tensor_bytes(name), np.uint8).reshape(info.shape[0], -1, 34)
        fields = raw[:, :, 2:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
        scales = np.ascontiguousarray(raw[:, :, :2]).view(np.float16)[:, :, 0]
        return fields.reshape(info.shape), scales

    def plain(self, name: str, rows: npt.NDArray[np.int64] | None = None) -> Floats:
        """A tensor without its rotation, W of the stored W S H; of a matrix some rows, or all."""
        values = self.stored(name, rows)
        if name not in self.rotated:
            return values
        signs = self.signs[values.shape[1]].astype(np.float32)
        return walsh_hadamard(values, self.size.block) * signs

    def grouped(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A tensor's rows in the order of folders, where heads of one key head are neighbours."""
        heads = self.size.value_heads
        part = name.split(".", 2)[-1]
        order = np.arange(heads).reshape(-1, maker.KEY_HEADS).T.reshape(-1)
        if part in ("ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"):
            return values[order]
        if part in ("attn_gate.weight", "attn_qkv.weight", "ssm_conv1d.weight"):
            first = len(values) - heads * maker.STATE
            tail = values[first:].reshape(heads, maker.STATE, *values.shape[1:])[order]
            return np.concatenate([values[:first], tail.reshape(-1, *values.shape[1:])])
        return values

    def parameters(self) -> Iterator[tuple[str, str]]:
        """GGUF's and Hugging Face's names of all tensors."""
        for tensor in self.file.tensors:
            if tensor.name in _OUTSIDE:
                yield tensor.name, _OUTSIDE[tensor.name]
                continue
            _, layer, part = tensor.name.split(".", 2)
            own = _OTHERS.get(part) or f"{_LAYER[part.removesuffix('.weight')]}.weight"
            yield tensor.name, f"model.layers.{layer}.{own}"

    def of_folder(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A tensor as Hugging Face's checkpoints hold it, its rotation apart."""
        values = self.grouped(name, values)
        if name.endswith("ssm_a"):
            return log_decays(values)
        if name.endswith("conv1d.weight"):
            return values[:, None, :]
        if name.endswith("norm.weight") and not name.endswith("ssm_norm.weight"):
            return values - 1
        return values


def make(folder: Path, size_name: str, *, layers: int = 2, tied: bool | None = None) -> Bonsai2:
    """Write a random model of some layers in PQ2_0."""
    size, type_name = maker.BONSAI2[size_name], "PQ2_0"
    size = size if tied is None else replace(size, tied=tied)
    path, whole = folder / f"{size_name}-{type_name}.gguf", folder / "random.gguf"
    maker.write(whole, size_name, type_name, layers, None, seed=3, size=size)
    # Decays whose logarithms are multiples of 1/64, so that these are found again exactly.
    random = np.random.default_rng(5)
    decays = {
        t.name: (0, -np.exp(random.integers(-256, 1, t.shape) / 64).astype(np.float32))
        for t in _core.GgufFile(str(whole)).tensors
        if t.name.endswith("ssm_a")
    }
    gguf_copy.copy(whole, path, tensors=decays)
    whole.unlink()
    return Bonsai2(path, size, layers)


def make_small(folder: Path, patch: pytest.MonkeyPatch) -> Bonsai2:
    """Write a model of the 4B's kind, in little: heads of two kinds, a tied table.

    Args:
        folder: Takes it.
        patch: Changes sizes that the maker has for all models, for as long as the model is in use.
    """
    for name, size in (("INTERVAL", 2), ("HYBRID_ROWS", ROWS), ("STATE", 8)):
        patch.setattr(maker, name, size)
    small = maker.Size(2, 256, 512, 2, 1, True, head_dim=256, value_heads=32, block=256)
    patch.setitem(maker.BONSAI2, "small", small)
    return make(folder, "small")


def log_decays(values: Floats) -> Floats:
    """What ``A_log`` holds for a file's decays."""
    return (np.round(np.log(-values.astype(np.float64)) * 64) / 64).astype(np.float32)


def walsh_hadamard(rows: npt.NDArray[Any], block: int) -> Floats:
    """Every row times the block-diagonal Sylvester matrix, over the root of the block; in float64."""
    result = np.empty(rows.shape, np.float32)
    most = max(_AT_ONCE // rows.shape[1], 1)
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        values = part.astype(np.float64).reshape(-1, block)
        step = 1
        while step < block:
            pairs = values.reshape(len(values), -1, 2, step)
            values = np.empty_like(pairs)
            np.add(pairs[:, :, 0], pairs[:, :, 1], out=values[:, :, 0])
            np.subtract(pairs[:, :, 0], pairs[:, :, 1], out=values[:, :, 1])
            step *= 2
        result[first : first + most] = values.reshape(part.shape) / np.sqrt(block)
    return result


def text_config(model: Bonsai2) -> dict[str, Any]:
    """``config.json`` of the language model."""
    size = model.size
    return {
        "model_type": "qwen3_5_text", "vocab_size": size.rows, "hidden_size": size.hidden,
        "intermediate_size": size.ff, "num_hidden_layers": model.layers,
        "num_attention_heads": size.heads, "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim, "linear_num_key_heads": maker.KEY_HEADS,
        "linear_num_value_heads": size.value_heads, "linear_key_head_dim": maker.STATE,
        "linear_value_head_dim": maker.STATE, "linear_conv_kernel_dim": maker.TAPS,
        "full_attention_interval": maker.INTERVAL, "max_position_embeddings": 262144,
        "layer_types": [
            "linear_attention" if (i + 1) % maker.INTERVAL else "full_attention"
            for i in range(model.layers)
        ],
        "rms_norm_eps": 1e-6, "tie_word_embeddings": size.tied, "hidden_act": "silu",
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10], "mrope_interleaved": True,
        },
    }  # fmt: skip


def reference_logits(model: Bonsai2, positions: slice = slice(None)) -> Floats:
    """Of transformers' Qwen3.5 in float32, on the weights without their rotation, at some positions."""
    import torch
    from packed_twin import put_packed_modules
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    config = Qwen3_5TextConfig(**text_config(model))
    config._attn_implementation = "eager"
    with torch.device("meta"):
        twin = Qwen3_5ForCausalLM(config)
    packed = put_packed_modules(twin, model)
    state = {
        own: torch.from_numpy(model.of_folder(name, model.plain(name)))
        for name, own in model.parameters()
        if name not in packed
    }
    twin.load_state_dict(state, assign=True, strict=True)
    rotary = twin.model.rotary_emb  # a buffer that no checkpoint holds
    twin.model.rotary_emb = type(rotary)(config)
    places = torch.arange(len(IDS))[positions]
    with torch.no_grad():
        found: Floats = twin.eval()(torch.tensor([IDS]), logits_to_keep=places).logits[0].numpy()
    return found


def as_base_three(model: Bonsai2, path: Path) -> Path:
    """Write the same codes and scales as PTQ1_0."""
    tensors = {}
    for info in model.file.tensors:
        if info.name not in model.rotated:
            continue
        codes, scales = model.codes(info.name)
        blocks = base_three(codes.reshape(-1, GROUP), scales.reshape(-1))
        tensors[info.name] = (143, blocks)
    gguf_copy.copy(model.path, path, tensors=tensors)
    return path


def base_three(
    codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.float16]
) -> npt.NDArray[np.uint8]:
    """Blocks of PTQ1_0 by its definition: byte j of a chunk holds weights j, j + width ... as digits."""
    parts = []
    for first, width, digits in ((0, 16, 5), (80, 8, 5), (120, 2, 4)):
        number = np.zeros((len(codes), width), np.int64)
        for i in range(5):
            digit = codes[:, first + i * width :][:, :width] if i < digits else 0
            number = number * 3 + digit
        parts.append((number * 256 + 242) // 243)
    halves = scales.view(np.uint8).reshape(-1, 2)
    return np.concatenate([*(p.astype(np.uint8) for p in parts), halves], axis=1)


def write_pack(
    model: Bonsai2,
    folder: Path,
    tower: Mapping[str, npt.NDArray[Any]] | None = None,
    **changes: Any,
) -> Path:
    """Write an MLX pack as PrismML publishes it: schema 2, heads grouped, signs beside each module.

    Args:
        model: The language model.
        folder: The pack, which is made.
        tower: Parameters of the vision tower by their names in packs.
        changes: Of ``config.json``.
    """
    from safetensors.numpy import save_file

    tensors: dict[str, npt.NDArray[Any]] = dict(tower or {})
    modules = []
    for name, own in model.parameters():
        path = own.removesuffix(".weight")
        key = f"language_model.{path}"
        if name in model.rotated:
            codes, scales = (model.grouped(name, part) for part in model.codes(name))
            shifts = np.arange(0, 32, 2, dtype=np.uint32)
            words = (codes.reshape(len(codes), -1, 16).astype(np.uint32) << shifts).sum(axis=2)
            tensors[f"{key}.weight"] = words.astype(np.uint32)
            tensors[f"{key}.scales"], tensors[f"{key}.biases"] = scales, -scales
            tensors[f"{key}.signs"] = model.signs[codes.shape[1]].astype(np.float32)
            modules.append(
                {
                    "path": path, "block": model.size.block, "embedding": "embed" in path,
                    "dtype": "float16",
                }
            )  # fmt: skip
            continue
        values = model.grouped(name, model.stored(name))
        if name.endswith("conv1d.weight"):
            values = values[:, :, None]  # channels last, as MLX has them
        if name.endswith("ssm_a"):
            values = log_decays(values)
        tensors[f"language_model.{own}"] = values
    tensors = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    config = {
        "model_type": "prism_hadamard_qwen35", "schema_version": 2, "base_model_type": "qwen3_5",
        "tensor_namespace": "mlx-vlm-qwen3_5", "gdn_activation_layout": "grouped",
        "quantization": {"bits": 2, "group_size": GROUP, "mode": "affine"},
        "hadamard_config": "hadamard.json",
        "components": {"text": True, "vision": tower is not None, "mtp": False},
        "modules": modules, "text_config": text_config(model),
        "tie_word_embeddings": model.size.tied, **changes,
    }  # fmt: skip
    return _write_folder(folder, tensors, config, save_file)


def write_folded(model: Bonsai2, folder: Path, **changes: Any) -> Path:
    """Write a folded checkpoint for converters: the rotated weights as floats, and a manifest."""
    from safetensors.numpy import save_file

    tensors, records = {}, []
    for name, own in model.parameters():
        values = model.of_folder(name, model.stored(name))
        tensors[own.replace("model.", "model.language_model.", 1)] = np.ascontiguousarray(values)
        if name in model.rotated:
            role = "inverse-after-lookup" if "embd" in name else "fold-before-matmul"
            records.append({"name": own, "axis": -1, "role": role})
    tied = model.size.tied
    manifest = {
        "schema_version": 3 if tied else 1, "kind": "hadamard-weight-fold",
        "status": "requires-matching-runtime",
        "transform": {
            "name": "normalized-signed-sylvester-walsh-hadamard", "block_size": model.size.block,
            "sign_mode": "explicit",
        },
        "signs": {str(width): values.tolist() for width, values in model.signs.items()},
        "tensors": records, **({"tied_output": True} if tied else {}), **changes,
    }  # fmt: skip
    config = {
        "model_type": "qwen3_5", "text_config": text_config(model), "tie_word_embeddings": tied,
    }  # fmt: skip
    _write_folder(folder, tensors, config, save_file)
    (folder / "hadamard_packing.json").write_text(json.dumps(manifest))
    return folder


def _write_folder(folder: Path, tensors: Any, config: dict[str, Any], save_file: Any) -> Path:
    folder.mkdir()
    write_tokenizer(folder, spm=False)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
