"""Small random models with recurrent state as transformers saves them, no weight near its default."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))
from hf_folders import VOCABULARY, write_tokenizer

Floats = npt.NDArray[np.float32]
# Longer than a page of the cache and than the tokens that a scan takes at once.
IDS: list[int] = np.random.default_rng(5).integers(0, VOCABULARY, 90).tolist()


@dataclass(frozen=True)
class Case:
    """One model.

    Attributes:
        name: For humans; the part before the first space is GGUF's architecture.
        kind: transformers' model class is ``{kind}ForCausalLM``, its configuration ``{kind}Config``
            or ``{kind}TextConfig``.
        options: Of the configuration.
        quantized: Types that its widths allow.
        hub: What ``config.json`` of published models has, and transformers saves otherwise or not;
            None: what they lack.
    """

    name: str
    kind: str
    options: dict[str, Any]
    quantized: tuple[str, ...] = ("q8_0", "q1_0")
    hub: dict[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """GGUF's."""
        return self.name.split()[0]

    def model(self) -> Any:
        """The model in float32, its weights random."""
        import torch
        import transformers

        text = getattr(transformers, f"{self.kind}TextConfig", None)
        make = text or getattr(transformers, f"{self.kind}Config")
        config = make(vocab_size=VOCABULARY, **self.options)
        config._attn_implementation = "eager"
        model = getattr(transformers, f"{self.kind}ForCausalLM")(config).float().eval()
        random = np.random.default_rng(7)
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                values = torch.from_numpy(random_values(random, name, tuple(parameter.shape)))
                parameter.copy_(values)
            for name, buffer in sorted(model.named_buffers()):
                if name.endswith(("expert_bias", "correction_bias")):
                    buffer.copy_(torch.from_numpy(random_values(random, name, tuple(buffer.shape))))
        return model

    def save(self, folder: Path) -> Any:
        """Writes model and tokenizer; returns the model."""
        model = self.model()
        model.save_pretrained(folder)
        config = folder / "config.json"
        changed = {**json.loads(config.read_text()), **self.hub}
        config.write_text(json.dumps({k: v for k, v in changed.items() if v is not None}))
        write_tokenizer(folder, spm=False)
        return model


def random_values(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Floats:
    """The same on every machine: multiples of 2^-20 between -1 and 1, scaled and moved."""
    unit = random.integers(-(2**20), 2**20, shape) / 2**20
    if (len(shape) == 2 and "A_log" not in name) or "experts" in name:
        return (unit * (0.5 if "embed" in name else 2.4 / shape[-1] ** 0.5)).astype(np.float32)
    if name.endswith("conv1d.weight"):
        return (unit * 0.8).astype(np.float32)
    if name.endswith("A_log"):  # decays from 1 / 8 to 2 a token
        return (unit * 1.4 - 0.7).astype(np.float32)
    centre = 1.0 if name.endswith((".D", "norm.weight")) else 0.0
    return (centre + unit * 0.4).astype(np.float32)


def reference_logits(model: Any, ids: list[int] = IDS) -> Floats:
    """Of transformers' float32 forward pass: [n, vocabulary]."""
    import torch

    with torch.no_grad():
        logits: Floats = model(torch.tensor([ids])).logits[0].float().numpy()
    return logits


_QWEN35: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}  # fmt: skip

_MAMBA: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 3, "tie_word_embeddings": True}
_MAMBA2: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 32, "state_size": 32,
    "n_groups": 1,
}  # fmt: skip

_MIXED = {k: v for k, v in _QWEN35.items() if k != "intermediate_size"} | {
    "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96, "num_experts": 8,
    "num_experts_per_tok": 3,
}  # fmt: skip

_NEMOTRON_MOE: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "ssm_state_size": 32, "mamba_num_heads": 8, "mamba_head_dim": 24, "n_groups": 2,
    "time_step_min": 1e-12, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 96, "moe_shared_expert_intermediate_size": 160,
    "routed_scaling_factor": 1.7,
}  # fmt: skip

