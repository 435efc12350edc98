"""Writes a GGUF file with the shapes of a published model and random weights, to time engines with.

    python bench/make_random_model.py --shape qwen3moe-30b-a3b --layers 8 --type Q4_K OUT.gguf

Speed depends on shapes and types, not on values; the text of such a model is noise. A matrix repeats a
few thousand rows that were encoded once. All matrices have one type, or those of a mix such as Q4_K_M, as
quantize chooses them; vectors, routers and small tables are F32. Then:

    python bench/compare_llama_cpp.py OUT.gguf
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from make_random_bonsai import make_up_vocabulary
from oxibonsai import _core
from oxibonsai.quantize.mixes import find_mix
from oxibonsai.quantize.type_choice import ModelShape, Tensor, TypeRules, choose
from oxibonsai.quantize.weight_types import find_type, type_named

Shapes = Iterator[tuple[str, tuple[int, ...]]]
CONTEXT = 8192
# Rows that are encoded; a matrix repeats them.
ENCODED_ROWS = 512
SMALL = ("norm", "ffn_gate_inp", "ssm_a", "ssm_d", "conv1d", "sinks", ".bias", "ssm_dt")


@dataclass(frozen=True)
class Shape:
    """One published model.

    Attributes:
        architecture: GGUF's name.
        layers: Of the whole model.
        rows: Of the vocabulary.
        keys: Of the architecture, beside the number of layers.
        outside: Shapes of the tensors outside of the layers, beside the token embedding.
        layer: Shapes of a layer's tensors, by its number.
    """

    architecture: str
    layers: int
    rows: int
    keys: dict[str, Any]
    outside: dict[str, tuple[int, ...]]
    layer: Callable[[int], dict[str, tuple[int, ...]]]


def dense(layer: int) -> dict[str, tuple[int, ...]]:
    """Of LLaMA 3 8B and Mistral 7B."""
    return {
        "attn_norm.weight": (4096,),
        "attn_q.weight": (4096, 4096),
        "attn_k.weight": (1024, 4096),
        "attn_v.weight": (1024, 4096),
        "attn_output.weight": (4096, 4096),
        "ffn_norm.weight": (4096,),
        "ffn_gate.weight": (14336, 4096),
        "ffn_up.weight": (14336, 4096),
        "ffn_down.weight": (4096, 14336),
    }


def qwen3moe(layer: int) -> dict[str, tuple[int, ...]]:
    """Of Qwen3-30B-A3B."""
    return {
        "attn_norm.weight": (2048,),
        "attn_q.weight": (4096, 2048),
        "attn_k.weight": (512, 2048),
        "attn_v.weight": (512, 2048),
        "attn_q_norm.weight": (128,),
        "attn_k_norm.weight": (128,),
        "attn_output.weight": (2048, 4096),
        "ffn_norm.weight": (2048,),
        "ffn_gate_inp.weight": (128, 2048),
        "ffn_gate_exps.weight": (128, 768, 2048),
        "ffn_up_exps.weight": (128, 768, 2048),
        "ffn_down_exps.weight": (128, 2048, 768),
    }


def gpt_oss(layer: int) -> dict[str, tuple[int, ...]]:
    """Of gpt-oss-20b."""
    return {
        "attn_norm.weight": (2880,),
        "attn_q.weight": (4096, 2880),
        "attn_q.bias": (4096,),
        "attn_k.weight": (512, 2880),
        "attn_k.bias": (512,),
        "attn_v.weight": (512, 2880),
        "attn_v.bias": (512,),
        "attn_output.weight": (2880, 4096),
        "attn_output.bias": (2880,),
        "attn_sinks.weight": (64,),
        "post_attention_norm.weight": (2880,),
        "ffn_gate_inp.weight": (32, 2880),
        "ffn_gate_inp.bias": (32,),
        **{f"ffn_{part}_exps.weight": (32, 2880, 2880) for part in ("gate", "up", "down")},
        **{f"ffn_{part}_exps.bias": (32, 2880) for part in ("gate", "up", "down")},
    }


def mamba2(layer: int) -> dict[str, tuple[int, ...]]:
    """Of Mamba 2 370M."""
    return {
        "attn_norm.weight": (1024,),
        "ssm_in.weight": (4384, 1024),
        "ssm_conv1d.weight": (2304, 4),
        "ssm_conv1d.bias": (2304,),
        "ssm_dt.bias": (32,),
        "ssm_a": (32, 1),
        "ssm_d": (32, 1),
        "ssm_norm.weight": (1, 2048),
        "ssm_out.weight": (1024, 2048),
    }


def deepseek2_lite(layer: int) -> dict[str, tuple[int, ...]]:
    """Of DeepSeek-V2-Lite, whose first layer has no experts."""
    parts = {
        "attn_norm.weight": (2048,),
        "attn_q.weight": (3072, 2048),
        "attn_kv_a_mqa.weight": (576, 2048),
        "attn_kv_a_norm.weight": (512,),
        "attn_k_b.weight": (16, 512, 128),
        "attn_v_b.weight": (16, 128, 512),
        "attn_output.weight": (2048, 2048),
        "ffn_norm.weight": (2048,),
    }
    if layer == 0:
        return parts | {
            "ffn_gate.weight": (10944, 2048),
            "ffn_up.weight": (10944, 2048),
            "ffn_down.weight": (2048, 10944),
        }
    return parts | {
        "ffn_gate_inp.weight": (64, 2048),
        "ffn_gate_exps.weight": (64, 1408, 2048),
        "ffn_up_exps.weight": (64, 1408, 2048),
        "ffn_down_exps.weight": (64, 2048, 1408),
        "ffn_gate_shexp.weight": (2816, 2048),
        "ffn_up_shexp.weight": (2816, 2048),
        "ffn_down_shexp.weight": (2048, 2816),
    }


_EPSILON = {"attention.layer_norm_rms_epsilon": 1e-6}
_DENSE = {
    "attention.layer_norm_rms_epsilon": 1e-5, "embedding_length": 4096,
    "feed_forward_length": 14336, "attention.head_count": 32, "attention.head_count_kv": 8,
    "rope.dimension_count": 128,
}  # fmt: skip
SHAPES = {
    "llama3-8b": Shape(
        "llama",
        32,
        128_256,
        {**_DENSE, "rope.freq_base": 500000.0},
        {"output_norm.weight": (4096,), "output.weight": (128_256, 4096)},
        dense,
    ),
    "mistral-7b": Shape(
        "llama",
        32,
        32_768,
        {**_DENSE, "rope.freq_base": 1e6},
        {"output_norm.weight": (4096,), "output.weight": (32_768, 4096)},
        dense,
    ),
    "qwen3moe-30b-a3b": Shape(
        "qwen3moe",
        48,
        151_936,
        {
            **_EPSILON, "embedding_length": 2048, "feed_forward_length": 6144,
            "attention.head_count": 32, "attention.head_count_kv": 4, "attention.key_length": 128,
            "attention.value_length": 128, "rope.freq_base": 1e6, "expert_count": 128,
            "expert_used_count": 8, "expert_feed_forward_length": 768,
        },
        {"output_norm.weight": (2048,), "output.weight": (151_936, 2048)},
        qwen3moe,
    ),
    "gpt-oss-20b": Shape(
        "gpt-oss",
        24,
        201_088,
        {
            "attention.layer_norm_rms_epsilon": 1e-5, "embedding_length": 2880,
            "feed_forward_length": 2880, "attention.head_count": 64, "attention.head_count_kv": 8,
            "attention.key_length": 64, "attention.value_length": 64, "rope.freq_base": 150000.0,
            "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096, "attention.sliding_window": 128,
            "expert_count": 32, "expert_used_count": 4, "expert_feed_forward_length": 2880,
        },
        {"output_norm.weight": (2880,), "output.weight": (201_088, 2880)},
        gpt_oss,
    ),
    "mamba2-370m": Shape(
        "mamba2",
        48,
        50_288,
        {
            "attention.layer_norm_rms_epsilon": 1e-5, "embedding_length": 1024,
            "feed_forward_length": 0, "attention.head_count": 0, "ssm.conv_kernel": 4,
            "ssm.inner_size": 2048, "ssm.state_size": 128, "ssm.time_step_rank": 32,
            "ssm.group_count": 1,
        },
        {"output_norm.weight": (1024,)},
        mamba2,
    ),
    "deepseek2-lite": Shape(
        "deepseek2",
        27,
        102_400,
        {
            **_EPSILON, "embedding_length": 2048, "feed_forward_length": 10944,
            "attention.head_count": 16, "attention.head_count_kv": 1, "attention.key_length": 576,
            "attention.value_length": 512, "attention.key_length_mla": 192,
            "attention.value_length_mla": 128, "attention.kv_lora_rank": 512,
            "rope.dimension_count": 64, "rope.freq_base": 10000.0, "expert_count": 64,
            "expert_used_count": 6, "expert_feed_forward_length": 1408, "expert_shared_count": 2,
            "expert_weights_scale": 1.0, "expert_gating_func": 1, "leading_dense_block_count": 1,
            # Of fewer than 26 layers, llama.cpp reads them as the Lite model's only if told so.
            "attention.q_lora_rank": 0,
        },
        {"output_norm.weight": (2048,), "output.weight": (102_400, 2048)},
        deepseek2_lite,
    ),
}  # fmt: skip


def tensors(shape: Shape, layers: int) -> Shapes:
    """Names and shapes in the order of the file."""
    yield "token_embd.weight", (shape.rows, shape.keys["embedding_length"])
    for i in range(layers):
        for name, size in shape.layer(i).items():
            yield f"blk.{i}.{name}", size
    yield from shape.outside.items()


def types_of(shape: Shape, keys: dict[str, Any], layers: int, wanted: str) -> dict[str, str]:
    """The type of each tensor: small ones are floats, matrices have what quantize chooses for them."""
    kinds = {name: "F32" for name, _ in tensors(shape, layers)}
    large = [
        Tensor(name, size, "F32")
        for name, size in tensors(shape, layers)
        if name.endswith(".weight") and len(size) > 1 and not any(part in name for part in SMALL)
    ]
    facts = ModelShape.of({"general.architecture": shape.architecture, **keys}.get)
    rules = TypeRules(find_mix(wanted), pure=find_type(wanted) is not None)
    for choice in choose(large, facts, rules, measured=False):
        kinds[choice.tensor.name] = choice.type.name
    return kinds


def values(
    random: np.random.Generator, name: str, size: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    """Norms near 1, decays negative, matrices that keep the size of what they read."""
    if name.endswith("ssm_a"):
        return -np.exp(random.normal(-2.0, 1.0, size)).astype(np.float32)
    if len(size) == 1 or "norm" in name:
        return random.normal(1.0 if "norm" in name else 0.1, 0.05, size).astype(np.float32)
    return random.normal(0.0, 1.5 / math.sqrt(size[-1]), size).astype(np.float32)


def encoded(random: np.random.Generator, kind: str, size: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Blocks of a matrix, or of one for each expert, whose rows repeat."""
    rows = math.prod(size[:-1])
    few = values(random, "", (min(rows, ENCODED_ROWS), size[-1]))
    blocks = np.asarray(_core.encode(few, kind, None)).view(np.uint8).reshape(len(few), -1)
    return np.resize(blocks, (rows, blocks.shape[1])).reshape(-1)


