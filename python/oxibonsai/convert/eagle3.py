"""From a folder of an EAGLE-3 drafter to one GGUF file; the model that it drafts for says the rest.

Folders are those that llama.cpp's converter takes: EAGLE's own, SpecForge's and AngelSlim's, with
``midlayer.*``, and those of speculators (Eagle3Speculator), with ``layers.0.*``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.architectures import eagle3
from oxibonsai.architectures.eagle3 import TARGET_LAYERS
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.lazy_model import LazyModel, LazyTensor
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.convert.families import FamilyConverter, read_config
from oxibonsai.convert.writing import PlannedModel, plan_model
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.progress import Progress
from oxibonsai.models import Weights
from oxibonsai.models import read_config as read_model_config
from oxibonsai.models.drafting import OpenedTarget, TargetModel
from oxibonsai.models.eagle_drafter import describe_drafter

_CLASSES = frozenset(
    {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel"}
)
_LAYER_CONFIG = "transformer_layer_config"  # where Eagle3Speculator has the fields of the layer
# The model's ids of the drafter's tokens, less their places; and the tokens of the model that it has.
_OFFSETS, _IS_DRAFTED = "d2t", "t2d"
_LEAST_LAYERS = 3  # of a model whose low, middle and high layer are the usual ones
_WHOLE_NUMBERS: dict[str, type[np.integer[Any]]] = {"I64": np.int64, "I32": np.int32}


def is_drafter(folder: ModelFolder) -> bool:
    """Return whether a folder holds a drafter of EAGLE-3, by its class or by its fields."""
    config = _flat(folder.config)
    classes = config.get("architectures")
    named = isinstance(classes, list) and any(isinstance(c, str) and c in _CLASSES for c in classes)
    return named or ("draft_vocab_size" in config and config.get("num_hidden_layers") == 1)


def convert_drafter(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    target: Checkpoint,
    *,
    dtype: str = "auto",
    name: str = "",
    threads: int = 1,
    progress: Progress | None = None,
) -> list[str]:
    """Write a drafter as one GGUF file, which appears under its name when it is complete.

    Args:
        folder: With ``config.json`` and safetensors.
        out: The file; replaced where it exists.
        target: The model that it drafts for, whose vocabulary the file gets.
        dtype, name, threads, progress: As of :func:`oxibonsai.convert.language_model.convert`.

    Returns:
        What the user should know.

    Raises:
        RequestError: The folder holds no drafter, or there is no such dtype.
        FormatError: It lacks something, or drafts for another model.
        UnsupportedError: It asks for what no drafter has.
    """
    model = OpenedTarget(read_model_config(target), Weights(target))
    planned = plan_drafter(folder, model, dtype=dtype, name=name, threads=threads)
    return planned.write(Path(out), progress)


def plan_drafter(
    folder: str | os.PathLike[str],
    target: TargetModel,
    *,
    dtype: str = "auto",
    name: str = "",
    threads: int = 1,
    vocabulary: bool = True,
) -> PlannedModel:
    """Return the keys and tensors of the file that :func:`convert_drafter` writes.

    Args:
        folder: With ``config.json`` and safetensors.
        target: The model that it drafts for.
        dtype, name, threads: As of :func:`convert_drafter`.
        vocabulary: False leaves out the model's vocabulary, which the model has for itself.
    """
    source = _DrafterFolder(Path(folder))
    if not is_drafter(source):
        raise RequestError(
            f"{folder} holds no drafter of EAGLE-3: its config.json has no draft_vocab_size and names "
            f"none of {', '.join(sorted(_CLASSES))}"
        )
    tokenizer = _tokenizer_of(target.weights.checkpoint) if vocabulary else {}
    converter = _DrafterConverter(
        eagle3.NAME,
        lambda folder: eagle3.FAMILY.write_gguf(read_config(eagle3.FAMILY, folder)) | tokenizer,
        config=lambda folder: _completed(folder, target),
        family=eagle3.FAMILY,
        target=target,
    )
    return plan_model(source, converter, dtype=dtype, name=name, threads=threads)


class _DrafterFolder(ModelFolder):
    """A folder, of which the tensors of token ids are no parameters."""

    @cached_property
    def _stored(self) -> dict[str, StoredTensor]:
        return super()._tensors()

    def _tensors(self) -> dict[str, StoredTensor]:
        return {n: t for n, t in self._stored.items() if _bare(n) not in (_OFFSETS, _IS_DRAFTED)}

    def draft_ids(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return the model's ids of the tokens that the drafter can propose; None: of all.

        Args:
            count: Tokens that it can propose.

        Raises:
            FormatError: They are no whole numbers, or not as many.
        """
        stored = next((t for n, t in self._stored.items() if _bare(n) == _OFFSETS), None)
        if stored is None:
            return None
        if stored.dtype not in _WHOLE_NUMBERS or stored.shape != (count,):
            raise FormatError(
                f"{stored.path}: {stored.name} has shape {stored.shape} and type {stored.dtype}; "
                f"{count} tokens (draft_vocab_size) need as many offsets of type "
                + " or ".join(_WHOLE_NUMBERS)
            )
        offsets = stored.read(_WHOLE_NUMBERS[stored.dtype]).astype(np.int64)
        stored.check_unchanged()
        return offsets + np.arange(count, dtype=np.int64)