CASES: list[Case] = [
    Case("qwen35", "Qwen3_5", _QWEN35),
    Case(
        "qwen35 tied, other heads",
        "Qwen3_5",
        _QWEN35
        | {
            "linear_num_key_heads": 3, "linear_num_value_heads": 12, "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 3, "tie_word_embeddings": True, "num_hidden_layers": 3,
            "layer_types": ["full_attention", "linear_attention", "linear_attention"],
            "rope_parameters": {**_QWEN35["rope_parameters"], "partial_rotary_factor": 0.5},
        },
        quantized=("q8_0",),
    ),
    Case("mamba", "Mamba", {**_MAMBA, "state_size": 8}, quantized=("q8_0",)),
    Case("mamba falcon", "FalconMamba", {**_MAMBA, "tie_word_embeddings": False, "time_step_rank": 32}),
    Case("mamba2", "Mamba2", _MAMBA2),
    Case(
        "mamba2 groups, tied", "Mamba2",
        {**_MAMBA2, "n_groups": 4, "tie_word_embeddings": True, "conv_kernel": 3, "state_size": 24},
    ),
    Case(
        "lfm2", "Lfm2",
        {
            "hidden_size": 128, "intermediate_size": 300, "block_multiple_of": 128, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "full_attn_idxs": [1, 3],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    ),
    Case(
        "granitehybrid", "GraniteMoeHybrid",
        {
            "hidden_size": 128, "shared_intermediate_size": 256, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 0,
            "layer_types": ["mamba", "attention", "mamba", "mamba"], "mamba_n_heads": 8, "mamba_d_head": 32,
            "mamba_d_state": 32, "mamba_n_groups": 2, "position_embedding_type": "nope",
            "attention_multiplier": 0.25, "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        hub={"layer_types": ["mamba", "attention", "mamba", "mamba"], "intermediate_size": 256},
    ),
    Case(
        "falcon-h1", "FalconH1",
        {
            "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "mamba_d_ssm": 192, "mamba_n_heads": 6, "mamba_n_groups": 2,
            "mamba_d_state": 32, "key_multiplier": 0.7, "attention_in_multiplier": 1.3,
            "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.6,
            "ssm_multipliers": [0.5, 1.5, 0.8, 1.25, 0.9], "mlp_multipliers": [1.4, 0.7],
            "lm_head_multiplier": 0.5, "embedding_multiplier": 2.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
        },
        quantized=("q8_0",),
        hub={"head_dim": 32},
    ),
    Case(
        "falcon-h1 normed", "FalconH1",
        {
            "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "mamba_d_ssm": 192, "mamba_n_heads": 6, "mamba_n_groups": 2,
            "mamba_d_state": 32, "mamba_rms_norm": True, "mamba_norm_before_gate": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
        },
        quantized=(),
        hub={"head_dim": 32},
    ),
    Case("qwen35moe", "Qwen3_5Moe", _MIXED, quantized=("q8_0",)),
    Case(
        "qwen3next", "Qwen3Next", {**_MIXED, "norm_topk_prob": True, "linear_num_value_heads": 6},
        quantized=("q8_0",),
    ),
    Case(
        "jamba", "Jamba",
        {
            "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 4,
            "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8,
        },
        quantized=(),
    ),
    Case(
        "jamba without experts", "Jamba",
        {
            "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "num_experts": 1, "num_experts_per_tok": 1, "attn_layer_period": 2,
            "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8,
        },
        quantized=(),
    ),
    Case(
        "lfm2moe", "Lfm2Moe",
        {
            "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "moe_intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 3, "num_dense_layers": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
        quantized=("q8_0",),
    ),
    Case(
        "granitehybrid with experts", "GraniteMoeHybrid",
        {
            "hidden_size": 128, "intermediate_size": 96, "shared_intermediate_size": 160,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "num_local_experts": 6, "num_experts_per_tok": 2,
            "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 8, "mamba_d_head": 32,
            "mamba_d_state": 32, "mamba_n_groups": 1, "position_embedding_type": "rope",
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        quantized=("q8_0",),
        hub={"layer_types": ["mamba", "attention", "mamba"]},
    ),
    Case(
        "nemotron_h", "NemotronH",
        {
            "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 32, "ssm_state_size": 32, "mamba_num_heads": 8,
            "mamba_head_dim": 24, "n_groups": 2, "time_step_min": 1e-12,
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
        },
        quantized=("q8_0",),
        hub={
            "hybrid_override_pattern": "M-*-M", "layers_block_type": None, "num_experts_per_tok": None,
        },
    ),
    Case(
        "nemotron_h_moe", "NemotronH",
        {
            **_NEMOTRON_MOE, "n_group": 4, "topk_group": 2,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe", "linear_attention"],
        },
        quantized=("q8_0",),
        hub={"hybrid_override_pattern": "ME*EM", "layers_block_type": None},
    ),
    Case(
        "nemotron_h_moe latent", "NemotronH",
        {
            **_NEMOTRON_MOE, "moe_latent_size": 64, "norm_topk_prob": False,
            "layers_block_type": ["linear_attention", "moe", "full_attention"],
        },
        quantized=("q8_0",),
        hub={"hybrid_override_pattern": "ME*", "layers_block_type": None},
    ),
]  # fmt: skip
