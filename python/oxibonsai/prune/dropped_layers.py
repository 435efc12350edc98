"""A model's files without some of its layers: tensors are renumbered, and keys say what is left."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.reader import Reader, TensorInfo
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.models import ModelConfig, read_config
from oxibonsai.prune.layer_passes import layer_passes
from oxibonsai.prune.overlay import Overlay

_OF_LAYER = re.compile(r"blk\.([0-9]{1,9})\.")
_BLOCKS = "block_count"
_DENSE_FIRST = "leading_dense_block_count"
# Keys whose lists are of no layers.
_OF_NO_LAYER = ("general.", "tokenizer.", "quantize.", "split.")
# What is no longer true of a smaller model.
_SIZES = ("general.parameter_count", "general.size_label")


@dataclass(frozen=True)
class RenamedTensor:
    """A tensor under another name; the other fields as of :class:`TensorInfo`."""

    name: str
    shape: tuple[int, ...]
    quant_type: str
    decodable: bool
    gguf_id: int
    nbytes: int


class DroppedLayers(Overlay):
    """A model's files without some of its layers.

    Args:
        under: The files.
        architecture: The model's.
        layers: Of the model, without those behind them that predict further tokens.
        dropped: Numbers of layers.
    """

    def __init__(
        self, under: Reader, architecture: str, layers: int, dropped: Collection[int]
    ) -> None:
        super().__init__(under)
        blocks = under.get(f"{architecture}.{_BLOCKS}")
        kept = [i for i in range(blocks) if i not in dropped]
        self._own_names: dict[str, str] = {}
        self._tensors: list[TensorInfo] = []
        for tensor in under.tensors:
            name = _renumbered(tensor.name, kept)
            if name is not None:
                self._own_names[name] = tensor.name
                self._tensors.append(_renamed(tensor, name))
        self._infos = {t.name: t for t in self._tensors}
        self._changed = _changed_keys(under, architecture, blocks, layers, kept)

    @property
    def tensors(self) -> Sequence[TensorInfo]:
        """Return the tensors in the order of the file."""
        return self._tensors

    def keys(self) -> list[str]:
        """Return the keys of the metadata."""
        return [key for key in self._under.keys() if key not in _SIZES]  # noqa: SIM118 - not a dict

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value."""
        if key in _SIZES:
            return default
        return self._changed[key] if key in self._changed else super().get(key, default)

    def copy_metadata(self, writer: _core.GgufWriter, key: str) -> None:
        """Write a key with its value."""
        if key in self._changed:
            writer.add_metadata(key, self._changed[key], self.metadata_type(key))
        else:
            super().copy_metadata(writer, key)

    def tensor(self, name: str) -> TensorInfo:
        """Return a tensor's description; FormatError where there is none."""
        if name not in self._infos:
            raise FormatError(
                f"{self.paths[0]} has no tensor {name} among the layers that are kept"
            )
        return self._infos[name]

    def tensor_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return a tensor's bytes."""
        return super().tensor_bytes(self._own_names[name])

    def weight(self, name: str) -> _core.Weight:
        """Return a tensor as a matrix of its own, which has the name that the file calls it."""
        return super().weight(self._own_names[name])

    def release(self, name: str) -> None:
        """Take a tensor's bytes out of memory."""
        super().release(self._own_names[name])


def _renumbered(name: str, kept: list[int]) -> str | None:
    """Return the name of a tensor among the kept layers; None: its layer is dropped."""
    match = _OF_LAYER.match(name)
    if match is None:
        return name
    layer = int(match[1])
    return f"blk.{kept.index(layer)}.{name[match.end() :]}" if layer in kept else None


def _renamed(tensor: TensorInfo, name: str) -> TensorInfo:
    if name == tensor.name:
        return tensor
    return RenamedTensor(
        name,
        tuple(tensor.shape),
        tensor.quant_type,
        tensor.decodable,
        tensor.gguf_id,
        tensor.nbytes,
    )


