"""The methods of an engine that read whole texts at once: logits, hidden states, vectors, scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.embedding import Embedder
from oxibonsai.engine.engine_core import DEFAULT_CHUNK
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.logits import DLPackArray, WholeTexts
from oxibonsai.engine.pooled_states import Ids
from oxibonsai.engine.process_lock import ProcessLock
from oxibonsai.engine.ranking import Ranker, Ranking
from oxibonsai.engine.sequence import Options, Sequence
from oxibonsai.errors import RequestError, UnsupportedError, needs_extra
from oxibonsai.models import Model
from oxibonsai.sampling import SamplingParams
from oxibonsai.vision import PlacedImage
from oxibonsai.vision.prompt_images import PromptImages

if TYPE_CHECKING:
    import torch


class WholeTextMixin(ABC):
    """Reads whole texts with an engine's model and cache, beside its sequences.

    Attributes:
        model: Program and weights.
        cache: Pages of keys and values, slots of recurrent state.
        embedder: Makes vectors of texts, with a cache of its own.
        ranker: Scores texts and pairs of texts, likewise.
        lock: Held during a step.
    """

    model: Model
    cache: KvCache
    embedder: Embedder
    ranker: Ranker
    lock: ProcessLock

    @abstractmethod
    def check_prompt(self, ids: Items[int]) -> list[int]:
        """Return the ids as plain integers; RequestError where they are no prompt for this model."""

    @abstractmethod
    def prompt_images(
        self, ids: Items[int], placed: tuple[PlacedImage, ...]
    ) -> PromptImages | None:
        """Return the images of a prompt, checked against its ids."""

    @abstractmethod
    def read_prompt(
        self, prompt: str | Items[int] | None, inputs_embeds: Any, options: Options | None
    ) -> tuple[Items[int], Options | None]:
        """Return the ids of a prompt in any of its forms, and the options that go with them."""

    @overload
    def logits(
        self,
        prompt: str | Items[int] | None = None,
        chunk_size: int | None = None,
        *,
        images: tuple[PlacedImage, ...] = (),
        inputs_embeds: Any = None,
        as_dlpack: Literal[False] = False,
    ) -> npt.NDArray[np.float32]: ...

    @overload
    def logits(
        self,
        prompt: str | Items[int] | None = None,
        chunk_size: int | None = None,
        *,
        images: tuple[PlacedImage, ...] = (),
        inputs_embeds: Any = None,
        as_dlpack: Literal[True],
    ) -> DLPackArray: ...

    def logits(
        self,
        prompt: str | Items[int] | None = None,
        chunk_size: int | None = None,
        *,
        images: tuple[PlacedImage, ...] = (),
        inputs_embeds: Any = None,
        as_dlpack: bool = False,
    ) -> npt.NDArray[np.float32] | DLPackArray:
        """Return logits after every token of one text: float32 [n, vocabulary].

        Args:
            prompt: Text, taken as it stands, or token ids.
            chunk_size: Tokens of a step; the result doesn't depend on it.
            images: Images, and the ids that stand for their rows, in order.
            inputs_embeds: In place of a prompt; see :meth:`embedded_prompt`.
            as_dlpack: Return an object that ``torch.from_dlpack`` and ``numpy.from_dlpack`` take
                without a copy.
        """
        ids, options = self.read_prompt(prompt, inputs_embeds, Options(images=images))
        assert options is not None  # as given
        rows = self.logits_batch([ids], chunk_size, [options.images])[0]
        return DLPackArray(rows) if as_dlpack else rows

    @overload
    def hidden_states(
        self, prompt: str | Items[int], *, as_dlpack: Literal[False] = False
    ) -> npt.NDArray[np.float32]: ...

    @overload
    def hidden_states(
        self, prompt: str | Items[int], *, as_dlpack: Literal[True]
    ) -> DLPackArray: ...

    def hidden_states(
        self, prompt: str | Items[int], *, as_dlpack: bool = False
    ) -> npt.NDArray[np.float32] | DLPackArray:
        """Return the states of every token after the final norm: float32 [n, hidden].

        Args:
            prompt: Text, taken as it stands, or token ids.
            as_dlpack: As of :meth:`logits`.

        Raises:
            RequestError: The prompt is empty, too long, or holds ids outside the vocabulary.
            UnsupportedError: The model has an encoder and a decoder.
        """
        ids, _ = self.read_prompt(prompt, None, None)
        (rows,) = self.embedder.token_states([Ids(self.check_prompt(ids))])
        return DLPackArray(rows) if as_dlpack else rows

    @overload
    def embed(
        self,
        texts: Items[str | Items[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        truncate: int | None = None,
        as_dlpack: Literal[False] = False,
    ) -> npt.NDArray[np.float32]: ...

    @overload
    def embed(
        self,
        texts: Items[str | Items[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        truncate: int | None = None,
        as_dlpack: Literal[True],
    ) -> DLPackArray: ...

    def embed(
        self,
        texts: Items[str | Items[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        truncate: int | None = None,
        as_dlpack: bool = False,
    ) -> npt.NDArray[np.float32] | DLPackArray:
        """Return one vector a text; see :meth:`oxibonsai.engine.embedding.Embedder.embed`.

        Args:
            texts, pooling, normalize, dimensions, truncate: As there.
            as_dlpack: As of :meth:`logits`.
        """
        vectors = self.embedder.embed(
            texts,
            pooling=pooling,
            normalize=normalize,
            dimensions=dimensions,
            truncate=truncate,
        )
        return DLPackArray(vectors) if as_dlpack else vectors

    def rerank(self, query: str, documents: Items[str], *, top_n: int | None = None) -> Ranking:
        """Rank documents by how well they fit a query; see :meth:`oxibonsai.engine.ranking.Ranker.rank`."""
        return self.ranker.rank(query, documents, top_n=top_n)

    def classify(self, texts: Items[str | tuple[str, str]]) -> npt.NDArray[np.float32]:
        """Return the scores of texts; see :meth:`oxibonsai.engine.ranking.Ranker.classify`."""
        return self.ranker.classify(texts)

    def logits_torch(
        self,
        prompt: str | Items[int] | None = None,
        chunk_size: int | None = None,
        *,
        inputs_embeds: Any = None,
    ) -> torch.Tensor:
        """Return :meth:`logits` as a tensor over the same memory: float32 [n, vocabulary]."""
        with needs_extra("hf"):
            import torch

        return torch.from_numpy(self.logits(prompt, chunk_size, inputs_embeds=inputs_embeds))

    def hidden_states_torch(self, prompt: str | Items[int]) -> torch.Tensor:
        """Return :meth:`hidden_states` as a tensor over the same memory: float32 [n, hidden]."""
        with needs_extra("hf"):
            import torch

        return torch.from_numpy(self.hidden_states(prompt))

    def embeddings_torch(
        self,
        texts: str | Items[str | Items[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        truncate: int | None = None,
    ) -> torch.Tensor:
        """Return :meth:`embed` as a tensor over the same memory: float32 [texts, dimensions].

        Args:
            texts: As of :meth:`embed`, or one text alone, whose tensor is [1, dimensions].
            pooling, normalize, dimensions, truncate: As of :meth:`embed`.
        """
        with needs_extra("hf"):
            import torch

        vectors = self.embed(
            [texts] if isinstance(texts, str) else texts,
            pooling=pooling,
            normalize=normalize,
            dimensions=dimensions,
            truncate=truncate,
        )
        return torch.from_numpy(vectors)

    def logits_batch(
        self,
        texts: Items[Items[int]],
        chunk_size: int | None = None,
        images: Items[tuple[PlacedImage, ...]] | None = None,
    ) -> list[npt.NDArray[np.float32]]:
        """Return :meth:`logits` of several texts that share their steps, with the images of each."""
        size = DEFAULT_CHUNK if chunk_size is None else chunk_size
        # Refuses bad texts before anything is taken.
        blocks = self._iter_logits(texts, size, images=images)
        vocabulary = self.model.config.vocab_size
        results = [np.empty((len(ids), vocabulary), dtype=np.float32) for ids in texts]
        for i, first, rows in blocks:
            results[i][first : first + len(rows)] = rows
        return results

    def decoder_logits(
        self, prompts: Items[Items[int]], decoded: Items[Items[int]]
    ) -> list[npt.NDArray[np.float32]]:
        """Return logits after every token of a decoder: for each prompt float32 [tokens, vocabulary].

        Args:
            prompts: Token ids that the encoder reads.
            decoded: Token ids of the decoder behind each prompt, from its start token on.

        Raises:
            RequestError: A text is empty, too long, or holds ids outside the vocabulary.
            UnsupportedError: The model has no encoder.
        """
        if self.model.config.decoder is None:
            raise UnsupportedError(
                f"{self.model.weights.checkpoint.path} has no encoder in front of its decoder: call "
                "logits()"
            )
        sequences = []
        for prompt, own in zip(prompts, decoded, strict=True):
            read, ids = self.check_prompt(prompt), self.check_prompt(own)
            self.check_prompt([*read, *ids])  # both have to fit
            sequences.append(
                Sequence([*read, *ids], SamplingParams(), Options(), encoded=len(read))
            )
        results: list[list[npt.NDArray[np.float32]]] = [[] for _ in sequences]
        runner = WholeTexts(self.model, self.cache, self.lock)
        for i, _, rows in runner.iter_logits(sequences, DEFAULT_CHUNK):
            results[i].append(rows)
        return [np.concatenate(blocks) for blocks in results]

    def iter_logits(
        self, ids: Items[int], chunk_size: int = 64, first: int = 0
    ) -> Iterator[npt.NDArray[np.float32]]:
        """Yield :meth:`logits` in blocks of rows, in order, so that memory holds one block at a time.

        Args:
            ids: Token ids of one text.
            chunk_size: Rows of a block at most; the values don't depend on it.
            first: The position to start from: rows before it are computed without logits.

        Yields:
            float32 [rows, vocabulary] of positions ``first`` and on.
        """
        self.check_prompt(ids)
        if not 0 <= first < len(ids):
            raise RequestError(f"first is {first}; it must be 0 to {len(ids) - 1}")
        return (rows for _, _, rows in self._iter_logits([ids], chunk_size, first))

    def _iter_logits(
        self,
        texts: Items[Items[int]],
        chunk_size: int,
        first: int = 0,
        images: Items[tuple[PlacedImage, ...]] | None = None,
    ) -> Iterator[tuple[int, int, npt.NDArray[np.float32]]]:
        """Check texts now; yield (text, first position, rows [n, vocabulary]) in order."""
        if chunk_size < 1:
            raise RequestError(f"chunk_size is {chunk_size}; it must be at least 1")
        self.model.check_generates()
        self.model.check_decoder_only("logits of whole texts")
        checked = [self.check_prompt(ids) for ids in texts]
        placed = [()] * len(checked) if images is None else images
        sequences = [
            Sequence(ids, SamplingParams(), Options(), images=self.prompt_images(ids, own))
            for ids, own in zip(checked, placed, strict=True)
        ]
        runner = WholeTexts(self.model, self.cache, self.lock)
        return runner.iter_logits(sequences, chunk_size, first)
