"""Small random models of many architectures, as transformers saves them.

Two layers of 64 dims, weights that leave nothing at its default: a norm, a bias or a factor that is
missing somewhere changes the logits.
"""

from __future__ import annotations

import copy
import itertools
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

VOCABULARY = 131  # odd: tails in every tile
HIDDEN, FF, LAYERS, HEADS, KV_HEADS, POSITIONS = 64, 96, 2, 4, 2, 256
# Longer than a tile of attention, the windows and the original contexts of the scaled embeddings.
IDS: list[int] = np.random.default_rng(7).integers(0, VOCABULARY, 70).tolist()
_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": FF,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": POSITIONS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One structure.

    Attributes:
        name: Of the test.
        kind: Transformers' ``KINDConfig`` and ``KINDForCausalLM``, or one of ``own_models``.
        options: Of the configuration, beside the common sizes; ``...`` takes a size away.
        extra: Keys of ``config.json`` that transformers no longer writes but published files have.
        ids: How many of ``IDS`` the test reads.
        differences: Keys of the converted file, without the architecture, in which llama.cpp's
            converter differs.
        converted_by_llama_cpp: Whether it reads the folder at all.
    """

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    ids: int = len(IDS)
    differences: tuple[str, ...] = ()
    converted_by_llama_cpp: bool = True


def random_values(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Of a parameter, a function of its name: norms around one, biases around zero."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if len(shape) < 2:
        norm = name.endswith(("weight", "layer_scalar", "_norm"))
        return random.normal(1.0 if norm else 0.0, 0.2, shape).astype(np.float32)
    embedding = any(part in name for part in ("embed", "wte", "wpe"))
    deviation = 0.5 if embedding else 1.6 / np.sqrt(shape[-1])
    return random.normal(0.0, deviation, shape).astype(np.float32)


def save(case: Case, folder: Path) -> Any:
    """Writes the folder, without a tokenizer, and returns transformers' model in float32."""
    import torch

    config_class, kind = classes(case.kind)
    options = copy.deepcopy(dict(case.options))  # configurations change what they are given
    sizes = {k: v for k, v in {**_SIZES, **options}.items() if v is not ...}
    config = config_class(**sizes)
    config._attn_implementation = "eager"
    model = kind(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = random_values(name, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values))
        for name, buffer in model.named_buffers():
            if name.endswith(
                ("e_score_correction_bias", "layer_scalar")
            ):  # trained, though no parameter
                values = random_values(name, tuple(buffer.shape))
                buffer.copy_(torch.from_numpy(values))
    model.save_pretrained(folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **case.extra}))
    if case.kind == "BitNet":
        _make_ternary(model)
    if case.kind == "Nanbeige":
        loop(model, case.extra)
    return model


