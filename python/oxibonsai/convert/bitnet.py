"""BitNet b1.58: names and keys; matrices become ternary, as the model's layers round them."""

from __future__ import annotations

import numpy as np

from oxibonsai.convert import decoder
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

LAYER = {
    **decoder.LAYER,
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "relu2", "silu")
    folder.require("attention_bias", False)
    # A file without the key has SiLU units: llama.cpp, which writes none, runs every file so.
    relu2 = folder.config.get("hidden_act", "relu2") == "relu2"
    return {
        **decoder.dimension_keys(folder, "bitnet"),
        **({"bitnet.hidden_activation": ("relu2", "str")} if relu2 else {}),
        **rope_keys("bitnet", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


def ternary(folder: ModelFolder, tensor: str, values: Floats) -> Floats:
    """-1, 0 and 1 times the mean magnitude of a layer's matrix; other tensors and what is ternary stay."""
    if not _is_ternary(tensor) or _has_three_values(values):
        return values
    scale = max(np.float32(np.abs(values).mean(dtype=np.float32)), np.float32(1e-5))
    found: Floats = np.clip(np.rint(values / scale), -1, 1).astype(np.float32) * scale
    return found


def _is_ternary(tensor: str) -> bool:
    return tensor.startswith("blk.") and decoder.is_matrix(tensor)


def _has_three_values(values: Floats) -> bool:
    """Minus a number, zero and the number itself at most."""
    magnitudes = np.abs(values)
    return bool(np.isin(magnitudes, (0.0, magnitudes.max())).all())


def parameter_values(folder: ModelFolder, tensor: str, values: Floats) -> Floats:
    """Return the ternary matrices themselves: what they were rounded from is lost.

    Raises:
        UnsupportedError: A matrix is not ternary, and would be rounded.
    """
    if _is_ternary(tensor) and not _has_three_values(values):
        raise UnsupportedError(
            f"{folder.path}: {tensor} has more than three values, which BitNet's layers would round; "
            "save it as gguf"
        )
    return values


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    norms = {"ffn_sub_norm": (folder.count("intermediate_size"),)}
    return decoder.shapes(folder, LAYER.values(), tied=True, special=norms)


BITNET = Recipe(
    "bitnet",
    metadata,
    decoder.namer("BitNet", LAYER),
    decoder.is_matrix,
    shapes=_shapes,
    values=ternary,
    parameter_values=parameter_values,
)
