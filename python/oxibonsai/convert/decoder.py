"""Names of parameters, dimensions and shapes that decoder-only architectures share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Shapes
from oxibonsai.errors import FormatError, UnsupportedError

FIXED = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
# The parts of a layer that all have, by Hugging Face's names.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
# Those of GPT-2.
GPT_LAYER = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_LEFT_OUT = ".self_attn.rotary_emb.inv_freq"  # old checkpoints hold what theta says


@dataclass(frozen=True)
class Namer:
    """GGUF's name of a parameter, for one family's names; and the way back.

    Attributes:
        family: For errors.
        layer_names: GGUF's name of each part of a layer.
        biased: Parts, by GGUF's name, that may have a bias.
        fixed: GGUF's name of each part outside of the layers.
        layers: What the names of all layers begin with.
        left_out: Ends of names of parameters that the file leaves out.
        loose: GGUF's whole name of those parameters of a layer that are no module's weight or bias.
        drafting: What the names of layers that predict further tokens begin with, where the file
            leaves them out.
        plain: The name that these tables have for a parameter, where folders differ.
    """

    family: str
    layer_names: Mapping[str, str]
    biased: Collection[str]
    fixed: Mapping[str, str]
    layers: str
    left_out: Collection[str]
    extra: Mapping[str, str]
    drafting: tuple[str, ...]
    plain: Callable[[str], str]

    def __call__(self, parameter: str) -> str | None:
        """GGUF's name; None where the file leaves the parameter out."""
        parameter = self.plain(parameter)
        if parameter.endswith((_LEFT_OUT, *self.left_out)) or parameter.startswith(self.drafting):
            return None
        extra = re.fullmatch(rf"{re.escape(self.layers)}\.([0-9]{{1,4}})\.(.+)", parameter)
        if extra is not None and extra[2] in self.extra:
            return f"blk.{int(extra[1])}.{self.extra[extra[2]]}"
        module, _, kind = parameter.rpartition(".")
        layer = re.fullmatch(rf"{re.escape(self.layers)}\.([0-9]{{1,4}})\.(.+)", module)
        if layer is not None and (part := self.layer_names.get(layer[2])) is not None:
            if kind == "weight" or (kind == "bias" and part in self.biased):
                return f"blk.{int(layer[1])}.{part}.{kind}"
        elif module in self.fixed and (
            kind == "weight" or (kind == "bias" and self.fixed[module] in self.biased)
        ):
            return f"{self.fixed[module]}.{kind}"
        raise UnsupportedError(
            f"the model has the parameter {parameter}, which is none of {self.family}'s"
        )

    def parameter(self, tensor: str) -> str | None:
        """Return the parameter that GGUF calls ``tensor``; None where it is none of the family's."""
        stem, _, kind = tensor.rpartition(".")
        extra = re.fullmatch(r"blk\.([0-9]{1,4})\.(.+)", tensor)
        if extra is not None and (whole := key_of(self.extra, extra[2])) is not None:
            return f"{self.layers}.{extra[1]}.{whole}"
        layer = re.fullmatch(r"blk\.([0-9]{1,4})\.(.+)", stem)
        part, names = (stem, self.fixed) if layer is None else (layer[2], self.layer_names)
        module = key_of(names, part)
        if module is None or not (kind == "weight" or (kind == "bias" and part in self.biased)):
            return None
        return f"{module}.{kind}" if layer is None else f"{self.layers}.{layer[1]}.{module}.{kind}"


def namer(
    family: str,
    layer_names: Mapping[str, str],
    biased: Collection[str] = (),
    *,
    fixed: Mapping[str, str] = FIXED,
    layers: str = "model.layers",
    left_out: Collection[str] = (),
    extra: Mapping[str, str] | None = None,
    drafting: tuple[str, ...] = (),
    plain: Callable[[str], str] = lambda parameter: parameter,
) -> Namer:
    """Return a :class:`Namer`; most families differ in the names of a layer's parts alone."""
    return Namer(family, layer_names, biased, fixed, layers, left_out, extra or {}, drafting, plain)