def classes(kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What makes the configuration and the model of a kind."""
    import own_models
    import transformers

    if kind in own_models.CLASSES:
        return own_models.CLASSES[kind]
    known = "Llama" if kind == "Nanbeige" else kind  # see loop()
    # Not all kinds are known to the automatic class.
    automatic = transformers.AutoModelForCausalLM.from_config
    return getattr(transformers, f"{known}Config"), getattr(
        transformers, f"{known}ForCausalLM", automatic
    )


def loop(model: Any, config: Mapping[str, Any]) -> None:
    """Send tokens through the layers of a Llama as often as the ``config.json`` of a Nanbeige says."""
    import torch

    layers, loops = list(model.model.layers), config["num_loops"]
    model.model.layers = torch.nn.ModuleList(layers * loops)
    model.config.num_hidden_layers = len(layers) * loops
    model.config.use_cache = False  # it has keys and values of each module, once
    times = itertools.cycle(range(1, loops + 1))
    if not config["skip_loop_final_norm"]:
        layers[-1].register_forward_hook(
            lambda module, given, out: out if next(times) == loops else model.model.norm(out)
        )


def _make_ternary(model: Any) -> None:
    """What the model's own linear layers do at each use where it is loaded with its quantization."""
    import torch

    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                scale = module.weight.abs().mean().clamp(min=1e-5)
                module.weight.copy_((module.weight / scale).round().clamp(-1, 1) * scale)


def logits(model: Any, ids: list[int]) -> npt.NDArray[np.float32]:
    """Of transformers' float32 pass: [n, vocabulary]."""
    import torch

    with torch.no_grad():
        found: npt.NDArray[np.float32] = model(torch.tensor([ids])).logits[0].float().numpy()
    return found


def _nanbeige(loops: int, *, skip: bool = False) -> dict[str, Any]:
    return {
        "architectures": ["NanbeigeForCausalLM"], "model_type": "nanbeige", "num_loops": loops,
        "skip_loop_final_norm": skip,
    }  # fmt: skip


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 5e5,
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4,
}  # fmt: skip
_PAIRS = HIDDEN // HEADS // 2
_LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 48,
    "long_factor": [1.0 + 0.5 * i for i in range(_PAIRS)],
    "short_factor": [1.0 + 0.1 * i for i in range(_PAIRS)],
}  # fmt: skip
_GPT2 = {
    "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS,
    "hidden_size": ..., "intermediate_size": ..., "num_hidden_layers": ...,
    "num_attention_heads": ..., "num_key_value_heads": ..., "max_position_embeddings": ...,
}  # fmt: skip
_BLOOM = {
    "n_layer": LAYERS, "n_head": HEADS, "num_hidden_layers": ..., "num_attention_heads": ...,
    "num_key_value_heads": ..., "intermediate_size": ..., "max_position_embeddings": ...,
}  # fmt: skip
_MPT = {
    "d_model": HIDDEN, "n_layers": LAYERS, "n_heads": HEADS, "max_seq_len": POSITIONS,
    "hidden_size": ..., "num_hidden_layers": ..., "num_attention_heads": ...,
    "num_key_value_heads": ..., "intermediate_size": ..., "max_position_embeddings": ...,
}  # fmt: skip
_GROWING = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}  # fmt: skip
_GPT_NEO = {
    "num_layers": LAYERS, "num_heads": HEADS, "num_hidden_layers": ..., "num_attention_heads": ...,
    "num_key_value_heads": ..., "window_size": 24,
}  # fmt: skip
_PHI3_SMALL = {
    "ff_intermediate_size": FF, "intermediate_size": ..., "layer_norm_epsilon": 1e-5,
    "hidden_act": "gegelu", "gegelu_limit": 2.0, "ff_dim_multiplier": None, "mup_use_scaling": True,
    "mup_attn_multiplier": 2.5, "mup_embedding_multiplier": 3.0, "mup_width_multiplier": 0.5,
    "rope_embedding_base": 1e4, "rope_position_scale": 1.0, "tie_word_embeddings": True,
    "blocksparse_block_size": 8, "blocksparse_num_local_blocks": 2, "blocksparse_vert_stride": 3,
    "blocksparse_homo_head_pattern": False, "dense_attention_every_n_layers": 2,
    "num_hidden_layers": 3, "dummy_token_indices": [],
}  # fmt: skip
_DILATED = {
    "num_hidden_layers": 4, "attention_window": [20, 9, 0, 4], "attention_dilation": [1, 3, 1, 7],
    "global_tokens": 0,
}  # fmt: skip
_DEPTHS = {"num_hidden_layers": 4, "mod_interval": 2, "mod_capacity": 0.5}
_HALF = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
_LOCAL = {"num_hidden_layers": 4, "sliding_window": 24}


def _own(kind: str, model_type: str) -> dict[str, Any]:
    return {"architectures": [f"{kind}ForCausalLM"], "model_type": model_type}


def _rope(**parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **parameters}}


def _by_kind(rope: dict[str, Any]) -> dict[str, Any]:
    """A rotary embedding of the layers that see all, and a plain one of those with a window."""
    local = {"rope_type": "default", "rope_theta": 1e4}
    return {"full_attention": rope, "sliding_attention": local}


