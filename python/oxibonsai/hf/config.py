"""A model's configuration with Hugging Face's names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.config_json import config_json, generation_json
from oxibonsai.hf.generation import NATIVE
from oxibonsai.known_models import recommend
from oxibonsai.models import ModelConfig

# Architectures whose configuration GGUF can't give back whole: the dimensions that all have.
_DIMENSIONS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)


# Tables that are computed, not learnt.
_NO_PARAMETERS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_EMBEDDINGS = ("token_embd.weight", "position_embd.weight", "token_types.weight")


def count_parameters(checkpoint: Checkpoint, without_embeddings: bool = False) -> int:
    """Return the weights of a model; tied ones count once."""
    left_out = {*_NO_PARAMETERS, *(_EMBEDDINGS if without_embeddings else ())}
    names = checkpoint.tensor_names - left_out
    return sum(math.prod(checkpoint.shape(name)) for name in names)


def _generation(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of ``generation_config.json``, and what is recommended where it states none."""
    recommended = recommend(checkpoint.file, checkpoint.path).values(None)
    known = {name: value for name, value in recommended.items() if name in NATIVE}
    drawn: dict[str, Any] = {"do_sample": True, **known} if known else {}
    return {**drawn, **generation_json(checkpoint)}


class LoadedConfig:
    """A model's configuration, its fields as attributes.

    Fields that Hugging Face's configuration of the architecture has are those of the
    ``config.json`` that ``save_pretrained`` writes.

    Args:
        checkpoint: The model's file.
        dimensions: As the engine has read them.
        name_or_path: What the model was loaded from.
        num_labels: Scores that a text has; 0: the model is no classifier.

    Attributes:
        dimensions: As given.
        name_or_path: As given.
        generation: Fields of ``generation_config.json``, and what the model's makers recommend.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        dimensions: ModelConfig,
        name_or_path: str,
        num_labels: int = 0,
    ) -> None:
        self.dimensions = dimensions
        self.name_or_path = name_or_path
        self.generation = _generation(checkpoint)
        try:
            self._fields = config_json(checkpoint, "float32")
            del self._fields["torch_dtype"]
        except UnsupportedError:
            self._fields = {"model_type": dimensions.architecture}
            self._fields |= {name: getattr(dimensions, name) for name in _DIMENSIONS}
            if checkpoint.has_tokenizer:
                ids = ("bos_token_id", "eos_token_id", "pad_token_id")
                self._fields |= {name: self.generation.get(name) for name in ids}
        self._fields = {"dtype": "float32", "use_cache": True, **self._fields}
        if dimensions.classifier is not None:
            stated = dimensions.classifier.labels
            labels = stated or [f"LABEL_{i}" for i in range(num_labels)]
            self._fields |= {
                "id2label": dict(enumerate(labels)),
                "label2id": {label: i for i, label in enumerate(labels)},
                "num_labels": num_labels,
                "problem_type": None,
            }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._fields:
            return self._fields[name]
        for held in (self.dimensions, self.dimensions.of_family):
            if hasattr(held, name):
                return getattr(held, name)
        raise AttributeError(f"the configuration of {self.name_or_path} has no {name}")

    def __dir__(self) -> Iterator[str]:
        own = self.dimensions
        yield from {*super().__dir__(), *self._fields, *vars(own), *vars(own.of_family)}

    def get_text_config(self, decoder: bool = False) -> LoadedConfig:
        """Return itself: the model reads text alone."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ``model_type`` and ``architectures`` among them."""
        return dict(self._fields)

    def to_json_string(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def __repr__(self) -> str:
        return f"LoadedConfig {self.to_json_string()}"
