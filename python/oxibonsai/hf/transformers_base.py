"""The base of all views of an engine as a ``transformers.PreTrainedModel``.

Only imported for callers who have torch and transformers.
"""

# transformers' own signatures are narrower than what it calls them with.
# mypy: disable-error-code="misc,no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from oxibonsai.hf.config import LoadedConfig


class EngineModel(PreTrainedModel):
    """A model that runs in the engine, on the CPU, in float32.

    The one parameter of torch is empty: programs ask the first for the device and type of a model.

    Args:
        config: As the model's front has it.
    """

    config_class = PreTrainedConfig
    main_input_name = "input_ids"

    def __init__(self, config: LoadedConfig) -> None:
        super().__init__(_as_transformers(config))
        self.place = torch.nn.Parameter(torch.empty(0), requires_grad=False)
        # Training it makes no sense, and modules are born in training mode.
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where tensors are wanted."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of logits."""
        return torch.float32


def _as_transformers(config: LoadedConfig) -> Any:
    known = config.to_dict()
    name = known.pop("model_type")
    try:
        made = AutoConfig.for_model(name, **known)
    except ValueError:  # an architecture that this version of transformers lacks
        made = PreTrainedConfig(**known)
    made.name_or_path = config.name_or_path
    return made