def _bare(name: str) -> str:
    return name.removeprefix("model.")


@dataclass(frozen=True, kw_only=True)
class _DrafterConverter(FamilyConverter):
    """Makes a GGUF file of a drafter's folder.

    Attributes:
        target: The model that it drafts for.
    """

    target: TargetModel

    def further_tensors(
        self, folder: ModelFolder
    ) -> Mapping[str, npt.NDArray[np.float32 | np.int64]]:
        """Return the ids of the tokens that it can propose, if these are not all."""
        assert isinstance(folder, _DrafterFolder)  # of plan_drafter()
        c = read_config(self.family, folder)
        ids = folder.draft_ids(c.draft_vocab_size)
        if ids is not None:
            return {_OFFSETS: ids}
        if c.draft_vocab_size != c.vocab_size:
            raise FormatError(
                f"{folder.path} can propose {c.draft_vocab_size} of {c.vocab_size} tokens "
                f"(draft_vocab_size), but has no {_OFFSETS}, which says which"
            )
        return {}

    def check(self, folder: ModelFolder, c: Any, tensors: Sequence[LazyTensor]) -> None:
        """Check that the file is a drafter of the model, by reading it as one."""
        keys: Metadata = {"general.architecture": (self.architecture, "str")}
        reader = LazyModel(folder.path, keys | self.family.write_gguf(c), tensors)
        describe_drafter(self.target, Checkpoint(folder.path, reader=reader))


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the fields of the layer among the others."""
    inner = config.get(_LAYER_CONFIG)
    return {**config, **inner} if isinstance(inner, dict) else dict(config)


def _completed(folder: ModelFolder, target: TargetModel) -> dict[str, Any]:
    """Return a drafter's configuration with what the model says where its own says nothing."""
    found, of_model = _flat(folder.config), target.config
    usual = {"vocab_size": of_model.vocab_size, "target_hidden_size": of_model.hidden_size}
    found |= {key: value for key, value in usual.items() if found.get(key) is None}
    if not found.get(TARGET_LAYERS):
        found[TARGET_LAYERS] = _layers_behind_outputs(found) or _usual_layers(folder, target)
    return found


def _layers_behind_outputs(config: Mapping[str, Any]) -> Any:
    """Return the layers behind those whose outputs SpecForge's ``eagle_config`` names, if it does."""
    inner = config.get("eagle_config")
    outputs = inner.get(TARGET_LAYERS) if isinstance(inner, dict) else None
    if isinstance(outputs, list) and all(type(i) is int for i in outputs):
        return [i + 1 for i in outputs]
    return outputs  # refused with the field


def _usual_layers(folder: ModelFolder, target: TargetModel) -> list[int]:
    """Return the low, the middle and the high layer that drafters read where they name none."""
    count = target.config.num_hidden_layers
    if count < _LEAST_LAYERS:
        raise FormatError(
            f"{folder.path / 'config.json'} has no {TARGET_LAYERS}, and {target.weights.checkpoint.path} "
            f"has {count} layers, too few for the usual ones (2, the middle one and the last but two)"
        )
    return [2, count // 2, count - 3]


def _tokenizer_of(model: Checkpoint) -> Metadata:
    """Return the keys of a model's tokenizer."""
    file = model.file
    return {
        key: (file.get(key), file.metadata_type(key))
        for key in file.keys()  # noqa: SIM118 - not a dict
        if key.startswith("tokenizer.")
    }
