"""Models that transformers has no class for, written in torch: the truth of their tests.

Where a model is Llama but for what its tokens see, the layers are those of transformers' Llama.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, apply_rotary_pos_emb

NEVER = torch.finfo(torch.float32).min


def positions(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of queries, a column, and of keys, a row."""
    at = torch.arange(count)
    return at[:, None], at[None, :]


class DilatedForCausalLM(LlamaForCausalLM):
    """Longformer's windows over Llama's layers, each with a mask of its own."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for i, layer in enumerate(self.model.layers):
            layer.register_forward_pre_hook(
                lambda _, given, named, i=i: (
                    given,
                    {**named, "attention_mask": self.mask(i, named)},
                ),
                with_kwargs=True,
            )

    def mask(self, layer: int, named: dict[str, Any]) -> torch.Tensor:
        q, k = positions(named["position_ids"].shape[1])
        window = self.config.attention_window[layer]
        dilation = self.config.attention_dilation[layer]
        # Keys number 0 to window - 1, counted back from the query.
        seen = ((q - k) % dilation == 0) & ((q - k) // dilation < (window or len(q)))
        seen = (seen | (k < self.config.global_tokens)) & (k <= q)
        return torch.where(seen, 0.0, NEVER)[None, None]


class RoutedLayer(LlamaDecoderLayer):
    """A layer of which the tokens that the router chooses are a text of their own."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__(config, layer)
        self.mod_router = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, hidden_states: torch.Tensor, **named: Any) -> torch.Tensor:
        number = self.mod_router(hidden_states)[0, :, 0]
        chosen = torch.nonzero(number > 0)[:, 0]
        q, k = positions(len(chosen))
        x = hidden_states[:, chosen]
        cos, sin = named["position_embeddings"]
        made = super().forward(
            x,
            attention_mask=torch.where(k <= q, 0.0, NEVER)[None, None],
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


class Phi3SmallConfig(PreTrainedConfig):
    """What the published ``config.json`` has; transformers' class takes any field."""

    model_type = "phi3small"


class Phi3SmallAttention(nn.Module):
    """Attention to a window of blocks and to strides of blocks, group by group of heads."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.width = config.hidden_size // config.num_attention_heads
        rows = config.hidden_size + 2 * config.num_key_value_heads * self.width
        self.query_key_value = nn.Linear(config.hidden_size, rows)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def seen(self, count: int) -> torch.Tensor:
        """Which keys each query of each head sees."""
        c, heads = self.config, self.config.num_attention_heads
        q, k = positions(count)
        every = c.dense_attention_every_n_layers
        if every and (self.layer + 1) % every == 0:
            return (k <= q).expand(heads, -1, -1)
        stride = c.blocksparse_vert_stride
        step = 0 if c.blocksparse_homo_head_pattern else max(1, int(stride / heads))
        q_block, k_block = q // c.blocksparse_block_size, k // c.blocksparse_block_size
        near = q_block - k_block < c.blocksparse_num_local_blocks
        strided = [(k_block + h * step + 1) % stride == 0 for h in range(heads)]
        return torch.stack([(k <= q) & (near | s) for s in strided])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c, count = self.config, x.shape[1]
        group = c.num_attention_heads // c.num_key_value_heads
        parts = self.query_key_value(x).view(1, count, c.num_key_value_heads, group + 2, self.width)
        q = parts[..., :group, :].flatten(2, 3).transpose(1, 2)
        k, v = (
            parts[..., group + i, :].transpose(1, 2).repeat_interleave(group, dim=1) for i in (0, 1)
        )
        pairs = torch.arange(0, self.width, 2) / self.width
        angles = torch.arange(count)[:, None] * c.rope_embedding_base**-pairs
        angles = torch.cat([angles, angles], dim=-1)[None]
        q, k = apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
        scores = q @ k.transpose(2, 3) * (c.mup_attn_multiplier / self.width)
        weights = scores.masked_fill(~self.seen(count), -torch.inf).softmax(dim=-1)
        return self.dense((weights @ v).transpose(1, 2).flatten(2))


class Phi3SmallMlp(nn.Module):
    """Units of a gate and a value in turn, both within a limit."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.limit = config.gegelu_limit
        self.up_proj = nn.Linear(config.hidden_size, 2 * config.ff_intermediate_size)
        self.down_proj = nn.Linear(config.ff_intermediate_size, config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.up_proj(x)
        gate = made[..., ::2].clamp(max=self.limit)
        value = made[..., 1::2].clamp(-self.limit, self.limit)
        return self.down_proj(gate * torch.sigmoid(1.702 * gate) * (value + 1))


class Phi3SmallLayer(nn.Module):
    """Attention, then the MLP, each behind a norm."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = Phi3SmallAttention(config, layer), Phi3SmallMlp(config)
        norms = [nn.LayerNorm(config.hidden_size, config.layer_norm_epsilon) for _ in range(2)]
        self.input_layernorm, self.post_attention_layernorm = norms

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        h = h + self.self_attn(self.input_layernorm(h))
        return h + self.mlp(self.post_attention_layernorm(h))


class Phi3SmallForCausalLM(PreTrainedModel):
    """Phi-3-small as its configuration describes it, under the names of its published weights."""

    config_class = Phi3SmallConfig
    _tied_weights_keys: ClassVar = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(
            Phi3SmallLayer(config, i) for i in range(config.num_hidden_layers)
        )
        self.model.final_layernorm = nn.LayerNorm(config.hidden_size, config.layer_norm_epsilon)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(self, ids: torch.Tensor) -> Any:
        h = self.model.embed_tokens(ids) * self.config.mup_embedding_multiplier
        for layer in self.model.layers:
            h = layer(h)
        logits = self.lm_head(self.model.final_layernorm(h)) / self.config.mup_width_multiplier
        logits[..., self.config.dummy_token_indices] = NEVER
        return SimpleNamespace(logits=logits)


# The configuration and the model of each kind.
CLASSES: dict[str, tuple[Any, Any]] = {
    "Dilated": (LlamaConfig, DilatedForCausalLM),
    "MixtureOfDepths": (LlamaConfig, MixtureOfDepthsForCausalLM),
    "Phi3Small": (Phi3SmallConfig, Phi3SmallForCausalLM),
}
