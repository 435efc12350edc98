"""Writes a GGUF file with the shapes of a Bonsai model and random weights, to time engines with.

    python bench/make_random_bonsai.py --size 1.7B --type Q1_0 [--vocab QWEN2.gguf] OUT.gguf

Speed depends on shapes and types, not on values; the text of such a model is noise. Without --vocab the
vocabulary is made up, as large as the published one: all bytes, and runs of letters that merge one by one.
"""

from __future__ import annotations

import argparse
import itertools
import math
import string
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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
SPACE = next(c for c, byte in BYTE_OF.items() if byte == ord(" "))
CONTEXT, ORIGINAL_CONTEXT, YARN_FACTOR = 65_536, 16_384, 4.0
# Of Bonsai 27B (Qwen3.5): three layers of four are gated delta rules, the last one attends.
HYBRID_ROWS, HYBRID_CONTEXT, INTERVAL = 248_320, 262_144, 4
KEY_HEADS, VALUE_HEADS, STATE, TAPS = 16, 48, 128, 4
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
    hybrid: bool = False

    @property
    def rows(self) -> int:
        """Of the vocabulary."""
        return HYBRID_ROWS if self.hybrid else ROWS


SIZES = {
    "0.6B": Size(28, 1024, 3072, 16, 8, True),
    "1.7B": Size(28, 2048, 6144, 16, 8, True),
    "4B": Size(36, 2560, 9728, 32, 8, True),
    "8B": Size(36, 4096, 12288, 32, 8, False),
    "27B": Size(64, 5120, 17408, 24, 4, False, head_dim=256, hybrid=True),
}


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
    inner = VALUE_HEADS * STATE
    width = 2 * KEY_HEADS * STATE + inner
    return {
        "attn_qkv.weight": (width, size.hidden),
        "attn_gate.weight": (inner, size.hidden),
        "ssm_alpha.weight": (VALUE_HEADS, size.hidden),
        "ssm_beta.weight": (VALUE_HEADS, size.hidden),
        "ssm_conv1d.weight": (width, TAPS),
        "ssm_dt.bias": (VALUE_HEADS,),
        "ssm_a": (VALUE_HEADS,),
        "ssm_norm.weight": (STATE,),
        "ssm_out.weight": (size.hidden, inner),
    }


