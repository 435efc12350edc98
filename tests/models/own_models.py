"""Models that transformers has no class for, written in torch: the truth of their tests.

Where a model is Llama but for what its tokens see, the layers are those of transformers' Llama.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

NEVER = torch.finfo(torch.float32).min


class RoutedLayer(LlamaDecoderLayer):
    """A layer of which the tokens that the router chooses are a text of their own."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__(config, layer)
        self.mod_router = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, hidden_states: torch.Tensor, **named: Any) -> torch.Tensor:
        number = self.mod_router(hidden_states)[0, :, 0]
        chosen = torch.nonzero(number > 0)[:, 0]
        causal = torch.full((len(chosen), len(chosen)), NEVER).triu(1)
        x = hidden_states[:, chosen]
        cos, sin = named["position_embeddings"]
        made = super().forward(
            x,
            attention_mask=causal[None, None],
            position_embeddings=(cos[:, chosen], sin[:, chosen]),
        )
        out = hidden_states.clone()
        out[:, chosen] += number[chosen, None] * (made - x)
        return out


class MixtureOfDepthsForCausalLM(LlamaForCausalLM):
    """Llama, every so many-th layer of which has a router."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for i in range(config.mod_interval - 1, config.num_hidden_layers, config.mod_interval):
            self.model.layers[i] = RoutedLayer(config, i)


# The configuration and the model of each kind.
CLASSES: dict[str, tuple[Any, Any]] = {
    "MixtureOfDepths": (LlamaConfig, MixtureOfDepthsForCausalLM),
}