def _changed_keys(
    file: Reader, architecture: str, blocks: int, layers: int, kept: list[int]
) -> dict[str, Any]:
    """Return the keys that have another value: counts of layers, and what lists one value for each."""
    changed: dict[str, Any] = {f"{architecture}.{_BLOCKS}": len(kept)}
    dense = file.get(key := f"{architecture}.{_DENSE_FIRST}")
    if isinstance(dense, int) and dense > 0:
        changed[key] = sum(i < dense for i in kept)
    for key in file.keys():  # noqa: SIM118 - not a dict
        value = None if key.startswith(_OF_NO_LAYER) else file.get(key)
        if isinstance(value, list | np.ndarray) and len(value) in (blocks, layers):
            left = [i for i in kept if i < len(value)]
            changed[key] = (
                value[left] if isinstance(value, np.ndarray) else [value[i] for i in left]
            )
    return changed


def check_droppable(checkpoint: Checkpoint, count: int) -> None:
    """Check that so many layers of a model can be dropped, whichever they are.

    Raises:
        RequestError: None would be dropped or left.
        UnsupportedError: The model does not continue texts, has an encoder, or runs layers repeatedly.
        FormatError: A key is missing or makes no sense.
    """
    _check_count(count, _config(checkpoint).num_hidden_layers)


def _check_count(count: int, layers: int) -> None:
    if not 0 < count < layers:
        raise RequestError(
            f"{count} of {layers} layers would be dropped: drop one at least, and keep one"
        )


def _config(checkpoint: Checkpoint) -> ModelConfig:
    """Return the config of a model whose layers can be dropped."""
    config = read_config(checkpoint)
    blocks = checkpoint.file.get(f"{checkpoint.architecture}.{_BLOCKS}")
    if blocks != config.num_hidden_layers + config.num_nextn_predict_layers:
        raise UnsupportedError(
            f"{checkpoint.path} runs its {blocks} layers more than once: none of them can be dropped"
        )
    if not config.generates or config.decoder is not None or config.family.encode is not None:
        raise UnsupportedError(
            f"{checkpoint.path} is no model that continues a text by itself: layers are dropped of those"
        )
    return config


def drop_layers(checkpoint: Checkpoint, dropped: Collection[int]) -> DroppedLayers:
    """Return a model's files without some of its layers, after a check that the others stay as they are.

    Args:
        checkpoint: The model.
        dropped: Numbers of layers, from 0 on.

    Raises:
        RequestError: A number is no layer of the model, or none is dropped or left.
        UnsupportedError: A kept layer would compute something else at its new place: its kind depends on
            its number, such as in a model whose every sixth layer is global.
    """
    config = _config(checkpoint)
    layers = config.num_hidden_layers
    if wrong := sorted(i for i in dropped if not 0 <= i < layers):
        raise RequestError(
            f"{checkpoint.path} has no layer {wrong[0]}: its layers are 0 to {layers - 1}"
        )
    _check_count(len(set(dropped)), layers)
    if (first := min(dropped)) < config.deepstack_layers:
        raise UnsupportedError(
            f"images reach the first {config.deepstack_layers} layers of {checkpoint.path}: layer {first} "
            "can't be dropped"
        )
    found = DroppedLayers(checkpoint.file, checkpoint.architecture, layers, dropped)
    kept = [i for i in range(layers) if i not in dropped]
    _check_passes(checkpoint, Checkpoint(checkpoint.path, reader=found), kept)
    return found


def _check_passes(whole: Checkpoint, cut: Checkpoint, kept: list[int]) -> None:
    """Compare what each kept layer computes in the whole model and in the one that is left."""
    architecture = whole.architecture
    advice = (
        "choose other layers with --prune-layers, for example whole periods of the model's kinds"
    )
    before = layer_passes(whole)
    try:
        after = layer_passes(cut)
    except (FormatError, UnsupportedError) as e:
        raise UnsupportedError(
            f"without these layers {whole.path} is no {architecture} that can run ({e}); {advice}"
        ) from e
    for place, layer in enumerate(kept):
        if before.layers[layer] != after.layers[place]:
            raise UnsupportedError(
                f"layer {layer} of {whole.path} would become layer {place}, where {architecture} computes "
                f"something else; {advice}"
            )
    if before.outside != after.outside:
        raise UnsupportedError(
            f"what {architecture} computes outside its layers depends on their number, so none can be "
            f"dropped of {whole.path}"
        )
