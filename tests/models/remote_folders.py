"""Random folders of models that transformers does not have: their names and configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dense_models import FF, HEADS, HIDDEN, KV_HEADS, LAYERS, POSITIONS, VOCABULARY, random_values

_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": FF,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": POSITIONS, "rope_theta": 5000.0, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}  # fmt: skip
_KV = HIDDEN // HEADS * KV_HEADS
_TABLE = (VOCABULARY, HIDDEN)


@dataclass(frozen=True)
class RemoteFolder:
    """One structure.

    Attributes:
        kind, name: Transformers' architecture and model type.
        config: ``config.json``, beside the common sizes.
        outside, layer: Shapes of the parameters outside of the layers, and of each layer.
        layers: What the names of all layers begin with.
        differences: Keys in which llama.cpp's converter differs.
    """

    kind: str
    name: str
    config: Mapping[str, Any]
    outside: Mapping[str, tuple[int, ...]]
    layers: str
    layer: Mapping[str, tuple[int, ...]]
    differences: tuple[str, ...] = ()


def save(folder: RemoteFolder, path: Path) -> None:
    """Writes ``config.json`` and the weights in float32."""
    from safetensors.numpy import save_file

    path.mkdir()
    config = {**_SIZES, "model_type": folder.name, "architectures": [folder.kind], **folder.config}
    (path / "config.json").write_text(json.dumps(config))
    shapes = dict(folder.outside)
    for i in range(LAYERS):
        shapes |= {f"{folder.layers}.{i}.{part}": shape for part, shape in folder.layer.items()}
    tensors = {name: random_values(name, shape) for name, shape in shapes.items()}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


_LLAMA = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "self_attn.k_proj.weight": (_KV, HIDDEN),
    "self_attn.v_proj.weight": (_KV, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_proj.weight": (FF, HIDDEN),
    "mlp.up_proj.weight": (FF, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, FF),
}
_LLAMA_OUTSIDE = {
    "model.embed_tokens.weight": _TABLE,
    "model.norm.weight": (HIDDEN,),
    "lm_head.weight": _TABLE,
}
_EXAONE = dict(
    zip(
        (
            "ln_1.weight",
            "attn.attention.q_proj.weight",
            "attn.attention.k_proj.weight",
            "attn.attention.v_proj.weight",
            "attn.attention.out_proj.weight",
            "ln_2.weight",
            "mlp.c_fc_0.weight",
            "mlp.c_fc_1.weight",
            "mlp.c_proj.weight",
        ),
        _LLAMA.values(),
        strict=True,
    )
)
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip

FOLDERS = [
    RemoteFolder(
        "ExaoneForCausalLM", "exaone",
        {"activation_function": "silu", "num_layers": LAYERS, "layer_norm_epsilon": 1e-5,
         "rope_scaling": _LLAMA3, "rms_norm_eps": None},
        {"transformer.wte.weight": _TABLE, "transformer.ln_f.weight": (HIDDEN,),
         "lm_head.weight": _TABLE},
        "transformer.h", _EXAONE,
        ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"),
    ),
    RemoteFolder(
        "MiniCPMForCausalLM", "minicpm",
        {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 32, "hidden_act": "silu"},
        _LLAMA_OUTSIDE, "model.layers", _LLAMA,
    ),
    RemoteFolder(
        "OrionForCausalLM", "orion", {"hidden_act": "silu"},
        {**_LLAMA_OUTSIDE, "model.norm.bias": (HIDDEN,)}, "model.layers",
        {**_LLAMA, "input_layernorm.bias": (HIDDEN,), "post_attention_layernorm.bias": (HIDDEN,)},
    ),
]  # fmt: skip