def write(out: Path, shape: Shape, kind: str, layers: int, seed: int) -> None:
    """Writes tensor by tensor: memory holds one at a time."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(out, shape.architecture)
    own = {"block_count": layers, "context_length": CONTEXT, **shape.keys}
    keys = {f"{shape.architecture}.{key}": value for key, value in own.items()}
    for name, value in keys.items():
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_float32(name, value)
    make_up_vocabulary(writer, shape.rows)
    kinds = types_of(shape, keys, layers, kind)
    infos = {}
    for name, size in tensors(shape, layers):
        number: Any = type_named(kinds[name]).gguf_id  # one that the package may have no name for
        nbytes = type_named(kinds[name]).size(math.prod(size))
        infos[name] = gguf.gguf_writer.TensorInfo(shape=size, dtype=number, nbytes=nbytes)
    writer.tensors[-1].update(infos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, size in tensors(shape, layers):
        if kinds[name] == "F32":
            writer.write_tensor_data(values(random, name, size))
        else:
            writer.write_tensor_data(encoded(random, kinds[name], size))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a random model of published shapes.")
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument(
        "--type", default="Q4_K", help="of matrices, as oxibonsai quantize names it"
    )
    parser.add_argument("--layers", type=int, help="cut to this many layers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out", type=Path)
    a = parser.parse_args()
    shape = SHAPES[a.shape]
    layers = shape.layers if a.layers is None else a.layers
    if not 1 <= layers <= shape.layers:
        parser.error(f"--layers is {layers}; {a.shape} has 1 to {shape.layers}")
    write(a.out, shape, a.type, layers, a.seed)
    print(f"{a.out}: {a.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
