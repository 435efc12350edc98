"""Writes a GGUF file with the shapes of a Bonsai model and random weights, to time engines with.

    python bench/make_random_bonsai.py --size 1.7B --type Q1_0 [--vocab QWEN2.gguf] OUT.gguf
    python bench/make_random_bonsai.py --bonsai2 9B --type pq2_0 [--mtp] [--mmproj] OUT.gguf

Speed depends on shapes and types, not on values; the text of such a model is noise. Without --vocab the
vocabulary is made up, as large as the published one: all bytes, and runs of letters that merge one by one.
A Bonsai 2 is said to be Hadamard-rotated, as the published files are. --mtp adds a layer that drafts, as
community files have it; --mmproj writes a vision tower beside OUT.gguf.
"""

from __future__ import annotations

import argparse
import itertools
import math
import string
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from oxibonsai.tokenizer.byte_level import BYTE_OF

Bytes = npt.NDArray[np.uint8]
# Of Qwen3's vocabulary, as published: odd, so that every tiled kernel has a tail.
ROWS = 151_669
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # of a made-up vocabulary
PICTURES = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)  # Bonsai 2's, too
SPACE = next(c for c, byte in BYTE_OF.items() if byte == ord(" "))
CONTEXT, ORIGINAL_CONTEXT, YARN_FACTOR = 65_536, 16_384, 4.0
# Of Bonsai 27B (Qwen3.5): three layers of four are gated delta rules, the last one attends.
HYBRID_ROWS, HYBRID_CONTEXT, INTERVAL = 248_320, 262_144, 4
KEY_HEADS, STATE, TAPS = 16, 128, 4
ROTATED, SECTIONS = 64, [11, 11, 10, 0]
# Deviation of a matrix times the root of its columns: logits then spread over a few units.
GAIN = 1.5


@dataclass(frozen=True)
class Size:
    layers: int
    hidden: int
    ff: int
    heads: int
    kv_heads: int
    tied: bool
    head_dim: int = 128
    value_heads: int = 0  # of gated delta rules; 0: all layers attend
    block: int = 0  # of the Hadamard rotation; 0: weights are plain

    @property
    def hybrid(self) -> bool:
        """Whether there are gated delta rules."""
        return self.value_heads > 0

    @property
    def rows(self) -> int:
        """Of the vocabulary."""
        return HYBRID_ROWS if self.hybrid else ROWS


SIZES = {
    "0.6B": Size(28, 1024, 3072, 16, 8, True),
    "1.7B": Size(28, 2048, 6144, 16, 8, True),
    "4B": Size(36, 2560, 9728, 32, 8, True),
    "8B": Size(36, 4096, 12288, 32, 8, False),
    "27B": Size(64, 5120, 17408, 24, 4, False, head_dim=256, value_heads=48),
}
BONSAI2 = {
    "2B": Size(24, 2048, 6144, 8, 2, True, head_dim=256, value_heads=16, block=2048),
    "4B": Size(32, 2560, 9216, 16, 4, True, head_dim=256, value_heads=32, block=512),
    "9B": Size(32, 4096, 12288, 16, 4, False, head_dim=256, value_heads=32, block=4096),
    "27B": Size(64, 5120, 17408, 24, 4, False, head_dim=256, value_heads=48, block=1024),
}
# The matrices of a rotated file that stay as they are.
UNROTATED = ("ssm_alpha.weight", "ssm_beta.weight")


@dataclass(frozen=True)
class Format:
    """A block: where the binary16 scale lies, and which bytes the codes may be."""

    gguf_id: int
    group: int
    bytes: int
    scale_at: int
    valid: Bytes
    file_type: int | None = None  # general.file_type, where llama.cpp has one
    four_digits_at: int | None = None  # first byte that holds four base-3 digits, not five
    deviation: float = math.sqrt(2 / 3)  # of what the codes stand for: -1, 0 and 1 alike