def key_of(names: Mapping[str, str], value: str) -> str | None:
    """Return the first key with a value; None: there is none."""
    return next((key for key, held in names.items() if held == value), None)


@dataclass(frozen=True)
class ExactNamer:
    """Names for models with many parameters that end in other words than ``weight`` and ``bias``.

    Attributes:
        family: For errors.
        fixed: GGUF's whole name of each parameter outside of the layers.
        layer_names: That of each parameter of a layer, without the layer.
        layers: What the names of all layers begin with.
        plain: As of :class:`Namer`.
    """

    family: str
    fixed: Mapping[str, str]
    layer_names: Mapping[str, str]
    layers: str = "model.layers"
    plain: Callable[[str], str] = lambda parameter: parameter

    def __call__(self, parameter: str) -> str:
        """GGUF's name."""
        parameter = self.plain(parameter)
        if parameter in self.fixed:
            return self.fixed[parameter]
        layer = re.fullmatch(rf"{re.escape(self.layers)}\.([0-9]{{1,4}})\.(.+)", parameter)
        if layer is None or layer[2] not in self.layer_names:
            raise UnsupportedError(
                f"the model has the parameter {parameter}, which is none of {self.family}'s"
            )
        return f"blk.{int(layer[1])}.{self.layer_names[layer[2]]}"

    def parameter(self, tensor: str) -> str | None:
        """Return the parameter that GGUF calls ``tensor``; None where it is none of the family's."""
        layer = re.fullmatch(r"blk\.([0-9]{1,4})\.(.+)", tensor)
        if layer is None:
            return key_of(self.fixed, tensor)
        name = key_of(self.layer_names, layer[2])
        return None if name is None else f"{self.layers}.{layer[1]}.{name}"


def is_matrix(tensor: str) -> bool:
    """Weights of linear layers and of the token table."""
    return tensor.endswith(".weight") and "norm" not in tensor


def head_dim(folder: ModelFolder) -> int:
    """Stated, or the hidden size shared out among the heads."""
    if folder.config.get("head_dim") is not None:
        return folder.count("head_dim")
    hidden, heads = folder.count("hidden_size"), folder.count("num_attention_heads")
    if hidden % heads != 0:
        raise FormatError(
            f"{folder.path / 'config.json'}: hidden_size {hidden} is no multiple of {heads} heads"
        )
    return hidden // heads


def kv_heads(folder: ModelFolder) -> int:
    """Stated, or as many as heads."""
    stated = folder.config.get("num_key_value_heads") is not None
    return folder.count("num_key_value_heads" if stated else "num_attention_heads")


def dimension_keys(
    folder: ModelFolder, architecture: str, epsilon: str = "rms_norm_eps"
) -> Metadata:
    """Return the dimensions that all have.

    Args:
        folder: With ``config.json``.
        architecture: GGUF's name.
        epsilon: What ``config.json`` calls that of the norms; ``layer_norm...`` where they are such.
    """
    width = head_dim(folder)
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": folder.count("intermediate_size"),
        "attention.head_count": folder.count("num_attention_heads"),
        "attention.head_count_kv": kv_heads(folder),
        "attention.key_length": width,
        "attention.value_length": width,
        "vocab_size": folder.count("vocab_size"),
    }
    keys: Metadata = {f"{architecture}.{k}": (v, "u32") for k, v in counts.items()}
    if epsilon == "rms_norm_eps":
        value = (folder.real(epsilon, 1e-6), "f32")
        return keys | {f"{architecture}.attention.layer_norm_rms_epsilon": value}
    value = (folder.real(epsilon, 1e-5), "f32")
    return keys | {f"{architecture}.attention.layer_norm_epsilon": value}


def scale_key(folder: ModelFolder, key: str, name: str) -> Metadata:
    """GGUF's ``key`` with a factor of ``config.json``, where that has it."""
    value = folder.config.get(name)
    if value is None:
        return {}
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise FormatError(f"{folder.path / 'config.json'}: {name} is {value!r}, not above zero")
    return {key: (float(value), "f32")}


