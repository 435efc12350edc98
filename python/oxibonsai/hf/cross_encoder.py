"""Scores of pairs of texts with the interface of sentence-transformers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import Engine, load
from oxibonsai.errors import RequestError, UnsupportedError, needs_extra
from oxibonsai.hf.encoder_model import SequenceClassifier
from oxibonsai.hf.pretrained import check_device, explain, locate
from oxibonsai.hf.tokenizer import AutoTokenizer

Scores = npt.NDArray[np.float32]
Pair = Sequence[str]
Activation = Callable[[Any], Any]


class CrossEncoder:
    """A reranker or a classifier of pairs, with the names of sentence-transformers.

    Args:
        model_name_or_path: As for ``AutoModelForSequenceClassification``; also Qwen3-Reranker.
        max_length: Tokens of a pair, the longer text of which is cut; None: the model's own.
        device: ``"cpu"``, or None.
        activation_fn: What makes scores of logits, from tensor to tensor; None: a sigmoid where there is
            one logit, else nothing. Qwen3-Reranker gives probabilities, to which none is applied.
        **options: Of :func:`oxibonsai.load` and, where the files are, of ``AutoModelForCausalLM``.

    Attributes:
        engine: Runs it.
        max_length, activation_fn: As given.

    Raises:
        UnsupportedError: The model has no head that scores texts, or as there.
    """

    def __init__(
        self,
        model_name_or_path: str | os.PathLike[str] | None = None,
        *,
        max_length: int | None = None,
        device: Any = None,
        activation_fn: Activation | None = None,
        **options: Any,
    ) -> None:
        check_device(device, "device")
        place = locate(model_name_or_path, options)
        explain(options)
        self.engine: Engine = load(place, **options)
        self.engine.ranker.check()
        self.max_length = max_length
        self.activation_fn = activation_fn
        head = self.engine.model.config.classifier
        self._is_probability = head is not None and head.yes_or_no
        if self._is_probability and max_length is not None:
            raise UnsupportedError(
                "max_length is not available for a reranker that is asked in a template: leave it out"
            )
        if not self._is_probability:
            self._classifier = SequenceClassifier(self.engine, place or "", options)
            self.tokenizer = AutoTokenizer.from_pretrained(self._classifier.name_or_path)

    @property
    def num_labels(self) -> int:
        """Return the scores of a pair."""
        return self.engine.ranker.num_labels

    def predict(
        self,
        sentences: Sequence[Pair] | Pair,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: Activation | None = None,
        apply_softmax: bool = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
    ) -> Any:
        """Return the scores of pairs: [pairs] of a model with one score, else [pairs, labels].

        Args:
            sentences: Pairs of texts, or one pair, which gives one score or row.
            batch_size: Pairs of a call to the engine; scores don't depend on it.
            show_progress_bar: Only False and None: nothing is shown.
            activation_fn: In place of the attribute.
            apply_softmax: Make probabilities of several scores.
            convert_to_numpy: False, and no tensor asked for: a list.
            convert_to_tensor: A torch tensor.

        Raises:
            RequestError: There are no pairs, or one is no pair of texts.
            UnsupportedError: An argument asks for what is not available.
        """
        if show_progress_bar:
            raise UnsupportedError("show_progress_bar=True is not available")
        if batch_size < 1:
            raise RequestError(f"batch_size is {batch_size}; it must be at least 1")
        is_one = len(sentences) > 0 and isinstance(sentences[0], str)
        pairs = _checked([sentences] if is_one else sentences)
        batches = (pairs[i : i + batch_size] for i in range(0, len(pairs), batch_size))
        logits = np.concatenate([self._logits(batch) for batch in batches])
        scores = self._activated(logits, activation_fn or self.activation_fn)
        if apply_softmax and logits.shape[1] > 1:
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores = powers / powers.sum(axis=1, keepdims=True)
        found: Any = scores[:, 0] if logits.shape[1] == 1 else scores
        if convert_to_tensor:
            with needs_extra("hf"):
                import torch

            found = torch.from_numpy(np.ascontiguousarray(found))
        elif not convert_to_numpy:
            found = list(found)
        return found[0] if is_one else found

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: Activation | None = None,
    ) -> list[dict[str, Any]]:
        """Return documents by how well they fit a query, the best first.

        Args:
            query: One text.
            documents: Texts.
            top_k: Give so many; None: all.
            return_documents: Give their texts, too.
            batch_size, show_progress_bar, activation_fn: As of :meth:`predict`.

        Returns:
            ``{"corpus_id": index, "score": score}``, with ``"text"`` where it is asked for.

        Raises:
            RequestError: There are no documents.
            UnsupportedError: The model gives several scores.
        """
        if self.num_labels != 1:
            raise UnsupportedError(
                f"the model gives {self.num_labels} scores for a pair, and no order: call predict()"
            )
        scores = self.predict(
            [(query, document) for document in documents],
            batch_size,
            show_progress_bar,
            activation_fn,
        )
        order = np.argsort(-scores, kind="stable")[:top_k]
        found: list[dict[str, Any]] = []
        for i in order.tolist():
            entry: dict[str, Any] = {"corpus_id": i, "score": float(scores[i])}
            found.append({**entry, "text": documents[i]} if return_documents else entry)
        return found

    def _logits(self, pairs: list[tuple[str, str]]) -> Scores:
        if self._is_probability:
            return self.engine.classify(pairs)
        inputs = self.tokenizer(
            pairs, padding=True, truncation=True, max_length=self.max_length, return_tensors="np"
        )
        logits: Scores = self._classifier(**inputs).logits
        return logits

    def _activated(self, logits: Scores, activation: Activation | None) -> Scores:
        if activation is not None:
            with needs_extra("hf"):
                import torch

            found: Scores = activation(torch.from_numpy(logits)).numpy()
            return found
        if self._is_probability or logits.shape[1] > 1:
            return logits
        return (1.0 / (1.0 + np.exp(-logits.astype(np.float64)))).astype(np.float32)

    def __repr__(self) -> str:
        return f"CrossEncoder({self.engine!r})"


def _checked(pairs: Any) -> list[tuple[str, str]]:
    if len(pairs) == 0:
        raise RequestError("sentences is empty: there is nothing to score")
    for i, pair in enumerate(pairs):
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise RequestError(f"sentences[{i}] is {pair!r:.80}; it must be a pair of texts")
    return [(first, second) for first, second in pairs]