_ANY = np.arange(256, dtype=np.uint8)
# Ternary weights only: no field of two bits is 3.
_TWO_BIT = np.array([b for b in range(256) if not b & b >> 1 & 0x55], dtype=np.uint8)
_BASE_3 = np.array([(n * 256 + 242) // 243 for n in range(243)], dtype=np.uint8)
FORMATS = {
    "Q1_0": Format(41, 128, 18, 0, _ANY, 40, deviation=1.0),
    "Q4_0": Format(2, 32, 18, 0, _ANY, 2, deviation=math.sqrt(255 / 12)),
    "Q2_0_g64": Format(42, 64, 18, 0, _TWO_BIT, 41),
    "PQ2_0": Format(142, 128, 34, 0, _TWO_BIT),
    "PTQ1_0": Format(143, 128, 28, 26, _BASE_3, four_digits_at=24),
    "TQ2_0_g128": Format(42, 128, 34, 32, _TWO_BIT),
    "TQ2_0": Format(35, 256, 66, 64, _TWO_BIT, 37),
    "TQ1_0": Format(34, 256, 54, 52, _BASE_3, 36, four_digits_at=48),
}
# Of what is added to a model, and of a tower's matrices whose rows are whole blocks.
Q8_0 = Format(8, 32, 34, 0, _ANY, 7, deviation=math.sqrt((2**16 - 1) / 12))


def attention_parts(size: Size) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a layer's attention; a hybrid's queries come with gates."""
    width, kv = size.heads * size.head_dim, size.kv_heads * size.head_dim
    return {
        "attn_q.weight": (width * (2 if size.hybrid else 1), size.hidden),
        "attn_k.weight": (kv, size.hidden),
        "attn_v.weight": (kv, size.hidden),
        "attn_q_norm.weight": (size.head_dim,),
        "attn_k_norm.weight": (size.head_dim,),
        "attn_output.weight": (size.hidden, width),
    }


def delta_parts(size: Size) -> dict[str, tuple[int, ...]]:
    """The same of a gated delta rule."""
    heads, inner = size.value_heads, size.value_heads * STATE
    width = 2 * KEY_HEADS * STATE + inner
    return {
        "attn_qkv.weight": (width, size.hidden),
        "attn_gate.weight": (inner, size.hidden),
        "ssm_alpha.weight": (heads, size.hidden),
        "ssm_beta.weight": (heads, size.hidden),
        "ssm_conv1d.weight": (width, TAPS),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads,),
        "ssm_norm.weight": (STATE,),
        "ssm_out.weight": (size.hidden, inner),
    }


def drafting_parts(size: Size) -> dict[str, tuple[int, ...]]:
    """What the layer that drafts has beside the parts of one that attends."""
    return {
        "nextn.eh_proj.weight": (size.hidden, 2 * size.hidden),
        "nextn.enorm.weight": (size.hidden,),
        "nextn.hnorm.weight": (size.hidden,),
        "nextn.shared_head_norm.weight": (size.hidden,),
    }


def tensors(
    size: Size, layers: int, *, drafting: bool = False
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the order of the file."""
    yield "token_embd.weight", (size.rows, size.hidden)
    for i in range(layers + drafting):
        recurrent = size.hybrid and (i + 1) % INTERVAL != 0 and i < layers
        parts = {
            "attn_norm.weight": (size.hidden,),
            **(delta_parts(size) if recurrent else attention_parts(size)),
            "post_attention_norm.weight" if size.hybrid else "ffn_norm.weight": (size.hidden,),
            "ffn_gate.weight": (size.ff, size.hidden),
            "ffn_up.weight": (size.ff, size.hidden),
            "ffn_down.weight": (size.hidden, size.ff),
            **(drafting_parts(size) if i == layers else {}),
        }
        for name, shape in parts.items():
            yield f"blk.{i}.{name}", shape
    yield "output_norm.weight", (size.hidden,)
    if not size.tied:
        yield "output.weight", (size.rows, size.hidden)


def format_of(size: Size, layers: int, low_bit: Format, name: str) -> Format | None:
    """Format of a matrix; None: bfloat16, which rotated files have where they are not rotated."""
    if name.startswith(f"blk.{layers}."):
        return Q8_0
    return None if size.block and name.endswith(UNROTATED) else low_bit


def is_float(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is F32: vectors, and the taps of a convolution."""
    return len(shape) == 1 or "conv1d" in name


def info(f: Format | None, name: str, shape: tuple[int, ...]) -> gguf.gguf_writer.TensorInfo:
    """What the file says of a tensor."""
    count = math.prod(shape)
    if is_float(name, shape):
        return gguf.gguf_writer.TensorInfo(
            shape=shape, dtype=gguf.GGMLQuantizationType.F32, nbytes=4 * count
        )
    if f is None:
        return gguf.gguf_writer.TensorInfo(
            shape=shape, dtype=gguf.GGMLQuantizationType.BF16, nbytes=2 * count
        )
    number: Any = f.gguf_id  # one that the package has no name for; it writes any number
    nbytes = count // f.group * f.bytes
    return gguf.gguf_writer.TensorInfo(shape=shape, dtype=number, nbytes=nbytes)


def random_tensor(
    random: np.random.Generator, f: Format | None, name: str, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Norms near 1, decays negative; blocks of random codes under scales within a fifth of one another."""
    if name.endswith("ssm_a"):
        return -np.exp(random.normal(-2.0, 1.0, shape)).astype(np.float32)
    if is_float(name, shape):
        return random.normal(1.0 if "norm" in name else 0.3, 0.05, shape).astype(np.float32)
    if f is None:
        values = random.normal(0.0, GAIN / math.sqrt(shape[1]), shape).astype(np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    blocks = math.prod(shape) // f.group
    raw = f.valid[random.integers(0, len(f.valid), (blocks, f.bytes), dtype=np.uint8)]
    if f.four_digits_at is not None:
        last = f.valid[::3]  # a fifth digit of 0
        where = raw[:, f.four_digits_at : f.scale_at]
        where[...] = last[random.integers(0, len(last), where.shape, dtype=np.uint8)]
    scales = random.uniform(0.9, 1.1, blocks) * (GAIN / math.sqrt(shape[1]) / f.deviation)
    half = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
    raw[:, f.scale_at : f.scale_at + 2] = half
    return raw


def add_vocabulary(writer: gguf.GGUFWriter, path: Path, rows: int) -> None:
    """Copies the tokenizer of another file, cut or filled up to `rows` tokens."""
    fields = gguf.GGUFReader(path).fields
    lists = {key: fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type")}
    if gguf.TokenType.NORMAL in lists["token_type"][rows:]:
        raise ValueError(f"{path} has ordinary tokens after the {rows}th: give a Qwen2 vocabulary")
    missing = range(len(lists["tokens"]), rows)
    lists["tokens"] = lists["tokens"][:rows] + [f"<unused{i}>" for i in missing]
    lists["token_type"] = lists["token_type"][:rows] + [int(gguf.TokenType.UNUSED) for _ in missing]
    for key, field in fields.items():
        if not key.startswith("tokenizer."):
            continue
        value = lists.get(key.removeprefix("tokenizer.ggml."))
        value = field.contents() if value is None else value
        sub_type = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(key, value, field.types[0], sub_type)


def made_up_tokens(rows: int, controls: tuple[str, ...] = CONTROLS) -> tuple[list[str], list[str]]:
    """Tokens of so many rows less the controls, each there once, and the merges that make them."""
    tokens = sorted(BYTE_OF)
    merges: list[str] = []
    room = rows - len(controls) - len(tokens)
    words = (
        (start + "".join(run[:-1]), run[-1])
        for length in itertools.count(1)
        for start in ("", SPACE)
        for run in itertools.product(string.ascii_lowercase, repeat=length)
        if start or length > 1
    )
    for before, last in itertools.islice(words, room):
        tokens.append(before + last)
        merges.append(f"{before} {last}")
    return tokens, merges


def make_up_vocabulary(
    writer: gguf.GGUFWriter, rows: int, controls: tuple[str, ...] = CONTROLS
) -> None:
    """A byte-level tokenizer with Qwen2's rules and ChatML's tokens."""
    tokens, merges = made_up_tokens(rows, controls)
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *controls])
    writer.add_token_types([normal] * len(tokens) + [control] * len(controls))
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) + CONTROLS.index("<|im_end|>"))
    writer.add_pad_token_id(len(tokens) + CONTROLS.index("<|endoftext|>"))
    writer.add_add_bos_token(False)


def add_keys(
    writer: gguf.GGUFWriter,
    name: str,
    size: Size,
    layers: int,
    f: Format,
    *,
    drafting: bool = False,
) -> None:
    writer.add_name(name)
    if f.file_type is not None:
        writer.add_file_type(f.file_type)
    writer.add_context_length(HYBRID_CONTEXT if size.hybrid else CONTEXT)
    writer.add_block_count(layers + drafting)
    if drafting:
        writer.add_uint32("qwen35.nextn_predict_layers", 1)
    writer.add_embedding_length(size.hidden)
    writer.add_feed_forward_length(size.ff)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_key_length(size.head_dim)
    writer.add_value_length(size.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    if size.hybrid:
        return add_hybrid_keys(writer, size)
    writer.add_rope_freq_base(1e6)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(YARN_FACTOR)
    writer.add_rope_scaling_orig_ctx_len(ORIGINAL_CONTEXT)


def add_hybrid_keys(writer: gguf.GGUFWriter, size: Size) -> None:
    """Of the gated delta rules, and of the rotary embedding, which is not scaled."""
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(ROTATED)
    writer.add_rope_dimension_sections(SECTIONS)
    writer.add_uint32("qwen35.full_attention_interval", INTERVAL)
    writer.add_ssm_conv_kernel(TAPS)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_ssm_time_step_rank(size.value_heads)
    writer.add_ssm_inner_size(size.value_heads * STATE)


def rotated_names(size: Size, layers: int) -> list[str]:
    """The matrices that a rotated file says are folded, its table of tokens apart."""
    return [
        name
        for name, shape in tensors(size, layers)
        if not is_float(name, shape)
        and not name.endswith(UNROTATED)
        and name != "token_embd.weight"
    ]


def add_rotation(
    writer: gguf.GGUFWriter, size: Size, layers: int, random: np.random.Generator
) -> None:
    """The contract of a rotated file: version 2 where the table of tokens is the head, too."""
    names = rotated_names(size, layers)
    shapes = dict(tensors(size, layers))
    widths = sorted({size.hidden, *(shapes[name][1] for name in names)})
    key = "prism.hadamard.{}".format
    writer.add_uint32(key("version"), 2 if size.tied else 1)
    writer.add_uint32(key("block_size"), size.block)
    writer.add_string(key("transform"), "normalized-sylvester-walsh-hadamard")
    writer.add_string(key("axis"), "input-last-dimension")
    writer.add_string(key("sign_mode"), "explicit")
    writer.add_array(key("sign_widths"), widths)
    writer.add_array(key("sign_values"), (random.integers(0, 2, sum(widths)) * 2 - 1).tolist())
    writer.add_array(key("weight_names"), names)
    writer.add_array(key("inverse_weight_names"), ["token_embd.weight"])
    writer.add_bool(key("gdn_v_grouped"), True)
    if size.tied:
        writer.add_bool(key("tied_output"), True)


def add_sampling(writer: gguf.GGUFWriter) -> None:
    """What published files of Bonsai 2 state."""
    writer.add_float32("general.sampling.temp", 1.0)
    writer.add_float32("general.sampling.top_p", 0.95)
    writer.add_int32("general.sampling.top_k", 20)


def write(
    out: Path,
    size_name: str,
    type_name: str,
    layers: int,
    vocab: Path | None,
    seed: int,
    *,
    size: Size | None = None,
    drafting: bool = False,
) -> None:
    """Writes tensor by tensor: memory holds one at a time, and `out` appears when all are there."""
    size, f = size or SIZES[size_name], FORMATS[type_name]
    random = np.random.default_rng(seed)
    family = "Bonsai 2" if size.block else "Qwen3.5" if size.hybrid else "Qwen3"
    shapes = dict(tensors(size, layers, drafting=drafting))
    formats = {name: format_of(size, layers, f, name) for name in shapes}
    part = out.with_name(out.name + ".part")
    writer = gguf.GGUFWriter(part, "qwen35" if size.hybrid else "qwen3")
    add_keys(writer, f"random {family} {size_name} {type_name}", size, layers, f, drafting=drafting)
    if size.block:
        add_rotation(writer, size, layers, random)
        add_sampling(writer)
    if vocab is None:
        make_up_vocabulary(writer, size.rows, CONTROLS + PICTURES if size.block else CONTROLS)
    else:
        add_vocabulary(writer, vocab, size.rows)
    infos = {name: info(formats[name], name, shape) for name, shape in shapes.items()}
    write_tensors(
        writer,
        part,
        out,
        infos,
        lambda name, shape: random_tensor(random, formats[name], name, shape),
    )


# Of Qwen3.8's tower, which published ones of the 27B have; those of the 2B and 4B were not seen.
TOWER_LAYERS, TOWER_HIDDEN, TOWER_FF, TOWER_HEADS, PATCH, PLACES, MERGE = (
    27,
    1152,
    4304,
    16,
    16,
    48,
    2,
)


def tower_tensors(size: Size) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the vision tower for a language model."""
    hidden, merged = TOWER_HIDDEN, TOWER_HIDDEN * MERGE**2
    yield "v.patch_embd.weight", (hidden, 3, PATCH, PATCH)
    yield "v.patch_embd.weight.1", (hidden, 3, PATCH, PATCH)
    yield "v.patch_embd.bias", (hidden,)
    yield "v.position_embd.weight", (PLACES**2, hidden)
    matrices = {
        "attn_qkv": (3 * hidden, hidden), "attn_out": (hidden, hidden),
        "ffn_up": (TOWER_FF, hidden), "ffn_down": (hidden, TOWER_FF),
    }  # fmt: skip
    for i in range(TOWER_LAYERS):
        for norm in ("ln1", "ln2"):
            yield f"v.blk.{i}.{norm}.weight", (hidden,)
            yield f"v.blk.{i}.{norm}.bias", (hidden,)
        for name, shape in matrices.items():
            yield f"v.blk.{i}.{name}.weight", shape
            yield f"v.blk.{i}.{name}.bias", shape[:1]
    yield "v.post_ln.weight", (hidden,)
    yield "v.post_ln.bias", (hidden,)
    for name, shape in {"mm.0": (merged, merged), "mm.2": (size.hidden, merged)}.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]


def tower_info(name: str, shape: tuple[int, ...]) -> gguf.gguf_writer.TensorInfo:
    """What the file says of a tensor: Q8_0 where rows are whole blocks, else F16; the first layer F32."""
    if len(shape) == 1 or "embd" in name:
        kind, nbytes = gguf.GGMLQuantizationType.F32, 4 * math.prod(shape)
    elif shape[1] % Q8_0.group:
        kind, nbytes = gguf.GGMLQuantizationType.F16, 2 * math.prod(shape)
    else:
        kind, nbytes = gguf.GGMLQuantizationType.Q8_0, math.prod(shape) // Q8_0.group * Q8_0.bytes
    return gguf.gguf_writer.TensorInfo(shape=shape, dtype=kind, nbytes=nbytes)


def random_tower_tensor(
    random: np.random.Generator, name: str, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Norms near 1; matrices that keep the size of what they read."""
    kind = tower_info(name, shape).dtype
    if kind == gguf.GGMLQuantizationType.Q8_0:
        return random_tensor(random, Q8_0, name, shape)
    centre = 1.0 if name.endswith(("ln1.weight", "ln2.weight", "post_ln.weight")) else 0.0
    width = math.prod(shape[1:]) if len(shape) > 1 else 400
    values = random.normal(centre, 1 / math.sqrt(width), shape)
    return values.astype(np.float16 if kind == gguf.GGMLQuantizationType.F16 else np.float32)


def write_tower(out: Path, size_name: str, size: Size, seed: int) -> None:
    """Writes the vision tower for a language model of this size."""
    random = np.random.default_rng(seed)
    part = out.with_name(out.name + ".part")
    writer = gguf.GGUFWriter(part, "clip")
    writer.add_name(f"random vision tower of Bonsai 2 {size_name}")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "qwen3vl_merger")
    writer.add_bool("clip.use_gelu", True)
    counts = {
        "image_size": PLACES * PATCH, "patch_size": PATCH, "embedding_length": TOWER_HIDDEN,
        "feed_forward_length": TOWER_FF, "block_count": TOWER_LAYERS,
        "attention.head_count": TOWER_HEADS, "projection_dim": size.hidden, "spatial_merge_size": MERGE,
    }  # fmt: skip
    for key, value in counts.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5] * 3)
    writer.add_array("clip.vision.image_std", [0.5] * 3)
    infos = {name: tower_info(name, shape) for name, shape in tower_tensors(size)}
    write_tensors(writer, part, out, infos, partial(random_tower_tensor, random))


