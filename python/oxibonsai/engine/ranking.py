"""Scores of texts and of pairs of texts: classifiers and rerankers."""

from __future__ import annotations

import re
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import cached_property

from oxibonsai.engine.pooled_states import Ids, PooledStates
from oxibonsai.engine.pooling import Floats
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.models import Model
from oxibonsai.models.passes import SCORES
from oxibonsai.tokenizer import Tokenizer, Watch

_TEMPLATE = "tokenizer.chat_template.rerank"


@dataclass(frozen=True)
class RankedDocument:
    """One document of a ranking.

    Attributes:
        index: Its place among the documents that were given.
        score: The higher, the better it fits the query; what it means is the model's affair.
    """

    index: int
    score: float


@dataclass(frozen=True)
class Ranking:
    """Documents, the best first.

    Attributes:
        documents: Those with equal scores in the order in which they were given.
        tokens: That the model read, of all pairs together.
    """

    documents: list[RankedDocument]
    tokens: int


class Ranker:
    """Runs texts through a model with a classifier's head.

    Safe to call from several threads; calls take turns.

    Args:
        model: Of any kind; without such a head every call is an UnsupportedError.
        tokenizer: The model's own; None where the file has none.
        ctx_size: Tokens of a text, or of a pair, at most; None: the model's own.

    Attributes:
        ctx_size: As given, or the model's own.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer | None, *, ctx_size: int | None = None
    ) -> None:
        self._model = model
        self._path = model.weights.checkpoint.path
        self._tokenizer = tokenizer
        self._states = PooledStates(model, ctx_size)
        self.ctx_size = self._states.ctx_size

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the scores of :meth:`classify`; empty where the file names none."""
        head = self._model.config.classifier
        return () if head is None else head.labels

    @property
    def num_labels(self) -> int:
        """How many scores a text has; 0 where the model has no classifier's head."""
        head, weights = self._model.config.classifier, self._model.weights
        if head is None:
            return 0
        last = "cls.output" if weights.has("cls.output.weight") else "cls"
        return 1 if head.yes_or_no else weights.rows(last)

    def classify(self, texts: Items[str | tuple[str, str]]) -> Floats:
        """Return the scores of each text: float32 [texts, labels]. They depend on that text alone.

        Args:
            texts: Texts, or pairs of texts that the model reads together.

        Raises:
            RequestError: There are none; one is empty or too long.
            UnsupportedError: The model has no classifier's head.
            FormatError: Its file has no tokenizer.
        """
        self.check()
        if isinstance(texts, str):
            raise RequestError("texts is one text; give a list of texts")
        pairs = [(t, None) if isinstance(t, str) else t for t in texts]
        return self._scores([self._ids(i, *pair) for i, pair in enumerate(pairs)])

    def rank(self, query: str, documents: Items[str], *, top_n: int | None = None) -> Ranking:
        """Return documents by how well they fit a query, the best first.

        Args:
            query: One text.
            documents: Texts.
            top_n: Give so many of the best; None: all.

        Raises:
            RequestError: There are no documents; a text is empty or too long.
            UnsupportedError: The model is no reranker.
            FormatError: Its file has no tokenizer.
        """
        return self.rank_ids(self.pair_ids(query, documents), top_n=top_n)

    def pair_ids(
        self, query: str, documents: Items[str], *, watch: Watch | None = None
    ) -> list[Ids]:
        """Return the ids that the model reads for each document; arguments and errors as of :meth:`rank`.

        Args:
            query: One text.
            documents: Texts.
            watch: As of :meth:`Tokenizer.encode`.
        """
        self.check()
        if isinstance(documents, str):
            raise RequestError("documents is one text; give a list of texts")
        return [self._ids(i, query, document, watch) for i, document in enumerate(documents)]

    def rank_ids(self, pairs: Items[Ids], *, top_n: int | None = None) -> Ranking:
        """Return the ranking of pairs that :meth:`pair_ids` made."""
        if top_n is not None and top_n < 1:
            raise RequestError(f"top_n is {top_n}; it is 1 or more")
        scores = self._scores(pairs)
        if scores.shape[1] != 1:
            raise UnsupportedError(
                f"{self._path} gives {scores.shape[1]} scores for a pair: it is a classifier, and no "
                "reranker, which gives one"
            )
        documents = [RankedDocument(i, float(row[0])) for i, row in enumerate(scores)]
        documents.sort(key=lambda d: -d.score)
        return Ranking(documents[:top_n], sum(len(p.tokens) for p in pairs))

    def check(self) -> None:
        """Raise UnsupportedError where the model has no classifier's head."""
        if self._model.config.classifier is None:
            raise UnsupportedError(
                f"{self._path} has no head that scores texts: it is no reranker and no classifier"
            )

    def score_ids(self, texts: Items[Ids], *, typed: bool = False) -> Floats:
        """Do what :meth:`classify` does for ids, which are taken as they are.

        Args:
            texts: Ids of texts, or of pairs of texts.
            typed: As of :meth:`PooledStates.run`.

        Raises:
            RequestError: There are none; one is empty, too long or holds a wrong id.
            UnsupportedError: The model has no classifier's head.
        """
        self.check()
        for index, ids in enumerate(texts):
            self._states.check(index, ids.tokens)
        return self._scores(texts, typed=typed)

    def _scores(self, texts: Items[Ids], *, typed: bool = False) -> Floats:
        head = self._model.config.classifier
        assert head is not None
        if len(texts) == 0:
            raise RequestError("there is nothing to score: no texts were given")
        vectors = self._states.run(texts, head.pooling, typed=typed)
        return self._model.run_pooled(SCORES, vectors)

    def _ids(self, index: int, text: str, second: str | None, watch: Watch | None = None) -> Ids:
        """Return a text, or a query and a document as the model was trained on them."""
        if self._tokenizer is None:
            raise FormatError(f"{self._path} has no tokenizer: it cannot read texts")
        if not text or second == "":
            what = "the query" if second is not None and not text else f"text {index}"
            raise RequestError(f"{what} is empty: there is nothing to score")
        ids = self._framed(self._tokenizer, text, second, watch)
        if len(ids.tokens) > self.ctx_size:
            raise RequestError(
                f"text {index} has {len(ids.tokens)} tokens with what frames it, more than the "
                f"{self.ctx_size} that fit: split it"
            )
        return ids

    def _framed(
        self, tokenizer: Tokenizer, text: str, second: str | None, watch: Watch | None
    ) -> Ids:
        def encode(text: str) -> list[int]:
            return tokenizer.encode(text, add_special=False, watch=watch)

        if second is None:
            return Ids(tokenizer.encode(text, watch=watch))
        if self._template is not None:
            prompt = _fill(self._template, query=text, document=second)
            return Ids(tokenizer.encode(prompt, add_special=False, parse_special=True, watch=watch))
        v = tokenizer.vocabulary
        end = [v.eos_id] if v.add_eos and v.eos_id is not None else []
        separator = [v.sep_id] if v.add_sep and v.sep_id is not None else []
        first = [v.bos_id] if v.add_bos and v.bos_id is not None else []
        first += [*encode(text), *end, *separator]
        return Ids([*first, *encode(second), *end], len(first))

    @cached_property
    def _template(self) -> str | None:
        """How a decoder wants to be asked; None where pairs are framed by special tokens."""
        found = self._model.weights.checkpoint.file.get(_TEMPLATE)
        if found is not None and not isinstance(found, str):
            raise FormatError(f"{self._path}: {_TEMPLATE} is no text")
        return found


def _fill(template: str, **values: str) -> str:
    """Return the template with its names in braces replaced, each where the template has it."""
    return re.sub(r"\{(query|document)\}", lambda found: values[found[1]], template)
