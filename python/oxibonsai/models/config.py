"""The config of a model of any family as the engine reads it, in Hugging Face's words."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from oxibonsai.architectures.encoder import EncoderFamily
from oxibonsai.architectures.heads import read_classifier
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.pooled import ClassifierConfig
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.t5 import DecoderConfig
from oxibonsai.graph import HadamardRotation, RopeConfig
from oxibonsai.models.hadamard import read_rotation
from oxibonsai.models.keys import Keys


@dataclass(frozen=True)
class ModelConfig:
    """The sizes and kinds that models of all families have; fields carry Hugging Face's names.

    Attributes:
        intermediate_size: Columns of the MLP; of the widest one, where layers differ.
        num_attention_heads, num_key_value_heads: The most that a layer has.
        head_dim: Columns of a head in layers that see all.
        rope: Rotary embedding of these layers.
        num_nextn_predict_layers: Layers of the file past those of the pass, which predict further
            tokens.
        causal: A token sees those before it; False for encoders, which see the whole text, end with
            a norm of their own and have no output matrix.
        pooling: How the model's embeddings are made of its hidden states: ``"last"``, ``"mean"`` or
            ``"cls"``.
        classifier: The head of a model that scores texts; None: it has none.
        layer_norm_eps: Of the norm in a classifier's head.
        token_types: That the pass tells apart by its input of this name, one for each text of a pair;
            1: it has no such input.
        deepstack_layers: Of the first layers, behind each of which more of an image's rows are added.
        experts: Of the layers that have them; None: none does.
        decoder: Of a model with an encoder too, whose sizes the other fields are; None: there is one
            pass for all tokens.
        hadamard: How weights are folded; None: they are not.
        family: That describes the model.
        of_family: The family's own config, by which its passes are described.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rope: RopeConfig
    family: Family[Any] = field(repr=False, compare=False)
    of_family: Any = field(repr=False)
    num_nextn_predict_layers: int = 0
    causal: bool = True
    pooling: str = "last"
    name: str = ""
    classifier: ClassifierConfig | None = None
    layer_norm_eps: float = 0.0
    token_types: int = 1
    deepstack_layers: int = 0
    experts: ExpertsConfig | None = None
    decoder: DecoderConfig | None = None
    hadamard: HadamardRotation | None = field(default=None, repr=False, compare=False)

    @property
    def generates(self) -> bool:
        """Whether the model continues texts; encoders and classifiers do not."""
        return self.causal and self.classifier is None

    @property
    def longest_text(self) -> int:
        """Return the most positions of a text: with dynamic NTK scaling, more than the model's own."""
        if self.rope.scaling != "dynamic":
            return self.max_position_embeddings
        return int(self.max_position_embeddings * self.rope.factor)

    @property
    def image_width(self) -> int:
        """Columns of a row of an image: in place of a token's embedding, and those added later."""
        return self.hidden_size * (1 + self.deepstack_layers)

    def with_token_types(self, count: int) -> ModelConfig:
        """Return the configuration of a pass that tells so many types apart."""
        own = replace(self.of_family, token_types=count)
        return replace(self, token_types=count, of_family=own)


_NAMES = {field.name for field in fields(ModelConfig)}


def config_of(family: Family[Any], keys: Keys) -> ModelConfig:
    """Return the config of a model of a family.

    A family's field that has the name of one of :class:`ModelConfig` must mean the same.

    Raises:
        FormatError: A key is missing or makes no sense.
        UnsupportedError: A key asks for what the family lacks.
    """
    c, file = family.read_gguf(keys), keys.checkpoint.file
    values = {name: getattr(c, name) for name in _NAMES if hasattr(c, name)}
    if not isinstance(family, EncoderFamily):  # whose configs say what follows hidden states
        values |= _behind_decoder(family, keys)
    return ModelConfig(
        **values,
        architecture=keys.architecture,
        name=str(file.get("general.name", "")),
        hadamard=read_rotation(file, keys.checkpoint.path),
        family=family,
        of_family=c,
    )


def _behind_decoder(family: Family[Any], keys: Keys) -> dict[str, Any]:
    """Return how vectors or scores are made of a decoder's hidden states."""
    head = read_classifier(keys, default_pooling="last") if family.scores_texts else None
    return {
        "causal": keys.causal(True),
        "pooling": keys.pooling("last"),
        "classifier": replace(head, yes_or_no=True) if head is not None else None,
    }


def check_constants(keys: Keys, config: ModelConfig) -> None:
    """Raise FormatError for a constant with which no model computes anything that makes sense."""
    c = config.of_family
    if c.attention_scale <= 0.0:
        raise keys.fail(f"its factor of attention scores is {c.attention_scale}, not above zero")
    others = {
        "epsilon of RMS norms": "rms_norm_eps",
        "epsilon of layer norms": "layer_norm_eps",
        "cap of attention scores": "attn_logit_softcapping",
        "cap of logits": "final_logit_softcapping",
    }
    for meaning, name in others.items():
        value = getattr(c, name, 0.0)
        if value < 0.0:
            raise keys.fail(f"its {meaning} is {value}, below zero")
