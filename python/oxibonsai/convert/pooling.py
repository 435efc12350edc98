"""Convert sentence-transformers' linear layers after pooling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.architectures.heads import sentence_modules
from oxibonsai.architectures.layers.pooled import PROJECTIONS
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.parameters import put_together, sources_of
from oxibonsai.checkpoint.safetensors_file import read_header
from oxibonsai.errors import FormatError, UnsupportedError

_DENSE = "Dense"


def projection_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """Return the dimensions of the linear layers after pooling."""
    keys: Metadata = {}
    for tensor, matrix in projections(folder).items():
        name = f"{architecture}.{tensor.removesuffix('.weight')}_feat"
        keys |= {f"{name}_in": (matrix.shape[1], "u32"), f"{name}_out": (matrix.shape[0], "u32")}
    return keys


def projections(folder: ModelFolder) -> dict[str, npt.NDArray[np.float32]]:
    """Return the matrices of the linear layers after pooling, by GGUF's names."""
    found: dict[str, npt.NDArray[np.float32]] = {}
    folders = [path for kind, path in sentence_modules(folder.path) if kind == _DENSE]
    if len(folders) > len(PROJECTIONS):
        raise UnsupportedError(
            f"{folder.path} has {len(folders)} Dense modules; GGUF has room for 2"
        )
    for tensor, name in zip(PROJECTIONS, folders, strict=False):
        config = folder.json(f"{name}/config.json")
        where = folder.path / name
        if config.get("bias") is not False or not _is_linear(config.get("activation_function")):
            raise UnsupportedError(f"{where}: GGUF has no place for its bias or its activation")
        parameters = put_together(read_header(where / "model.safetensors"), {})
        if set(parameters) != {"linear.weight"} or len(parameters["linear.weight"].shape) != 2:
            raise FormatError(
                f"{where} holds {', '.join(parameters)}, not one matrix linear.weight"
            )
        values = parameters["linear.weight"].values()
        found[f"{tensor}.weight"] = np.array(values, np.float32, order="C")
        for source in sources_of(parameters["linear.weight"]):
            source.check_unchanged()
    return found


def _is_linear(activation: object) -> bool:
    return isinstance(activation, str) and activation.rpartition(".")[2] == "Identity"
