"""BERT, RoBERTa, CamemBERT and XLM-RoBERTa: names and keys; the latter count positions from another row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oxibonsai.convert import encoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.pooling import pooling_keys
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.errors import FormatError

FIXED = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
}
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
# Parts that neither embeddings nor classifiers use, and a list of the numbers from 0 on.
LEFT_OUT = ("cls.", "lm_head.", "embeddings.position_ids", "embeddings.token_type_ids")
_POSITIONS = "embeddings.position_embeddings.weight"


def no_pooler(folder: ModelFolder, parameter: str) -> bool:
    """Return a pooler is the first layer of a classifier's head, and no part of any other model."""
    return ".pooler." in f".{parameter}" and not encoder.classifies(folder)


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu")
    folder.require("position_embedding_type", "absolute", None)
    folder.require("is_decoder", False)
    return {
        **encoder.dimension_keys(folder, "bert"),
        **pooling_keys(folder, "bert"),
        **encoder.segment_keys(folder),
        **encoder.tokenizer_keys(folder),
    }


def _first_position(folder: ModelFolder) -> int:
    """Return the row of the first position: those up to the id of the padding are no position's."""
    pad = folder.config.get("pad_token_id")
    if pad is None:
        return 0
    if isinstance(pad, bool) or not isinstance(pad, int) or not 0 <= pad < 2**31:
        raise FormatError(f"{folder.path / 'config.json'}: pad_token_id is {pad!r}, no id")
    return pad + 1


def without_padding(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration with the number of positions that texts have."""
    rows = folder.count("max_position_embeddings")
    return {**folder.config, "max_position_embeddings": rows - _first_position(folder)}


def positions(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the rows of positions that texts have."""
    if not parameter.endswith(_POSITIONS):
        return ()
    first = _first_position(folder)
    return (Piece("position_embd.weight", part=lambda rows: rows[first:]),)


_BERT_HEAD = {"pooler.dense": "cls", "classifier": "cls.output"}
tensor_name = encoder.EncoderNamer(
    "BERT",
    "encoder.layer",
    LAYER,
    {**FIXED, **_BERT_HEAD},
    prefixes=("bert.",),
    left_out=LEFT_OUT,
)
BERT = Recipe(
    "bert",
    metadata,
    tensor_name,
    encoder.is_matrix,
    left_out=no_pooler,
)


def no_pooler_at_all(folder: ModelFolder, parameter: str) -> bool:
    """Return a pooler is no part of any model: the head of a classifier has a first layer of its own."""
    del folder
    return ".pooler." in f".{parameter}"


ROBERTA = Recipe(
    "bert",
    metadata,
    encoder.EncoderNamer(
        "RoBERTa",
        "encoder.layer",
        LAYER,
        {**FIXED, **encoder.CLASSIFIER},
        prefixes=("roberta.",),
        left_out=LEFT_OUT,
    ),
    encoder.is_matrix,
    left_out=no_pooler_at_all,
    pieces=positions,
    config=without_padding,
)
