"""BigBird: names and keys. GGUF has no architecture of this kind elsewhere: the keys are ours."""

from __future__ import annotations

from oxibonsai.convert import bert, encoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import pooling_keys
from oxibonsai.convert.recipe import Metadata, Recipe

_NAME = "big-bird"
# Transformers' names of GELU; the tanh form has several.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu_new", *_ACTIVATIONS)
    folder.require("attention_type", "block_sparse", "original_full")
    folder.require("is_decoder", False)
    folder.require("rescale_embeddings", False, True)
    activation = _ACTIVATIONS[folder.config.get("hidden_act", "gelu_new")]
    keys: Metadata = {
        **encoder.dimension_keys(folder, _NAME),
        f"{_NAME}.hidden_activation": (activation, "str"),
    }
    if folder.config.get("attention_type", "block_sparse") == "block_sparse":
        keys[f"{_NAME}.attention.block_size"] = (folder.count("block_size"), "u32")
        random = folder.count_or_zero("num_random_blocks")
        keys[f"{_NAME}.attention.random_block_count"] = (random, "u32")
    if folder.config.get("rescale_embeddings"):
        keys[f"{_NAME}.embedding_scale"] = (folder.count("hidden_size") ** 0.5, "f32")
    return {
        **keys,
        **pooling_keys(folder, _NAME),
        **encoder.segment_keys(folder),
        **_tokenizer_keys(folder),
    }


def _tokenizer_keys(folder: ModelFolder) -> Metadata:
    """Texts are framed by the classifier's token and the separator, not by bos and eos."""
    keys = encoder.tokenizer_keys(folder)
    frame = {"bos": "cls", "eos": "seperator"}
    ids = {end: keys.get(f"tokenizer.ggml.{name}_token_id") for end, name in frame.items()}
    for end, token in ids.items():
        if token is not None:
            keys[f"tokenizer.ggml.{end}_token_id"] = token
            keys[f"tokenizer.ggml.add_{end}_token"] = (True, "bool")
    return keys


BIG_BIRD = Recipe(
    _NAME,
    metadata,
    encoder.EncoderNamer(
        "BigBird",
        "encoder.layer",
        bert.LAYER,
        {**bert.FIXED, **encoder.CLASSIFIER},
        prefixes=("bert.",),
        left_out=bert.LEFT_OUT,
    ),
    encoder.is_matrix,
    left_out=bert.no_pooler_at_all,
)
