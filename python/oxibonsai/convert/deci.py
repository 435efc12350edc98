"""DeciLM and Llama-Nemotron: names, keys, and layers of different sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_factors, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_LAYER = {**decoder.LAYER, "self_attn.linear_attn": "attn_output"}
_MULTIPLE = 256  # of the width of an MLP
_ROPES = ("default", "linear", "llama3")
_SIZE = tuple[int, int, int]  # heads, key-value heads, width of the MLP


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration with the largest sizes, where those of layers differ."""
    if folder.config.get("block_configs") is None:
        return folder.config
    heads, kv_heads, width = (max(sizes) for sizes in zip(*_sizes(folder), strict=True))
    return {
        **folder.config,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    names = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    columns = zip(names, zip(*_sizes(folder), strict=True), strict=True)
    lists: Metadata = {
        f"deci.{name}": (list(sizes), "arr[u32]")
        for name, sizes in columns
        if folder.config.get("block_configs") is not None or name == names[1]
    }
    return {
        **decoder.dimension_keys(folder, "deci"),
        **lists,
        "deci.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("deci", *read_rope(folder, _ROPES)),
        **tokenizer_keys(folder),
    }


def _sizes(folder: ModelFolder) -> list[_SIZE]:
    """Return the sizes of each layer."""
    layers, heads = folder.count("num_hidden_layers"), folder.count("num_attention_heads")
    where = folder.path / "config.json"
    blocks: Any = folder.config.get("block_configs")
    if blocks is None:
        shared: Any = folder.config.get("num_key_value_heads_per_layer")
        shared = [decoder.kv_heads(folder)] * layers if shared is None else shared
        whole = isinstance(shared, list) and all(type(n) is int and 0 < n <= heads for n in shared)
        if not whole or len(shared) != layers:
            raise FormatError(
                f"{where}: num_key_value_heads_per_layer is no counts of {layers} layers"
            )
        return [(heads, n, folder.count("intermediate_size")) for n in shared]
    if not isinstance(blocks, list) or len(blocks) != layers:
        raise FormatError(f"{where}: block_configs does not list {layers} layers")
    try:
        return [_block_size(folder, heads, block) for block in blocks]
    except (KeyError, TypeError, ValueError, ArithmeticError) as e:
        raise FormatError(f"{where}: block_configs has a layer that says too little: {e!r}") from e


def _block_size(folder: ModelFolder, heads: int, block: Any) -> _SIZE:
    """Return a layer may have a matrix in place of its attention, or neither, and may lack an MLP."""
    attention, share = block["attention"], block["ffn"]["ffn_mult"]
    group = attention["n_heads_in_group"]
    own = heads if group is not None or attention["replace_with_linear"] is True else 0
    width = 0 if share is None else int(2 * share * folder.count("hidden_size") / 3)
    return own, 0 if group is None else heads // group, -(-width // _MULTIPLE) * _MULTIPLE


def _rows(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """Rows of q and k, of as many heads as their layer has."""
    _, _, part = tensor.removesuffix(".weight").rpartition(".")
    if part not in ("attn_q", "attn_k"):
        return None
    heads, kv_heads, _ = _sizes(folder)[int(tensor.split(".")[1])]
    return decoder.paired_rows(heads if part == "attn_q" else kv_heads, decoder.head_dim(folder))


DECI = Recipe(
    "deci",
    metadata,
    decoder.namer("DeciLM", _LAYER),
    decoder.is_matrix,
    row_order=_rows,
    extra=lambda folder: rope_factors(folder, _ROPES, decoder.head_dim(folder)),
    config=config,
)
