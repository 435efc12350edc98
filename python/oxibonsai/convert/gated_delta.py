"""Gated delta rules (Qwen3-Next, Qwen3.5): names, keys and shapes of their layers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Shapes
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.errors import FormatError

# What older configurations leave to transformers' defaults.
_ROTARY_SHARE, _INTERVAL = 0.25, 4
# Which axis of an image's positions turns a pair; a text's positions are the same on all.
_SECTIONS, _SECTION_NAMES = (11, 11, 10, 0), ("mrope_section", "mrope_interleaved")


def is_attention(folder: ModelFolder) -> list[bool]:
    """Return for each layer whether it attends; the others have a gated delta rule."""
    layers = folder.count("num_hidden_layers")
    kinds = folder.config.get("layer_types")
    if kinds is None:
        return [(i + 1) % _interval(folder) == 0 for i in range(layers)]
    known = {"linear_attention", "full_attention"}
    if not isinstance(kinds, list) or len(kinds) != layers or not known.issuperset(kinds):
        raise FormatError(
            f"{folder.path / 'config.json'}: layer_types does not say of {layers} layers which of "
            f"{' and '.join(sorted(known))} they are"
        )
    return [kind == "full_attention" for kind in kinds]


def keys(folder: ModelFolder, architecture: str) -> Metadata:
    """Return the keys of the rule, of the layers that have it, and of the rotary embedding."""
    heads, width = folder.count("linear_num_value_heads"), folder.count("linear_value_head_dim")
    counts = {
        "ssm.conv_kernel": folder.count("linear_conv_kernel_dim"),
        "ssm.state_size": folder.count("linear_key_head_dim"),
        "ssm.group_count": folder.count("linear_num_key_heads"),
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * width,
        "full_attention_interval": _interval(folder),
        "rope.dimension_count": rotary_dims(folder, decoder.head_dim(folder), share=_ROTARY_SHARE),
    }
    recurrent = [not a for a in is_attention(folder)]
    rope = read_rope(folder, ("default",), also=(PARTIAL, *_SECTION_NAMES))
    return {
        **{f"{architecture}.{k}": (v, "u32") for k, v in counts.items()},
        f"{architecture}.attention.recurrent_layers": (recurrent, "arr[bool]"),
        **rope_keys(architecture, *rope),
    }


def _interval(folder: ModelFolder) -> int:
    if folder.config.get("full_attention_interval") is None:
        return _INTERVAL
    return folder.count("full_attention_interval")


def section_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """Sections of the rotary embedding, four of them."""
    config = folder.config
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    sections = rope.get("mrope_section") or _SECTIONS
    whole = isinstance(sections, list | tuple) and all(type(n) is int and n >= 0 for n in sections)
    if not whole or not 3 <= len(sections) <= 4:
        raise FormatError(
            f"{folder.path / 'config.json'}: mrope_section is {sections!r}, no 3 or 4 counts"
        )
    four = [*sections, 0][:4]
    return {f"{architecture}.rope.dimension_sections": (four, "arr[i32]")}


def shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer with a gated delta rule."""
    hidden = folder.count("hidden_size")
    heads, width = folder.count("linear_num_value_heads"), folder.count("linear_value_head_dim")
    keys_width = folder.count("linear_num_key_heads") * folder.count("linear_key_head_dim")
    inner = heads * width
    channels = 2 * keys_width + inner
    return {
        "attn_qkv.weight": (channels, hidden),
        "attn_gate.weight": (inner, hidden),
        "ssm_conv1d.weight": (channels, folder.count("linear_conv_kernel_dim")),
        "ssm_a": (heads,),
        "ssm_dt.bias": (heads,),
        "ssm_norm.weight": (width,),
        "ssm_out.weight": (hidden, inner),
    }


def attention_shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer that attends; a query's projection gives a gate besides."""
    hidden, width = folder.count("hidden_size"), decoder.head_dim(folder)
    q, kv = width * folder.count("num_attention_heads"), width * decoder.kv_heads(folder)
    return {
        "attn_q.weight": (2 * q, hidden),
        "attn_k.weight": (kv, hidden),
        "attn_v.weight": (kv, hidden),
        "attn_output.weight": (hidden, q),
        "attn_q_norm.weight": (width,),
        "attn_k_norm.weight": (width,),
    }


def layer_shapes(folder: ModelFolder, common: Shapes, linear: Shapes) -> Shapes:
    """Return the shapes of all tensors: ``common`` in every layer, and those of the layer's kind."""
    hidden, vocabulary = folder.count("hidden_size"), folder.count("vocab_size")
    found: Shapes = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    if folder.config.get("tie_word_embeddings", False) is False:
        found["output.weight"] = (vocabulary, hidden)
    for i, attends in enumerate(is_attention(folder)):
        own = attention_shapes(folder) if attends else linear
        found |= {f"blk.{i}.{part}": shape for part, shape in {**common, **own}.items()}
    return found


def tiled(folder: ModelFolder, width: int) -> npt.NDArray[np.intp]:
    """Return the order of value heads of ``width`` rows in which head h shares key head h % key heads.

    Theirs are neighbours where they share one.
    """
    heads, key_heads = folder.count("linear_num_value_heads"), folder.count("linear_num_key_heads")
    if heads % key_heads != 0:
        raise FormatError(
            f"{folder.path / 'config.json'}: {heads} value heads are no multiple of {key_heads} key heads"
        )
    rows = np.arange(heads * width).reshape(key_heads, heads // key_heads, width)
    return rows.swapaxes(0, 1).reshape(-1)