def write_tensors(
    writer: gguf.GGUFWriter,
    part: Path,
    out: Path,
    infos: dict[str, gguf.gguf_writer.TensorInfo],
    make: Callable[[str, tuple[int, ...]], npt.NDArray[Any]],
) -> None:
    """Writes header and tensors, each made when its turn comes, into `part`, which becomes `out`."""
    writer.tensors[-1].update(infos)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for i, (name, tensor) in enumerate(infos.items(), 1):
            writer.write_tensor_data(make(name, tuple(tensor.shape)))
            if sys.stderr.isatty():
                end = "\n" if i == len(infos) else ""
                print(f"\r{i}/{len(infos)} {name:32}", end=end, file=sys.stderr, flush=True)
        writer.close()
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a random model of the shapes of a Bonsai.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--size", choices=SIZES, help="of the first generation")
    which.add_argument("--bonsai2", choices=BONSAI2, help="of the second, Hadamard-rotated")
    parser.add_argument("--type", type=format_name, choices=FORMATS, required=True)
    parser.add_argument(
        "--tied", action=argparse.BooleanOptionalAction,
        help="whether the table of tokens is the head, too; default: as this size has it",
    )  # fmt: skip
    parser.add_argument("--mtp", action="store_true", help="add a layer that drafts, in Q8_0")
    parser.add_argument("--mmproj", action="store_true", help="write OUT-mmproj-Q8_0.gguf, too")
    parser.add_argument("--layers", type=int, help="cut to this many layers")
    parser.add_argument("--vocab", type=Path, help="GGUF with a Qwen2 vocabulary to copy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out", type=Path)
    a = parser.parse_args()
    name = a.size or a.bonsai2
    size = SIZES[name] if a.bonsai2 is None else BONSAI2[name]
    layers = size.layers if a.layers is None else a.layers
    if not 1 <= layers <= size.layers:
        parser.error(f"--layers is {layers}; {name} has 1 to {size.layers}")
    if a.vocab is not None and not a.vocab.is_file():
        parser.error(f"--vocab: there is no file {a.vocab}")
    if a.bonsai2 is None and (a.mtp or a.mmproj):
        parser.error("--mtp and --mmproj go with --bonsai2")
    size = size if a.tied is None else replace(size, tied=a.tied)
    write(a.out, name, a.type, layers, a.vocab, a.seed, size=size, drafting=a.mtp)
    print(f"{a.out}: {a.out.stat().st_size / 1e6:.1f} MB")
    if a.mmproj:
        tower = a.out.with_name(f"{a.out.stem}-mmproj-Q8_0.gguf")
        write_tower(tower, name, size, a.seed)
        print(f"{tower}: {tower.stat().st_size / 1e6:.1f} MB")


def format_name(text: str) -> str:
    """The name of a format, whatever its case."""
    return {name.lower(): name for name in FORMATS}.get(text.lower(), text)


if __name__ == "__main__":
    main()