CASES: list[Case] = [
    Case("gemma", "Gemma", {"head_dim": 32}),
    Case("gemma2", "Gemma2", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 24}),
    Case("phi3", "Phi3", {"sliding_window": 24}),
    Case(
        "phi3-long",
        "Phi3",
        {
            "rope_parameters": _LONGROPE,
            "original_max_position_embeddings": 48,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "phi3-short",
        "Phi3",
        {
            "rope_parameters": _LONGROPE,
            "original_max_position_embeddings": 48,
            "max_position_embeddings": 48,
        },
        ids=48,
    ),
    Case("phi3-partial", "Phi3", _rope(partial_rotary_factor=0.75)),
    Case(
        "phi2",
        "Phi",
        {
            "num_key_value_heads": HEADS,
            "intermediate_size": 4 * HIDDEN,
            **_rope(partial_rotary_factor=0.5),
        },
    ),
    Case("olmo", "Olmo", {"clip_qkv": 1.0}),
    Case("olmo-tied", "Olmo", {"tie_word_embeddings": True}),
    Case("olmo2", "Olmo2"),
    Case("olmo3", "Olmo3", {**_LOCAL, "rope_parameters": _by_kind(_YARN)}),
    Case(
        "granite",
        "Granite",
        {
            "attention_multiplier": 0.3,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "logits_scaling": 2.5,
        },
    ),
    Case(
        "granite-biases",
        "Granite",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    Case("smollm3", "SmolLM3", {"num_hidden_layers": 4}),
    Case("starcoder", "GPTBigCode", _GPT2),
    Case("starcoder2", "Starcoder2"),
    Case(
        "starcoder2-window",
        "Starcoder2",
        {"sliding_window": 24, "tie_word_embeddings": False},
        differences=("attention.sliding_window",),
    ),
    Case("gpt2", "GPT2", _GPT2, {"n_ctx": POSITIONS}),
    Case("gptneox", "GPTNeoX", _rope(partial_rotary_factor=0.25), {"rotary_pct": 0.25}),
    Case(
        "gptneox-sequential",
        "GPTNeoX",
        {"use_parallel_residual": False, **_rope(partial_rotary_factor=1.0)},
        {"rotary_pct": 1.0},
    ),
    Case(
        "falcon",
        "Falcon",
        {"multi_query": True, "new_decoder_architecture": False, "max_position_embeddings": 2048},
        {"num_kv_heads": None},
    ),
    Case(
        "falcon-two-norms",
        "Falcon",
        {"new_decoder_architecture": True, "max_position_embeddings": 2048, "num_kv_heads": 2},
    ),
    Case(
        "falcon-one-norm",
        "Falcon",
        {
            "new_decoder_architecture": True,
            "max_position_embeddings": 2048,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "tie_word_embeddings": False,
        },
    ),
    Case("stablelm", "StableLm", _rope(partial_rotary_factor=0.25)),
    Case("stablelm-biases", "StableLm", {"use_qkv_bias": True, **_rope(partial_rotary_factor=0.5)}),
    Case("command-r", "Cohere", {"logit_scale": 0.3}),
    Case("command-r-plus", "Cohere", {"logit_scale": 0.3, "use_qk_norm": True}),
    Case("cohere2", "Cohere2", {**_LOCAL, "logit_scale": 0.3, "head_dim": 16}, {"rotary_pct": 1.0}),
    Case(
        "chatglm",
        "Glm",
        {"head_dim": 16, "rope_parameters": _HALF, "attention_bias": True},
        {"seq_length": POSITIONS},
        differences=("attention.layer_norm_rms_epsilon",),
    ),
    Case("glm4", "Glm4", {"head_dim": 16, "rope_parameters": _HALF}),
    Case("glm4-biases", "Glm4", {"head_dim": 16, "rope_parameters": _HALF, "attention_bias": True}),
    Case(
        "exaone4",
        "Exaone4",
        {"sliding_window": None, "layer_types": ["full_attention"] * 2, "rope_parameters": LLAMA3},
    ),
    Case("exaone4-windows", "Exaone4", {**_LOCAL, "sliding_window_pattern": 4}),
    Case(
        "nemotron",
        "Nemotron",
        {"head_dim": 16, **_rope(partial_rotary_factor=0.5)},
        differences=("attention.layer_norm_rms_epsilon",),
    ),
    Case("nanbeige", "Nanbeige", {"rope_parameters": LLAMA3}, _nanbeige(3)),
    Case("nanbeige-without-norms", "Nanbeige", {"head_dim": 32}, _nanbeige(2, skip=True)),
    Case("arcee", "Arcee", {"rope_parameters": _YARN}),
    Case("seed-oss", "SeedOss", {"head_dim": 32}),
    Case("ernie4_5", "Ernie4_5", {"head_dim": 32}),
    Case("ernie4_5-biases", "Ernie4_5", {"use_bias": True, "tie_word_embeddings": True}),
    Case("hunyuan-dense", "HunYuanDenseV1", {"head_dim": 16}),
    Case("bitnet", "BitNet", {"tie_word_embeddings": True}, converted_by_llama_cpp=False),
    Case(
        "bitnet-silu",
        "BitNet",
        {"tie_word_embeddings": True, "hidden_act": "silu"},
        converted_by_llama_cpp=False,
    ),
    Case(
        "olmo3-magnitude",
        "Olmo3",
        {**_LOCAL, "rope_parameters": _by_kind({**_YARN, "attention_factor": 1.5})},
    ),
    Case("apertus", "Apertus", {"rope_parameters": LLAMA3}),
    Case("bloom", "Bloom", _BLOOM, {"seq_length": POSITIONS}),
    Case(
        "bloom-six-heads",
        "Bloom",
        {**_BLOOM, "hidden_size": 96, "n_head": 6},
        {"seq_length": POSITIONS},
    ),
    Case("gptj", "GPTJ", {**_GPT2, "rotary_dim": 8}, converted_by_llama_cpp=False),
    Case("jais2", "Jais2"),
    Case("mpt", "Mpt", _MPT, {"architectures": ["MPTForCausalLM"]}),
    Case(
        "mpt-clipped",
        "Mpt",
        {
            **_MPT,
            "n_heads": 6,
            "d_model": 96,
            "attn_config": {"clip_qkv": 1.0},
        },
        {"architectures": ["MPTForCausalLM"]},
    ),
    Case(
        "minicpm3",
        "MiniCPM3",
        {
            "num_key_value_heads": HEADS,
            "kv_lora_rank": 64,
            "q_lora_rank": 32,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 8,
            "scale_emb": 3.0,
            "scale_depth": 1.1,
            "dim_model_base": 32,
        },
        differences=("embedding_scale", "logit_scale", "residual_scale"),
    ),
    Case(
        "gemma3n",
        "Gemma3nText",
        {
            "num_hidden_layers": 4,
            "num_kv_shared_layers": 2,
            "head_dim": 8,
            "sliding_window": 24,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCABULARY,
            "laurel_rank": 16,
            "activation_sparsity_pattern": [0.8, 0.0, 0.5, 0.0],
            "altup_num_inputs": 4,
        },
        differences=("activation_sparsity_scale",),  # in its last bit
    ),
    Case(
        "gptneo",
        "GPTNeo",
        {**_GPT_NEO, "attention_types": [[["global", "local"], 1]]},
        converted_by_llama_cpp=False,
    ),
    Case("phi3small", "Phi3Small", _PHI3_SMALL, converted_by_llama_cpp=False),
    Case(
        "phi3small-strides",
        "Phi3Small",
        {**_PHI3_SMALL, "blocksparse_vert_stride": 8, "dense_attention_every_n_layers": None},
        converted_by_llama_cpp=False,
    ),
    Case(
        "phi3small-alike",
        "Phi3Small",
        {**_PHI3_SMALL, "blocksparse_homo_head_pattern": True, "tie_word_embeddings": False},
        converted_by_llama_cpp=False,
    ),
    Case("dilated", "Dilated", _DILATED, _own("Dilated", "dilated"), converted_by_llama_cpp=False),
    Case(
        "dilated-global",
        "Dilated",
        {**_DILATED, "global_tokens": 5, "rope_parameters": LLAMA3},
        _own("Dilated", "dilated"),
        converted_by_llama_cpp=False,
    ),
    Case(
        "mixture-of-depths",
        "MixtureOfDepths",
        _DEPTHS,
        _own("MixtureOfDepths", "mixture_of_depths"),
        converted_by_llama_cpp=False,
    ),
    Case(
        "mixture-of-depths-all",
        "MixtureOfDepths",
        {**_DEPTHS, "mod_interval": 1, "head_dim": 32, "tie_word_embeddings": True},
        _own("MixtureOfDepths", "mixture_of_depths"),
        converted_by_llama_cpp=False,
    ),
    Case("mistral3", "Ministral3", {"head_dim": 16, "rope_parameters": _GROWING}),
]
