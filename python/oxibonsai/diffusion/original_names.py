"""FLUX.2's networks by Black Forest Labs' names: their own files, city96's and stable-diffusion.cpp's.

Such a file holds tensors and no configuration. Sizes are those of the tensors; what tensors do not show
is the same in all models of the family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.diffusion.network import Network, StoredTensors
from oxibonsai.diffusion.network_tensors import checked_matrix
from oxibonsai.errors import FormatError, UnsupportedError

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

# Black Forest Labs' names of matrices by block, and outside of blocks.
_DOUBLE = {
    "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
    "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
    "img_attn.proj": ("attn.to_out.0",),
    "txt_attn.proj": ("attn.to_add_out",),
    "img_mlp.0": ("ff.linear_in",),
    "img_mlp.2": ("ff.linear_out",),
    "txt_mlp.0": ("ff_context.linear_in",),
    "txt_mlp.2": ("ff_context.linear_out",),
}
_SINGLE = {"linear1": ("attn.to_qkv_mlp_proj",), "linear2": ("attn.to_out",)}
_OTHER = {
    "img_in": "x_embedder",
    "txt_in": "context_embedder",
    "time_in.in_layer": "time_guidance_embed.timestep_embedder.linear_1",
    "time_in.out_layer": "time_guidance_embed.timestep_embedder.linear_2",
    "final_layer.linear": "proj_out",
    "single_stream_modulation.lin": "single_stream_modulation.linear",
    "double_stream_modulation_img.lin": "double_stream_modulation_img.linear",
    "double_stream_modulation_txt.lin": "double_stream_modulation_txt.linear",
}
# Of norms, whose weights are called scale or weight.
_DOUBLE_NORMS = {
    "img_attn.norm.query_norm": "attn.norm_q",
    "img_attn.norm.key_norm": "attn.norm_k",
    "txt_attn.norm.query_norm": "attn.norm_added_q",
    "txt_attn.norm.key_norm": "attn.norm_added_k",
}
_SINGLE_NORMS = {"norm.query_norm": "attn.norm_q", "norm.key_norm": "attn.norm_k"}
# The matrix that shifts and scales the last norm: diffusers has its scale before its shift.
_LAST_NORM, _LAST_NORM_HERE = "final_layer.adaLN_modulation.1.weight", "norm_out.linear.weight"

_TRANSFORMER_PREFIX = "model.diffusion_model."
_BLOCKS = ("double_blocks.", "single_blocks.")
_AXES = 4  # of positions; each has the same share of a head
_ROPE_THETA, _EPS = 2000.0, 1e-6
_GROUPS = 32  # of the autoencoder's norms
_PER_PATCH = 4  # positions of the autoencoder's latents

_VAE_LEVEL = re.compile(
    r"(encoder\.down|decoder\.up)\.(\d{1,3})\.(block|downsample|upsample)\.(.+)"
)
_VAE_MIDDLE = re.compile(r"(encoder|decoder)\.mid\.(block_1|block_2|attn_1)\.(.+)")
_VAE_NESTED = {"encoder.quant_conv.": "quant_conv.", "decoder.post_quant_conv.": "post_quant_conv."}
_VAE_ATTENTION = {
    "norm": "group_norm", "q": "to_q", "k": "to_k", "v": "to_v", "proj_out": "to_out.0",
}  # fmt: skip


def modules_of(module: str) -> Iterator[str]:
    """Yield diffusers' names of the matrices that a module stands for, one below the other.

    A name that is none of Black Forest Labs' stands for itself.
    """
    kind, _, rest = module.partition(".")
    index, _, part = rest.partition(".")
    if kind == "double_blocks" and part in _DOUBLE:
        yield from (f"transformer_blocks.{index}.{p}" for p in _DOUBLE[part])
    elif kind == "single_blocks" and part in _SINGLE:
        yield from (f"single_transformer_blocks.{index}.{p}" for p in _SINGLE[part])
    else:
        yield _OTHER.get(module, module)


@dataclass(frozen=True)
class _Rows:
    """Where a tensor's rows lie in a stored one.

    Attributes:
        stored: Its name.
        part, parts: Which of how many equal parts.
        swapped: The second half comes first.
    """

    stored: str
    part: int = 0
    parts: int = 1
    swapped: bool = False


class RowsOfTensors:
    """Tensors that are rows of stored ones.

    Args:
        tensors: What a file holds.
        rows: By the name that a tensor has here.
    """

    def __init__(self, tensors: StoredTensors, rows: Mapping[str, _Rows]) -> None:
        self._tensors, self._rows = tensors, rows

    @property
    def path(self) -> str:
        """The file."""
        return self._tensors.path

    @property
    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._rows)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, slowest dimension first."""
        rows = self._rows[name]
        first, *others = self._tensors.shape(rows.stored) or (1,)
        if first % (parts := 2 if rows.swapped else rows.parts):
            raise FormatError(
                f"{self.path}: {rows.stored} has {first} rows, which are no {parts} equal parts"
            )
        return (first // rows.parts, *others)

    def matrix(self, name: str) -> _core.Weight:
        """Return a matrix in its stored form; FormatError for values that are not finite."""
        shape = self.shape(name)
        blocks = self._taken(name, self._tensors.stored(self._rows[name].stored))
        return checked_matrix(self.path, name, self.quant_type(name), blocks, shape)

    def array(self, name: str) -> Floats:
        """Return a tensor of any shape as float32."""
        values = self._tensors.array(self._rows[name].stored)
        return np.ascontiguousarray(self._taken(name, values)).reshape(self.shape(name))

    def quant_type(self, name: str) -> str:
        """Return the type that a tensor is stored in."""
        return self._tensors.quant_type(self._rows[name].stored)

    def stored(self, name: str) -> Bytes:
        """Return the stored bytes of a tensor of any shape."""
        return self._taken(name, self._tensors.stored(self._rows[name].stored)).reshape(-1)

    def release(self) -> None:
        """Take the weights out of memory, once they are packed for a device."""
        self._tensors.release()

    def _taken(self, name: str, whole: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a tensor's part of the values or bytes of the stored one: [rows, what a row has]."""
        rows, count = self._rows[name], self.shape(name)[0]
        each = whole.reshape(count * rows.parts, -1)
        taken = each[rows.part * count : (rows.part + 1) * count]
        return np.roll(taken, count // 2, axis=0) if rows.swapped else taken


def is_original_transformer(names: set[str]) -> bool:
    """Return whether tensors have the names of Black Forest Labs' transformers."""
    return any(n.removeprefix(_TRANSFORMER_PREFIX).startswith(_BLOCKS) for n in names)


def original_transformer(tensors: StoredTensors) -> Network:
    """Return a transformer by diffusers' names, with the configuration that its tensors show.

    Raises:
        FormatError: A tensor that shows a size is missing or has another shape.
        UnsupportedError: It is none of FLUX.2.
    """
    own: dict[str, str] = {}
    for name in sorted(tensors.names):
        short = name.removeprefix(_TRANSFORMER_PREFIX)
        if short in own:
            raise FormatError(
                f"{tensors.path} has both {own[short]} and {name}, which are the same"
            )
        own[short] = name
    if "double_stream_modulation_img.lin.weight" not in own:
        kind = "a FLUX.1 or a relative of it" if is_original_transformer(set(own)) else "no FLUX"
        raise UnsupportedError(
            f"{tensors.path} holds a transformer that is {kind}; this version draws with FLUX.2 klein"
        )
    rows = {
        name: r for short, stored in own.items() for name, r in _transformer_rows(short, stored)
    }
    return Network(_transformer_config(tensors, own), RowsOfTensors(tensors, rows))


def _transformer_rows(short: str, stored: str) -> Iterator[tuple[str, _Rows]]:
    """Yield diffusers' names of what a tensor holds."""
    if short == _LAST_NORM:
        yield _LAST_NORM_HERE, _Rows(stored, swapped=True)
        return
    module, _, kind = short.rpartition(".")
    names = [_norm_of(module)] if kind in ("scale", "weight") and _norm_of(module) else []
    names = names or ([] if kind != "weight" else list(modules_of(module)))
    if not names:
        yield short, _Rows(stored)
    for i, name in enumerate(names):
        yield f"{name}.weight", _Rows(stored, i, len(names))


def _norm_of(module: str) -> str:
    """Return diffusers' name of a norm; empty where the module is none."""
    kind, _, rest = module.partition(".")
    index, _, part = rest.partition(".")
    if kind == "double_blocks" and part in _DOUBLE_NORMS:
        return f"transformer_blocks.{index}.{_DOUBLE_NORMS[part]}"
    if kind == "single_blocks" and part in _SINGLE_NORMS:
        return f"single_transformer_blocks.{index}.{_SINGLE_NORMS[part]}"
    return ""


def _transformer_config(tensors: StoredTensors, own: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration by diffusers' names.

    Args:
        tensors: Of the file.
        own: Their names by those without the prefix.
    """

    def matrix(name: str) -> tuple[int, int]:
        shape = _shape(tensors, own.get(name), name, 2)
        return shape[0], shape[1]

    inner, channels = matrix("img_in.weight")
    mlp = matrix("single_blocks.0.linear2.weight")[1] - inner
    norm = next(
        (n for n in own if re.fullmatch(r".+\.query_norm\.(scale|weight)", n)), "query_norm"
    )
    (head,) = _shape(tensors, own.get(norm), norm, 1)
    if mlp <= 0 or inner % head or head % (2 * _AXES):
        raise FormatError(
            f"{tensors.path}: a width of {inner}, heads of {head} and {mlp} columns of a feed-forward "
            "part do not fit together"
        )
    return {
        "in_channels": channels,
        "out_channels": matrix("final_layer.linear.weight")[0],
        "num_layers": _count(own, "double_blocks"),
        "num_single_layers": _count(own, "single_blocks"),
        "attention_head_dim": head,
        "num_attention_heads": inner // head,
        "joint_attention_dim": matrix("txt_in.weight")[1],
        "timestep_guidance_channels": matrix("time_in.in_layer.weight")[1],
        "mlp_ratio": mlp / inner,
        "axes_dims_rope": [head // _AXES] * _AXES,
        "rope_theta": _ROPE_THETA,
        "eps": _EPS,
        "guidance_embeds": any(n.startswith("guidance_in.") for n in own),
    }


def is_original_vae(names: set[str]) -> bool:
    """Return whether tensors have the names of Black Forest Labs' autoencoders."""
    return any(n.startswith("decoder.up.") for n in names)


def original_vae(tensors: StoredTensors) -> Network:
    """Return an autoencoder by diffusers' names, with the configuration that its tensors show.

    Raises:
        FormatError: A tensor that shows a size is missing or has another shape.
        UnsupportedError: It is none of FLUX.2.
    """
    names = tensors.names
    if "bn.running_mean" not in names:
        raise UnsupportedError(
            f"{tensors.path} is the VAE of another model: FLUX.2's has statistics of its latents, "
            "bn.running_mean"
        )
    (channels,) = _shape(tensors, "bn.running_mean", "bn.running_mean", 1)
    levels = _count(names, "decoder.up")
    widths = [
        _shape(tensors, name if name in names else None, name, 4)[0]
        for name in (f"decoder.up.{i}.block.0.conv1.weight" for i in range(levels))
    ]
    config = {
        "latent_channels": channels // _PER_PATCH,
        "norm_num_groups": _GROUPS,
        "layers_per_block": _count(names, "decoder.up.0.block") - 1,
        "block_out_channels": widths,
    }
    rows = {_vae_name(name, levels): _Rows(name) for name in names}
    return Network(config, RowsOfTensors(tensors, rows))


def _vae_name(name: str, levels: int) -> str:
    """Return diffusers' name of a tensor; the decoder's levels count from the other end there."""
    for nested, outer in _VAE_NESTED.items():
        if name.startswith(nested):
            return outer + name.removeprefix(nested)
    if level := _VAE_LEVEL.fullmatch(name):
        side, index, kind, rest = level.groups()
        number = int(index) if side == "encoder.down" else levels - 1 - int(index)
        part = "resnets" if kind == "block" else f"{kind}rs.0"
        return f"{side}_blocks.{number}.{part}.{rest.replace('nin_shortcut', 'conv_shortcut')}"
    if middle := _VAE_MIDDLE.fullmatch(name):
        side, block, rest = middle.groups()
        if block != "attn_1":
            return f"{side}.mid_block.resnets.{int(block[-1]) - 1}.{rest}"
        module, _, kind = rest.partition(".")
        return f"{side}.mid_block.attentions.0.{_VAE_ATTENTION.get(module, module)}.{kind}"
    return name.replace(".norm_out.", ".conv_norm_out.")


def _shape(tensors: StoredTensors, stored: str | None, name: str, dims: int) -> tuple[int, ...]:
    """Return the shape of a tensor of so many dimensions, none of which is empty."""
    if stored is None:
        raise FormatError(f"{tensors.path} lacks the tensor {name}")
    shape = tensors.shape(stored)
    if len(shape) != dims or 0 in shape:
        raise FormatError(
            f"{tensors.path}: {name} has shape {shape}; it takes {dims} dimensions, none of them 0"
        )
    return shape


def _count(names: Mapping[str, str] | set[str], prefix: str) -> int:
    """Return how many numbers from 0 on follow the prefix."""
    found = {n.removeprefix(f"{prefix}.").partition(".")[0] for n in names if n.startswith(prefix)}
    return next(i for i in range(len(found) + 1) if str(i) not in found)
