"""``AutoModel`` and ``AutoModelForSequenceClassification``: states and scores of texts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import Ids
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import as_columns, is_torch, like
from oxibonsai.hf.loaded_model import LoadedModel, check_transformers
from oxibonsai.hf.outputs import ClassifierOutput, EncoderOutput
from oxibonsai.models import ModelConfig

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
_REFUSED = {
    "position_ids": "tokens are counted from the first that the attention mask shows",
    "inputs_embeds": "give input_ids",
    "output_attentions": "attention is computed in tiles and its probabilities are never stored",
    "output_hidden_states": "only the states after the last layer are kept",
}
_IGNORED_LABEL = -100


class Encoder(LoadedModel):
    """The hidden states of a model; made by ``AutoModel``. Needs neither torch nor transformers."""

    auto_class = "AutoModel"

    @classmethod
    def _runs(cls, dimensions: ModelConfig) -> bool:
        return dimensions.decoder is None

    def __call__(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        *,
        return_dict: bool | None = None,
        **others: Any,
    ) -> Any:
        """Return the hidden states of every token. Those of a text depend on that text alone.

        Args:
            input_ids: [batch, n]; numpy, torch or nested lists.
            attention_mask: Same shape; 0 marks padding, on either side. Tokens are counted from the
                first that it shows, so that padding changes nothing.
            token_type_ids: Same shape; 0 for the first of two texts, 1 for the second.
            return_dict: False: a tuple.
            **others: Further arguments of transformers' models, which are refused by name.

        Raises:
            RequestError: Shapes don't fit each other; a text is empty, too long, holds a wrong id, or
                has a masked token in its middle.
            UnsupportedError: An argument asks for what is not available.
        """
        _refuse(others)
        texts, mask = self._read(input_ids, attention_mask, token_type_ids)
        states = np.zeros((*mask.shape, self.config.dimensions.hidden_size), np.float32)
        found = self.engine.embedder.token_states(texts, typed=_typed(texts))
        for row, shown, own in zip(states, mask, found, strict=True):
            row[shown] = own
        output = EncoderOutput(like(states, input_ids))
        return output.to_tuple() if return_dict is False else output

    forward = __call__

    def _read(
        self, input_ids: Any, attention_mask: Any, token_type_ids: Any
    ) -> tuple[list[Ids], Mask]:
        """Return the tokens of each text that the mask shows, and the mask."""
        if input_ids is None:
            raise RequestError("input_ids is missing")
        ids, mask = as_columns(input_ids, attention_mask, 0)
        types = self._types(token_type_ids, mask)
        texts = []
        for i, (row, shown) in enumerate(zip(ids, mask, strict=True)):
            (columns,) = shown.nonzero()
            if len(columns) and columns[-1] - columns[0] >= len(columns):
                raise RequestError(
                    f"attention_mask hides a token within text {i}; it can hide those at its ends"
                )
            texts.append(Ids(row[shown].tolist(), _second_text(types[i][shown])))
        return texts, mask

    def _types(self, token_type_ids: Any, mask: Mask) -> npt.NDArray[Any]:
        if token_type_ids is None:
            return np.zeros(mask.shape, np.int64)
        given = token_type_ids.cpu() if is_torch(token_type_ids) else token_type_ids
        types = np.atleast_2d(np.asarray(given))
        if types.shape != mask.shape:
            raise RequestError(
                f"token_type_ids has shape {types.shape}; it must be {mask.shape}, as input_ids"
            )
        known = self.engine.model.token_types
        if (types[mask] >= known).any() or (types[mask] < 0).any():
            raise RequestError(f"token_type_ids are 0 to {known - 1} for this model")
        return types


class SequenceClassifier(Encoder):
    """Scores of texts; made by ``AutoModelForSequenceClassification``."""

    auto_class = "AutoModelForSequenceClassification"

    @classmethod
    def _runs(cls, dimensions: ModelConfig) -> bool:
        # A probability of yes is no logit.
        return dimensions.classifier is not None and not dimensions.classifier.yes_or_no

    @cached_property
    def transformers_model(self) -> Any:
        """Return this engine as a ``transformers.PreTrainedModel``, for pipelines.

        Raises:
            UnsupportedError: torch or transformers are not installed.
        """
        check_transformers("calling the model works without")
        from oxibonsai.hf.transformers_classifier import OxiBonsaiForSequenceClassification

        return OxiBonsaiForSequenceClassification(self)

    def __call__(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        *,
        labels: Any = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> Any:
        """Return the scores of each text, before any softmax. They depend on that text alone.

        Args:
            input_ids, attention_mask, token_type_ids, return_dict, **others: As of :class:`Encoder`.
            labels: For ``loss``, as in transformers: integers [batch], of which -100 is left out
                (cross-entropy); real numbers [batch, labels] (binary cross-entropy); of a model with
                one score real numbers [batch] (mean squared error).

        Raises:
            RequestError: As there; or labels don't fit the scores.
            UnsupportedError: An argument asks for what is not available.
        """
        _refuse(others)
        texts, _ = self._read(input_ids, attention_mask, token_type_ids)
        logits = self.engine.ranker.score_ids(texts, typed=_typed(texts))
        loss = None
        if labels is not None:
            given = np.asarray(labels.cpu() if is_torch(labels) else labels)
            loss = like(np.array(_loss(logits, given), np.float32), input_ids)
        output = ClassifierOutput(loss, like(logits, input_ids))
        return output.to_tuple() if return_dict is False else output

    forward = __call__


def _refuse(others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if name not in _REFUSED:
            raise TypeError(f"forward() got {name!r}, which is no argument of it")
        if value is not None and value is not False:
            raise UnsupportedError(f"{name} is not available: {_REFUSED[name]}")


def _typed(texts: list[Ids]) -> bool:
    return any(text.first is not None for text in texts)


def _second_text(types: npt.NDArray[Any]) -> int | None:
    """Return where the tokens of type 1 begin; None: there are none."""
    if not types.any():
        return None
    first = int(types.argmax())
    if not (types[first:] == 1).all():
        raise UnsupportedError(
            "token_type_ids of a text are zeros, then ones; others are not available"
        )
    return first


def _loss(logits: Floats, labels: npt.NDArray[Any]) -> float:
    """Return transformers' loss for such labels, whose kind says which."""
    x = logits.astype(np.float64)
    if x.shape[1] == 1:
        _check_labels(labels.size == len(x), labels, x)
        return float(np.mean((x[:, 0] - labels.reshape(-1)) ** 2))
    if np.issubdtype(labels.dtype, np.integer):
        flat = labels.reshape(-1)
        kept = flat != _IGNORED_LABEL
        within = ((flat[kept] >= 0) & (flat[kept] < x.shape[1])).all()
        _check_labels(flat.size == len(x) and bool(within), labels, x)
        surprisal = np.logaddexp.reduce(x, axis=1)[kept] - x[kept, flat[kept]]
        return float(np.mean(surprisal)) if kept.any() else float("nan")
    _check_labels(labels.shape == x.shape, labels, x)
    return float(np.mean(np.logaddexp(0.0, x) - labels * x))


def _check_labels(fit: bool, labels: npt.NDArray[Any], scores: npt.NDArray[Any]) -> None:
    if not fit:
        raise RequestError(
            f"labels of shape {labels.shape} and type {labels.dtype} don't fit scores of shape "
            f"{scores.shape}"
        )


class AutoModel:
    """Loads models for their hidden states."""

    @staticmethod
    def from_pretrained(source: str | os.PathLike[str] | None = None, **options: Any) -> Encoder:
        """Return an encoder, or the layers of a decoder or classifier without its head.

        Args:
            source: As for ``AutoModelForCausalLM``.
            **options: As for ``AutoModelForCausalLM``.

        Raises:
            UnsupportedError: The model has an encoder and a decoder, or as there.
        """
        return Encoder.load(source, options)


class AutoModelForSequenceClassification:
    """Loads classifiers and rerankers."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str] | None = None, **options: Any
    ) -> SequenceClassifier:
        """Return a model with a head that scores texts.

        Args:
            source: As for ``AutoModelForCausalLM``.
            **options: As for ``AutoModelForCausalLM``.

        Raises:
            UnsupportedError: The model has no such head, or as there.
        """
        return SequenceClassifier.load(source, options)
