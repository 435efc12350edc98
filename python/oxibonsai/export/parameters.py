"""Tensors of a GGUF file as parameters with Hugging Face's names, values and order of rows."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert import decoder, gemma3, qwen3
from oxibonsai.convert.llama import paired_rows
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.export.config_json import saved_as
from oxibonsai.export.safetensors_writer import Exported, Floats
from oxibonsai.models import read_config
from oxibonsai.models.config import ModelConfig

_LAYERS: Mapping[str, Mapping[str, str]] = {
    "llama": decoder.LAYER,
    "qwen2": decoder.LAYER,
    "qwen3": qwen3.LAYER,
    "gemma3": gemma3.LAYER,
}
_LEFT_OUT = "rope_freqs.weight"  # part of the configuration


def parameters(checkpoint: Checkpoint) -> list[Exported]:
    """All parameters, in the order of the file.

    Raises:
        UnsupportedError: Hugging Face's library lacks the architecture, or a tensor has no decoder.
    """
    config = read_config(checkpoint)
    kind = saved_as(checkpoint, config)
    layers = _LAYERS[kind]
    if config.hadamard is not None:
        raise UnsupportedError(
            f"{checkpoint.path} has Hadamard-folded weights, for which Hugging Face's configurations "
            "have no place; it can be saved as gguf only"
        )
    names = {gguf_name: module for module, gguf_name in layers.items()}
    return [
        _exported(checkpoint, config, kind, tensor, names)
        for tensor in checkpoint.file.tensors
        if tensor.name != _LEFT_OUT
    ]


def _exported(
    checkpoint: Checkpoint,
    config: ModelConfig,
    kind: str,
    tensor: _core.TensorInfo,
    names: Mapping[str, str],
) -> Exported:
    if not tensor.decodable:
        raise UnsupportedError(
            f"{checkpoint.path}: tensor {tensor.name} has type {tensor.quant_type}, which has no decoder"
        )
    own = tensor.name

    def values() -> Floats:
        found = _core.decode(tensor.quant_type, checkpoint.file.tensor_bytes(own))
        found = found.reshape(tensor.shape)
        if kind == "gemma3" and "norm" in own:
            found = found - np.float32(1.0)
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        part = own.split(".")[-2]
        if kind == "llama" and part in heads:
            found = found[np.argsort(paired_rows(heads[part], config.head_dim))]
        return np.ascontiguousarray(found)

    return Exported(_parameter(checkpoint, own, names), tensor.shape, values)


def _parameter(checkpoint: Checkpoint, tensor: str, names: Mapping[str, str]) -> str:
    for module, fixed in decoder.FIXED.items():
        if tensor == f"{fixed}.weight":
            return f"{module}.weight"
    layer = re.fullmatch(r"blk\.([0-9]+)\.([a-z_]+)\.(weight|bias)", tensor)
    if layer is None or layer[2] not in names:
        raise FormatError(f"{checkpoint.path}: the tensor {tensor} has no name in safetensors")
    return f"model.layers.{layer[1]}.{names[layer[2]]}.{layer[3]}"
