"""Modules for transformers' twin of a Bonsai 2 that keep no weights: rows are decoded at each forward.

What they compute with are the numbers of the file in float32, their rotation undone in float64. Memory
holds a part of one matrix at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from bonsai2_models import Bonsai2
from torch import nn

_VALUES = 2**24  # of a part: 64 MiB


class PackedLinear(nn.Module):
    """A linear layer whose matrix lies in the file.

    Args:
        model: The file.
        name: Of the matrix in it.
    """

    def __init__(self, model: Bonsai2, name: str) -> None:
        super().__init__()
        self._model, self._name = model, name
        rows, columns = model.file.tensor(name).shape
        self._order = model.grouped(name, np.arange(rows))
        self._most = max(_VALUES // columns, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x times the transposed matrix, part by part."""
        parts = []
        for first in range(0, len(self._order), self._most):
            weight = self._model.plain(self._name, self._order[first : first + self._most])
            parts.append(nn.functional.linear(x, torch.from_numpy(weight)))
        return torch.cat(parts, dim=-1)


class PackedEmbedding(nn.Module):
    """A table of tokens that lies in the file.

    Args:
        model: The file.
    """

    def __init__(self, model: Bonsai2) -> None:
        super().__init__()
        self._model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of tokens."""
        rows = self._model.plain("token_embd.weight", ids.reshape(-1).numpy())
        return torch.from_numpy(rows).reshape(*ids.shape, -1)


def put_packed_modules(twin: Any, model: Bonsai2) -> set[str]:
    """Replace a model's linear layers and its embedding; return the file's names of what they read."""
    own_names = {own.removesuffix(".weight"): name for name, own in model.parameters()}
    own_names["lm_head"] = "token_embd.weight" if model.size.tied else "output.weight"
    modules = {
        path: module
        for path, module in twin.named_modules()
        if isinstance(module, nn.Linear | nn.Embedding)
    }
    for path, module in modules.items():
        name = own_names[path]
        is_linear = isinstance(module, nn.Linear)
        other = PackedLinear(model, name) if is_linear else PackedEmbedding(model)
        assert not is_linear or module.bias is None
        twin.set_submodule(path, other)
    return {own_names[path] for path in modules}