def window_keys(folder: ModelFolder, architecture: str, period: int) -> Metadata:
    """Return the keys of the sliding window: all layers but every ``period``-th have it by default."""
    layers = folder.count("num_hidden_layers")
    local = [(i + 1) % period != 0 for i in range(layers)]
    kinds = folder.config.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers or set(kinds) - set(_LAYER_KINDS):
            raise FormatError(
                f"{folder.path / 'config.json'}: layer_types does not say of {layers} layers which of "
                + ", ".join(_LAYER_KINDS)
                + " they are"
            )
        local = [kind == "sliding_attention" for kind in kinds]
    key = f"{architecture}.attention.sliding_window"
    window = (folder.count("sliding_window"), "u32")
    return {key: window, f"{key}_pattern": (local, "arr[bool]")}


_LAYER_KINDS = ("full_attention", "sliding_attention")


def shapes(
    folder: ModelFolder,
    layer_names: Collection[str],
    biased: Collection[str] = (),
    *,
    tied: bool = False,
    special: Mapping[str, tuple[int, ...]] | None = None,
    fixed: Collection[str] = ("token_embd", "output_norm"),
) -> Shapes:
    """Shapes of all tensors that must be there, by GGUF's name.

    Args:
        folder: With ``config.json``.
        layer_names: Parts of a layer, by GGUF's name.
        biased: Those that must have a bias.
        tied: Whether the table is the output matrix too, where the configuration doesn't say.
        special: Shapes of parts that are not as in most architectures.
        fixed: Parts outside of the layers, beside the output matrix.
    """
    hidden, ff = folder.count("hidden_size"), folder.count("intermediate_size")
    width, vocabulary = head_dim(folder), folder.count("vocab_size")
    q, kv = width * folder.count("num_attention_heads"), width * kv_heads(folder)
    matrices = {
        "attn_q": (q, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_qkv": (q + 2 * kv, hidden),
        "attn_output": (hidden, q),
        "ffn_gate": (ff, hidden),
        "ffn_up": (ff, hidden),
        "ffn_down": (hidden, ff),
    }
    outside = {"token_embd": (vocabulary, hidden), **dict(special or {})}
    found: Shapes = {f"{part}.weight": outside.get(part, (hidden,)) for part in fixed}
    parts: dict[str, tuple[int, ...]] = {
        **matrices,
        **dict.fromkeys(HEAD_NORMS.values(), (width,)),
        **dict(special or {}),
    }
    if folder.config.get("tie_word_embeddings", tied) is False:
        found["output.weight"] = (vocabulary, hidden)
    for i in range(folder.count("num_hidden_layers")):
        for part in layer_names:
            found[f"blk.{i}.{part}.weight"] = parts.get(part, (hidden,))
        for part in biased:
            found[f"blk.{i}.{part}.bias"] = parts.get(part, (hidden,))[:1]
    return found


def row_order(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """Return the order of rows of q and k: a folder has the halves of a head, GGUF has neighbours."""
    part = tensor.split(".")[-2]
    if part not in ("attn_q", "attn_k"):
        return None
    heads = folder.count("num_attention_heads") if part == "attn_q" else kv_heads(folder)
    return paired_rows(heads, head_dim(folder))


def paired_rows(heads: int, width: int) -> npt.NDArray[np.intp]:
    """Return which row of halves is at each place among interleaved pairs."""
    return np.arange(heads * width).reshape(heads, 2, width // 2).swapaxes(1, 2).reshape(-1)


def gpt_config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the names that most models have."""
    found = folder.config
    return {
        **found,
        "hidden_size": found.get("n_embd"),
        "num_hidden_layers": found.get("n_layer"),
        "num_attention_heads": found.get("n_head"),
        "num_key_value_heads": 1 if found.get("multi_query") is True else found.get("n_head"),
        "max_position_embeddings": found.get("n_positions"),
        "intermediate_size": found.get("n_inner") or 4 * folder.count("n_embd"),
    }
