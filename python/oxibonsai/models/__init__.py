"""Models: which family a file is of, its config, and the model that a device runs."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai import _core
from oxibonsai.architectures import dflash, eagle3
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.architectures.layers.pooled import TOKEN_TYPES
from oxibonsai.architectures.schema.family import family_of_gguf
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device, DevicePlan
from oxibonsai.errors import UnsupportedError
from oxibonsai.files.progress import Progress
from oxibonsai.graph import Builder
from oxibonsai.lora import Adapter
from oxibonsai.models.config import ModelConfig, check_constants, config_of
from oxibonsai.models.drafting import is_mtp_alone
from oxibonsai.models.imatrix_collection import ImatrixCollection
from oxibonsai.models.keys import Keys
from oxibonsai.models.model import Model
from oxibonsai.models.packed_cache import PackedCache
from oxibonsai.models.parity import Parity, check_parity
from oxibonsai.models.weights import Weights

__all__ = [
    "TOKEN_TYPES",
    "ImatrixCollection",
    "Model",
    "ModelConfig",
    "PackedCache",
    "Parity",
    "Weights",
    "check_parity",
    "describe",
    "load_model",
    "read_config",
]


def read_config(checkpoint: Checkpoint, ctx_size: int | None = None) -> ModelConfig:
    """Return a checkpoint's dimensions and constants.

    Args:
        checkpoint: The model's file.
        ctx_size: Positions of a text that it is loaded for, by which LongRoPE chooses its factors and
            dynamic NTK scaling its base; None: the model's own.

    Raises:
        FormatError: A key is missing or makes no sense.
        UnsupportedError: The architecture, or a key of the file, is not known.
    """
    name = checkpoint.architecture
    _refuse_drafter(checkpoint)
    if name not in BY_NAME:
        raise UnsupportedError(
            f"{checkpoint.path} is of architecture {name}; supported are {', '.join(BY_NAME)}"
        )
    keys = Keys(checkpoint, ctx_size)
    config = config_of(family_of_gguf(BY_NAME[name], keys), keys)
    keys.refuse_unread()
    check_constants(keys, config)
    return config


def _refuse_drafter(checkpoint: Checkpoint) -> None:
    name = checkpoint.architecture
    if name in (dflash.NAME, eagle3.NAME):
        raise UnsupportedError(
            f"{checkpoint.path} is a drafter ({name}) and no model: give it with --draft-model, beside the "
            "model that it drafts for"
        )
    if is_mtp_alone(checkpoint):
        raise UnsupportedError(
            f"{checkpoint.path} has the layer of a model ({name}) that predicts further tokens, and no "
            "other: give it with --draft-model, beside the model"
        )


def describe(checkpoint: Checkpoint) -> _core.Graph:
    """Return the pass up to the last layer, for no device: its state is what a sequence keeps.

    Raises:
        FormatError: A key or a tensor is missing or makes no sense.
        UnsupportedError: The architecture, or a key of the file, is not known.
    """
    config = read_config(checkpoint)
    builder = Builder(config.hadamard)
    config.family.hidden_states(builder, config.of_family, Weights(checkpoint))
    return builder.graph


def load_model(
    checkpoint: Checkpoint,
    device: Device | DevicePlan,
    progress: Progress | None = None,
    cache: PackedCache | None = None,
    adapters: Sequence[Adapter] = (),
    ctx_size: int | None = None,
) -> Model:
    """Describe a checkpoint's passes, pack its weights for its devices and compile it."""
    config = read_config(checkpoint, ctx_size)
    return Model(config, Weights(checkpoint), device, progress, cache, adapters)
