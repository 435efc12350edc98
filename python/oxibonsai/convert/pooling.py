"""Convert what follows hidden states: sentence-transformers' modules, or a classifier's head."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.parameters import put_together
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.safetensors_file import read_header
from oxibonsai.errors import FormatError, UnsupportedError

# GGUF's pooling_type by the word in Pooling's configuration, and by its older flags.
_TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}
_FLAGS = {f"pooling_mode_{word}": word for word in ("cls_token", "mean_tokens", "lasttoken")}
_MODULES = {"Transformer", "Pooling", "Normalize"}
_DENSE = "Dense"
_PROJECTIONS = ("dense_2", "dense_3")


def pooling_keys(folder: ModelFolder, architecture: str, *, projects: bool = False) -> Metadata:
    """``pooling_type`` where the folder is one of sentence-transformers, else nothing.

    Args:
        folder: Of the model.
        architecture: GGUF's name.
        projects: Whether the architecture has linear layers after pooling.
    """
    modules = dict(_modules(folder))
    if _DENSE in modules and not projects:
        raise UnsupportedError(
            f"{folder.path / 'modules.json'} has the module {_DENSE}, which files of {architecture} "
            "have no place for"
        )
    if "Pooling" not in modules:
        return {}
    name = f"{modules['Pooling']}/config.json"
    config = folder.json(name)
    modes = {word.partition("_")[0] for flag, word in _FLAGS.items() if config.get(flag) is True}
    others = {k for k, v in config.items() if k.startswith("pooling_mode_") and v is True}
    if "pooling_mode" in config:
        modes, others = {str(config["pooling_mode"])}, set()
    if len(modes) != 1 or others - _FLAGS.keys() or not modes <= _TYPES.keys():
        raise UnsupportedError(
            f"{folder.path / name}: pooling is {sorted(modes | others)}; GGUF knows one of "
            + ", ".join(_TYPES)
        )
    return {f"{architecture}.pooling_type": (_TYPES[modes.pop()], "u32")}


def classifier_pooling_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """Return the keys of the pooling of a classifier's head, where the configuration has it."""
    if folder.config.get("classifier_pooling") is None:
        return {}
    folder.require("classifier_pooling", "cls", "mean")
    kind = _TYPES[folder.config["classifier_pooling"]]
    return {f"{architecture}.classifier.pooling_type": (kind, "u32")}


def projection_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """Dimensions of the linear layers after pooling."""
    keys: Metadata = {}
    for tensor, matrix in projections(folder).items():
        name = f"{architecture}.{tensor.removesuffix('.weight')}_feat"
        keys |= {f"{name}_in": (matrix.shape[1], "u32"), f"{name}_out": (matrix.shape[0], "u32")}
    return keys


def projections(folder: ModelFolder) -> dict[str, npt.NDArray[np.float32]]:
    """Matrices of the linear layers after pooling, by GGUF's names."""
    found: dict[str, npt.NDArray[np.float32]] = {}
    folders = [path for kind, path in _modules(folder) if kind == _DENSE]
    if len(folders) > len(_PROJECTIONS):
        raise UnsupportedError(
            f"{folder.path} has {len(folders)} Dense modules; GGUF has room for 2"
        )
    for tensor, name in zip(_PROJECTIONS, folders, strict=False):
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
        found[f"{tensor}.weight"] = np.ascontiguousarray(values, dtype=np.float32)
    return found


def _is_linear(activation: object) -> bool:
    return isinstance(activation, str) and activation.rpartition(".")[2] == "Identity"


def _modules(folder: ModelFolder) -> list[tuple[str, str]]:
    """Kind and path of each module of sentence-transformers; none where the folder has no list."""
    path = folder.path / "modules.json"
    if not path.is_file():
        return []
    try:
        found = [
            (str(m["type"]).rpartition(".")[2], str(m["path"]))
            for m in json.loads(path.read_text())
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise FormatError(f"cannot read {path}: {e!r}") from e
    for kind, name in found:
        if kind not in _MODULES | {_DENSE}:
            raise UnsupportedError(f"{path} has the module {kind}, which GGUF has no place for")
        if name != (folder.path / name).name and name:
            raise FormatError(f"{path} names {name!r}, no folder beside it")
    return found