def tensors(size: Size, layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the order of the file."""
    yield "token_embd.weight", (size.rows, size.hidden)
    for i in range(layers):
        recurrent = size.hybrid and (i + 1) % INTERVAL != 0
        parts = {
            "attn_norm.weight": (size.hidden,),
            **(delta_parts(size) if recurrent else attention_parts(size)),
            "post_attention_norm.weight" if size.hybrid else "ffn_norm.weight": (size.hidden,),
            "ffn_gate.weight": (size.ff, size.hidden),
            "ffn_up.weight": (size.ff, size.hidden),
            "ffn_down.weight": (size.hidden, size.ff),
        }
        for name, shape in parts.items():
            yield f"blk.{i}.{name}", shape
    yield "output_norm.weight", (size.hidden,)
    if not size.tied:
        yield "output.weight", (size.rows, size.hidden)


def is_float(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is F32: vectors, and the taps of a convolution."""
    return len(shape) == 1 or "conv1d" in name


def info(f: Format, name: str, shape: tuple[int, ...]) -> gguf.gguf_writer.TensorInfo:
    """What the file says of a tensor."""
    number: Any = f.gguf_id  # one that the package has no name for; it writes any number
    count = math.prod(shape)
    if is_float(name, shape):
        return gguf.gguf_writer.TensorInfo(
            shape=shape, dtype=gguf.GGMLQuantizationType.F32, nbytes=4 * count
        )
    nbytes = count // f.group * f.bytes
    return gguf.gguf_writer.TensorInfo(shape=shape, dtype=number, nbytes=nbytes)


def random_tensor(
    random: np.random.Generator, f: Format, name: str, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Norms near 1, decays negative; blocks of random codes under scales within a fifth of one another."""
    if name.endswith("ssm_a"):
        return -np.exp(random.normal(-2.0, 1.0, shape)).astype(np.float32)
    if is_float(name, shape):
        return random.normal(1.0 if "norm" in name else 0.3, 0.05, shape).astype(np.float32)
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


def made_up_tokens(rows: int) -> tuple[list[str], list[str]]:
    """Tokens of so many rows less CONTROLS, each there once, and the merges that make them."""
    tokens = sorted(BYTE_OF)
    merges: list[str] = []
    room = rows - len(CONTROLS) - len(tokens)
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


def make_up_vocabulary(writer: gguf.GGUFWriter, rows: int) -> None:
    """A byte-level tokenizer with Qwen2's rules and ChatML's tokens."""
    tokens, merges = made_up_tokens(rows)
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *CONTROLS])
    writer.add_token_types([normal] * len(tokens) + [control] * len(CONTROLS))
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) + CONTROLS.index("<|im_end|>"))
    writer.add_pad_token_id(len(tokens) + CONTROLS.index("<|endoftext|>"))
    writer.add_add_bos_token(False)


def add_keys(writer: gguf.GGUFWriter, name: str, size: Size, layers: int, f: Format) -> None:
    writer.add_name(name)
    if f.file_type is not None:
        writer.add_file_type(f.file_type)
    writer.add_context_length(HYBRID_CONTEXT if size.hybrid else CONTEXT)
    writer.add_block_count(layers)
    writer.add_embedding_length(size.hidden)
    writer.add_feed_forward_length(size.ff)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_key_length(size.head_dim)
    writer.add_value_length(size.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    if size.hybrid:
        return add_hybrid_keys(writer)
    writer.add_rope_freq_base(1e6)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(YARN_FACTOR)
    writer.add_rope_scaling_orig_ctx_len(ORIGINAL_CONTEXT)


def add_hybrid_keys(writer: gguf.GGUFWriter) -> None:
    """Of the gated delta rules, and of the rotary embedding, which is not scaled."""
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(ROTATED)
    writer.add_rope_dimension_sections(SECTIONS)
    writer.add_uint32("qwen35.full_attention_interval", INTERVAL)
    writer.add_ssm_conv_kernel(TAPS)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_inner_size(VALUE_HEADS * STATE)


def write(
    out: Path, size_name: str, type_name: str, layers: int, vocab: Path | None, seed: int
) -> None:
    """Writes tensor by tensor: memory holds one at a time, and `out` appears when all are there."""
    size, f = SIZES[size_name], FORMATS[type_name]
    random = np.random.default_rng(seed)
    part = out.with_name(out.name + ".part")
    writer = gguf.GGUFWriter(part, "qwen35" if size.hybrid else "qwen3")
    add_keys(
        writer,
        f"random {'Qwen3.5' if size.hybrid else 'Qwen3'} {size_name} {type_name}",
        size,
        layers,
        f,
    )
    if vocab is None:
        make_up_vocabulary(writer, size.rows)
    else:
        add_vocabulary(writer, vocab, size.rows)
    shapes = dict(tensors(size, layers))
    writer.tensors[-1].update({name: info(f, name, shape) for name, shape in shapes.items()})
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for i, (name, shape) in enumerate(shapes.items(), 1):
            writer.write_tensor_data(random_tensor(random, f, name, shape))
            if sys.stderr.isatty():
                end = "\n" if i == len(shapes) else ""
                print(f"\r{i}/{len(shapes)} {name:32}", end=end, file=sys.stderr, flush=True)
        writer.close()
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a random model of the shapes of a Bonsai.")
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--type", choices=FORMATS, required=True)
    parser.add_argument("--layers", type=int, help="cut to this many layers")
    parser.add_argument("--vocab", type=Path, help="GGUF with a Qwen2 vocabulary to copy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out", type=Path)
    a = parser.parse_args()
    most = SIZES[a.size].layers
    layers = most if a.layers is None else a.layers
    if not 1 <= layers <= most:
        parser.error(f"--layers is {layers}; {a.size} has 1 to {most}")
    if a.vocab is not None and not a.vocab.is_file():
        parser.error(f"--vocab: there is no file {a.vocab}")
    write(a.out, a.size, a.type, layers, a.vocab, a.seed)
    print(f"{a.out}: {a.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
