"""EmbeddingGemma: Gemma 3's names and keys, and the linear layers after pooling."""

from __future__ import annotations

from oxibonsai.convert import decoder, gemma3
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import pooling_keys, projection_keys, projections
from oxibonsai.convert.recipe import Metadata, Recipe

_NAME = "gemma-embedding"
_FIXED = {"embed_tokens": "token_embd", "norm": "output_norm"}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("use_bidirectional_attention", True)
    shared = gemma3.shared_metadata(folder)
    keys = {k.replace("gemma3.", f"{_NAME}.", 1): v for k, v in shared.items()}
    return {
        **keys,
        f"{_NAME}.attention.causal": (False, "bool"),
        **pooling_keys(folder, _NAME, projects=True),
        **projection_keys(folder, _NAME),
    }


GEMMA_EMBEDDING = Recipe(
    _NAME,
    metadata,
    decoder.namer("EmbeddingGemma", gemma3.LAYER, fixed=_FIXED, layers="layers"),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, gemma3.LAYER.values(), tied=True),
    offset=lambda tensor: 1.0 if "norm" in tensor else 0.0,
    extra=projections,
)
