"""BERT (MiniLM, BGE, E5), RoBERTa, CamemBERT, XLM-RoBERTa: positions are learned.

Files are all BERT's. In the folders of the others positions begin behind the id of the padding, and the
head of a classifier has a first layer of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, encoder
from oxibonsai.architectures.encoder import Encoder, EncoderFamily, Segmented
from oxibonsai.architectures.schema.fields import fixed
from oxibonsai.architectures.schema.tensors import Entry, Tensor

LAYERS = "encoder.layer"


@dataclass(frozen=True, kw_only=True)
class Config(Segmented, Encoder):
    """The fields of a model."""

    activation: str = fixed("gelu", name="hidden_act")
    position_embedding_type: str = fixed("absolute", None, name="position_embedding_type")
    is_decoder: bool = fixed(False, name="is_decoder")


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(Config):
    """The fields of a RoBERTa."""

    max_position_embeddings: int = encoder.positions_behind_padding()
    first_position: int = encoder.first_position_field()


def layers(c: Encoder) -> Iterator[Tensor]:
    """Yield the tensors of all layers."""
    for i in range(c.num_hidden_layers):
        parts = {**encoder.ATTENTION, **encoder.MLP}
        yield from decoder.matrices(i, parts, biased=True, layers=LAYERS)
        yield from encoder.layer_norms(i, encoder.NORMS, LAYERS)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a BERT."""
    yield from encoder.embeddings()
    yield from encoder.positions()
    yield from layers(c)
    yield from encoder.head(c, encoder.POOLER)


def roberta_tensors(c: RobertaConfig) -> Iterator[Entry]:
    """Yield all tensors of a RoBERTa."""
    yield from encoder.embeddings()
    yield from encoder.positions(c.first_position)
    yield from layers(c)
    yield from encoder.head(c, encoder.CLASSIFIER)


BERT = EncoderFamily(
    "bert", ("bert",), "Bert", "BERT", Config, tensors, encoder.layer, encoder.embed_with_positions,
    spelled=encoder.without_prefix("bert."), prefix="bert.",
)  # fmt: skip
ROBERTA = EncoderFamily(  # of folders alone
    "bert", ("roberta", "camembert", "xlm-roberta"), "", "RoBERTa", RobertaConfig, roberta_tensors,
    encoder.layer, encoder.embed_with_positions, spelled=encoder.without_prefix("roberta."),
)  # fmt: skip
