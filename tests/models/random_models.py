"""Small random models: the same weights as a GGUF file and as a transformers model in float32.

The files are written with the public `gguf` package, and decoded by it or by `random_blocks`, so
that nothing of ours is on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from random_blocks import FORMATS, random_rows

VOCABULARY = 997  # odd: tails in every tile
HIDDEN, FF, LAYERS = 256, 512, 4
# A prompt longer than the sliding window, a tile of attention and the original context of YaRN.
IDS: list[int] = np.random.default_rng(5).integers(0, VOCABULARY, 100).tolist()
Floats = npt.NDArray[np.float32]


@dataclass
class RandomModel:
    """A recipe: which structure, and what its GGUF file says of it."""

    name: str
    config: Callable[[], Any]
    architecture: str
    keys: dict[str, Any] = field(default_factory=dict)
    interleaved: bool = False  # q and k rows are permuted by the converter
    gemma: bool = False


def _tensor_name(name: str, gemma: bool) -> str:
    """GGUF's name of a transformers parameter."""
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    module, _, kind = rest.rpartition(".")
    names = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "post_attention_layernorm": "post_attention_norm" if gemma else "ffn_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    return f"blk.{layer}.{names[module]}.{kind}"


def _unpermute(values: Floats, heads: int) -> Floats:
    """Rows from the order of interleaved pairs (GGUF) to that of halves (transformers)."""
    rows = values.shape[0]
    paired = values.reshape(heads, rows // heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(paired.swapaxes(1, 2).reshape(values.shape))


def build(
    recipe: RandomModel, path: Path, quant_type: str, seed: int = 0, gguf_id: int | None = None
) -> Any:
    """Writes the file and returns the transformers model with the same (dequantized) weights.

    Args:
        recipe: Which structure.
        path: Where to write.
        quant_type: Type of all matrices; vectors stay F32.
        seed: Of the weights.
        gguf_id: Tensor type id to store, where it is not the type's own.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = recipe.config()
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), recipe.architecture)
    _write_keys(writer, recipe, config, model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            raw, values, kind = _random_parameter(random, name, shape, quant_type)
            heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
            part = next((p for p in heads if p in name), None)
            hf = _unpermute(values, heads[part]) if recipe.interleaved and part else values
            gemma_norm = recipe.gemma and "norm" in name
            parameter.copy_(torch.from_numpy(hf - 1.0 if gemma_norm else hf))
            _add_tensor(writer, _tensor_name(name, recipe.gemma), raw, shape, kind, gguf_id)
    if getattr(config, "rope_parameters", {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(config, model))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _random_parameter(
    random: np.random.Generator, name: str, shape: tuple[int, ...], quant_type: str
) -> tuple[npt.NDArray[Any], Floats, str]:
    if len(shape) == 2:
        deviation = 0.15 if "embed" in name else 1.6 / np.sqrt(shape[1])
        raw, values = random_rows(random, quant_type, *shape, deviation)
        return raw, values, quant_type
    centre = 1.0 if "norm" in name else 0.0
    values = random.normal(centre, 0.2, shape).astype(np.float32)
    return values, values, "F32"


def _add_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    raw: npt.NDArray[Any],
    shape: tuple[int, ...],
    kind: str,
    gguf_id: int | None,
) -> None:
    if kind in ("F32", "F16"):
        dtype = np.float32 if kind == "F32" else np.float16
        writer.add_tensor(name, np.ascontiguousarray(raw).view(dtype).reshape(shape))
        return
    if kind == "BF16":
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        return
    # The package does not know all types, but of an id it only writes the number.
    number = FORMATS[kind].gguf_id if gguf_id is None else gguf_id
    writer.tensors[-1][name] = gguf.gguf_writer.TensorInfo(
        shape=shape, dtype=number, nbytes=raw.nbytes, tensor=raw
    )


def _llama3_factors(config: Any, model: Any) -> Floats:
    rope = config.rope_parameters
    pairs = config.head_dim // 2
    plain = rope["rope_theta"] ** -(np.arange(pairs, dtype=np.float64) / pairs)
    scaled = model.model.rotary_emb.inv_freq.numpy().astype(np.float64)
    return (plain / scaled).astype(np.float32)


def _write_keys(writer: gguf.GGUFWriter, recipe: RandomModel, config: Any, model: Any) -> None:
    a = recipe.architecture
    writer.add_context_length(4096)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if recipe.architecture == "llama":
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_vocab_size(config.vocab_size)
    for key, value in recipe.keys.items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        if isinstance(value, int):
            add = writer.add_uint32
        add(f"{a}.{key}", value)
    _write_tokenizer(writer, recipe.gemma)


def _write_tokenizer(writer: gguf.GGUFWriter, spm: bool) -> None:
    """The smallest that is valid: every byte, then fillers."""
    if spm:
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        tokens += [f"filler{i}" for i in range(VOCABULARY - len(tokens))]
        types = [2, 3, 3] + [6] * 256 + [1] * (VOCABULARY - 259)
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([0.0] * VOCABULARY)
    else:
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [b for b in range(256) if b not in printable]
        tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
        tokens += ["ab"] + [f"filler{i}" for i in range(VOCABULARY - len(tokens) - 2)] + ["<|end|>"]
        types = [1] * (VOCABULARY - 1) + [3]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(VOCABULARY - 1)
    writer.add_token_list(tokens)
    writer.add_token_types(types)


def reference_logits(model: Any, ids: list[int]) -> Floats:
    """Logits of transformers' float32 forward pass: [n, vocabulary]."""
    import torch

    with torch.no_grad():
        logits: Floats = model(torch.tensor([ids])).logits[0].float().numpy()
    return logits


def relative_distance(logits: Floats, truth: Floats) -> float:
    """Norm of the difference as a share of the truth's norm."""
    return float(np.linalg.norm(logits - truth) / np.linalg.norm(truth))


def _qwen3(tied: bool, rope: dict[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import Qwen3Config

        return Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FF,
            num_hidden_layers=LAYERS, num_attention_heads=8, num_key_value_heads=2,
            head_dim=64, rms_norm_eps=1e-6,
            max_position_embeddings=4096, tie_word_embeddings=tied, rope_parameters=rope,
        )  # fmt: skip

    return make


def _qwen2() -> Any:
    from transformers import Qwen2Config

    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FF,
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
        rms_norm_eps=1e-6, max_position_embeddings=4096,
        tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    config.head_dim = 64
    return config


def _llama(rope: dict[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FF,
            num_hidden_layers=LAYERS, num_attention_heads=8, num_key_value_heads=4,
            head_dim=32, rms_norm_eps=1e-5,
            max_position_embeddings=4096, tie_word_embeddings=False, rope_parameters=rope,
        )  # fmt: skip

    return make


def _gemma3(scaled: bool) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import Gemma3TextConfig

        global_rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6}
        if scaled:
            global_rope = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
        return Gemma3TextConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FF, num_hidden_layers=7,
            num_attention_heads=4, num_key_value_heads=1, head_dim=64, rms_norm_eps=1e-6,
            query_pre_attn_scalar=64, sliding_window=24, max_position_embeddings=4096,
            hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True,
            rope_parameters={
                "full_attention": global_rope,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
            pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip

    return make


_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 1e6,
}
_YARN_KEYS = {
    "rope.freq_base": 1e6,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 5e5,
}

QWEN3 = RandomModel("qwen3-yarn", _qwen3(False, _YARN), "qwen3", _YARN_KEYS)
STRUCTURES = [
    QWEN3,
    RandomModel("qwen3-yarn-tied", _qwen3(True, _YARN), "qwen3", _YARN_KEYS),
    RandomModel(
        "qwen3-plain",
        _qwen3(True, {"rope_type": "default", "rope_theta": 1e6}),
        "qwen3",
        {"rope.freq_base": 1e6},
    ),
    RandomModel("qwen2", _qwen2, "qwen2", {"rope.freq_base": 1e6}),
    RandomModel(
        "llama2",
        _llama({"rope_type": "default", "rope_theta": 1e4}),
        "llama",
        {"rope.freq_base": 1e4},
        interleaved=True,
    ),
    RandomModel(
        "llama-linear",
        _llama({"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}),
        "llama",
        {"rope.freq_base": 1e4, "rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        interleaved=True,
    ),
    RandomModel("llama3", _llama(_LLAMA3), "llama", {"rope.freq_base": 5e5}, interleaved=True),
    RandomModel(
        "gemma3",
        _gemma3(False),
        "gemma3",
        {"rope.freq_base": 1e6, "attention.sliding_window": 24},
        gemma=True,
    ),
    RandomModel(
        "gemma3-linear",
        _gemma3(True),
        "gemma3",
        {
            "rope.freq_base": 1e6,
            "attention.sliding_window": 24,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        gemma=True,
    ),
]
