"""The files of sentence-transformers: how vectors are made of hidden states."""

from __future__ import annotations

import json

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.reader import TensorInfo
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.safetensors_writer import Exported, Floats

# Linear layers after pooling, and the folder of each.
PROJECTIONS = {"dense_2.weight": "2_Dense", "dense_3.weight": "3_Dense"}
_MODULES = "sentence_transformers.models"
# Of Pooling's configuration, by GGUF's pooling_type.
_FLAGS = {1: "mean_tokens", 2: "cls_token", 3: "lasttoken"}
_OTHER_FLAGS = ("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")


def sentence_files(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the text of each file by its path; none where the model does not say how it pools.

    Raises:
        UnsupportedError: sentence-transformers has no such pooling.
    """
    a = checkpoint.file.get("general.architecture")
    kind = checkpoint.file.get(f"{a}.pooling_type")
    dense = [name for name in PROJECTIONS if checkpoint.has(name)]
    if kind is None and not dense:
        return {}
    kind = 1 if kind is None else kind
    if kind not in _FLAGS:
        raise UnsupportedError(
            f"{checkpoint.path}: pooling_type is {kind!r}, which sentence-transformers does not have; "
            "save it as gguf"
        )
    hidden = checkpoint.shape("token_embd.weight")[1]
    flags = {f"pooling_mode_{flag}": False for flag in (*_FLAGS.values(), *_OTHER_FLAGS)}
    flags[f"pooling_mode_{_FLAGS[kind]}"] = True
    folders = {"": "Transformer", "1_Pooling": "Pooling"}
    folders |= {PROJECTIONS[name]: "Dense" for name in dense}
    modules = [
        {"idx": i, "name": str(i), "path": folder, "type": f"{_MODULES}.{module}"}
        for i, (folder, module) in enumerate(folders.items())
    ]
    files = {
        "modules.json": json.dumps(modules, indent=2),
        "1_Pooling/config.json": json.dumps({"word_embedding_dimension": hidden, **flags}),
    }
    for name in dense:
        rows, columns = checkpoint.shape(name)
        layer = {
            "in_features": columns,
            "out_features": rows,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
        files[f"{PROJECTIONS[name]}/config.json"] = json.dumps(layer)
    return files


def projections(checkpoint: Checkpoint) -> dict[str, Exported]:
    """Return the matrices of the linear layers after pooling, by their folders."""
    return {
        PROJECTIONS[tensor.name]: _matrix(checkpoint, tensor)
        for tensor in checkpoint.file.tensors
        if tensor.name in PROJECTIONS
    }


def _matrix(checkpoint: Checkpoint, tensor: TensorInfo) -> Exported:
    shape = tuple(tensor.shape)

    def values() -> Floats:
        held = checkpoint.file.tensor_bytes(tensor.name)
        return _core.decode(tensor.quant_type, held).reshape(shape)

    return Exported("linear.weight", shape, values)
