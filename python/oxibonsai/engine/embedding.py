"""Texts to vectors."""

from __future__ import annotations

import operator
from collections.abc import Sequence as Items

import numpy as np

from oxibonsai.engine.pooled_states import Ids, PooledStates
from oxibonsai.engine.pooling import Floats, unit
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.models import Model
from oxibonsai.models.passes import PROJECTED
from oxibonsai.tokenizer import Tokenizer


class Embedder:
    """Makes vectors of texts: pooled hidden states, and what a model projects them to.

    Safe to call from several threads; calls take turns.

    Args:
        model: A decoder or an encoder.
        tokenizer: The model's own; None where the file has none: then only ids go in.
        ctx_size: Tokens of a text at most; None: the model's own, cut to suit the machine's memory.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer | None, *, ctx_size: int | None = None
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._states = PooledStates(model, ctx_size)
        self.ctx_size = self._states.ctx_size

    @property
    def dimensions(self) -> int:
        """Return the values of a vector that is not shortened."""
        return self._model.embedding_size

    def embed(
        self,
        texts: Items[str | Items[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        truncate: int | None = None,
    ) -> Floats:
        """Return one vector a text: float32 [texts, dimensions]. A vector depends on its own text alone.

        Args:
            texts: Strings, framed with bos and eos as the model wants it, or lists of token ids,
                taken as they are.
            pooling: ``"last"``, ``"mean"``, ``"max"`` or ``"cls"``; None: what the model is made for.
            normalize: Scale each vector to length 1.
            dimensions: Keep only so many values of each vector, from the first on, and normalise
                those; for models that are trained for it (Matryoshka).
            truncate: Cut texts to so many tokens, eos of a framed string kept; None: a text that is
                too long is an error.

        Raises:
            RequestError: There are no texts; one is empty, too long or holds a wrong id; the pooling
                or the number of dimensions does not exist.
            FormatError: Texts are strings and the model's file has no tokenizer.
        """
        if isinstance(texts, str | bytes):
            raise RequestError(f"texts is one text, {texts!r}; give a list of texts")
        if not hasattr(texts, "__len__"):
            raise RequestError(f"texts is {texts!r:.80}; give a list of texts")
        width = self.dimensions if dimensions is None else dimensions
        if isinstance(width, bool) or not isinstance(width, int):
            raise RequestError(f"dimensions is {dimensions!r}, not a number")
        if not 1 <= width <= self.dimensions:
            raise RequestError(f"dimensions is {width}; this model has 1 to {self.dimensions}")
        if truncate is not None and not 1 <= truncate <= self.ctx_size:
            raise RequestError(f"truncate is {truncate}; it is 1 to {self.ctx_size} tokens")
        if len(texts) == 0:
            raise RequestError("texts is empty: there is nothing to embed")
        chosen = self._model.config.pooling if pooling is None else pooling
        ids = [Ids(self._ids(index, text, truncate)) for index, text in enumerate(texts)]
        vectors = self._states.run(ids, chosen)
        if self._model.has_head(PROJECTED):
            vectors = self._model.run_pooled(PROJECTED, vectors)
        vectors = np.ascontiguousarray(vectors[:, :width])
        return np.stack([unit(v) for v in vectors]) if normalize else vectors

    def token_states(self, texts: Items[Ids], *, typed: bool = False) -> list[Floats]:
        """Return the hidden states after the final norm: for each text float32 [tokens, hidden].

        Args:
            texts: Ids, taken as they are.
            typed: As of :meth:`PooledStates.run`.

        Raises:
            RequestError: A text is empty, too long or holds a wrong id.
            UnsupportedError: The model has an encoder and a decoder.
        """
        for index, ids in enumerate(texts):
            self._states.check(index, ids.tokens)
        return self._states.token_states(texts, typed=typed)

    def _ids(self, index: int, text: str | Items[int], truncate: int | None) -> list[int]:
        """Return the token ids of a text, checked."""
        if isinstance(text, str):
            if self._tokenizer is None:
                raise FormatError(
                    f"{self._model.weights.checkpoint.path} has no tokenizer: give token ids, not text"
                )
            ids = self._tokenizer.encode(text) if text else []
            eos = self._tokenizer.eos_id if self._tokenizer.vocabulary.add_eos else None
        else:
            eos = None
            try:
                ids = [operator.index(i) for i in text]
            except TypeError as e:
                raise RequestError(
                    f"text {index} is neither a string nor a list of token ids: {e}"
                ) from e
        if truncate is not None and len(ids) > truncate:
            ids = ids[:truncate] if eos is None else [*ids[: truncate - 1], eos]
        self._states.check(index, ids)
        return ids
