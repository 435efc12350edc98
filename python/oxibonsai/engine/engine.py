"""The engine: sequences stepped together through one model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from collections.abc import Sequence as Items

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.engine.kv_pages import PageAllocator
from oxibonsai.engine.scheduler import Chunk, schedule
from oxibonsai.engine.sequence import Sequence
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.models import Model
from oxibonsai.sampling import SamplingParams
from oxibonsai.tokenizer import StreamDecoder, Tokenizer

# Rows of one step: a prompt is read in chunks of this many tokens. Results don't depend on it.
DEFAULT_CHUNK = 256


class Engine:
    """Runs sequences on one model; made by :func:`oxibonsai.load`.

    Args:
        model: Program and weights.
        tokenizer: The model's own; None where the file has none: then only ids go in and out.
        chat_template: Its chat format; None where it has none.
        ctx_size: Positions a sequence may take.
        kv_type: Type of cached keys and values, one of ``_core.KV_TYPES``.
        parallel: Sequences that fit in the cache at full length.

    Attributes:
        last: The sequence of the latest ``generate`` call, with its tokens and finish reason.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None,
        chat_template: ChatTemplate | None,
        *,
        ctx_size: int,
        kv_type: str,
        parallel: int = 4,
    ) -> None:
        if tokenizer is not None and tokenizer.vocab_size > model.config.vocab_size:
            raise FormatError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model only "
                f"{model.config.vocab_size} rows"
            )
        self.model = model
        self._tokenizer = tokenizer
        self.chat_template = chat_template
        self.ctx_size = ctx_size
        self.kv_type = kv_type
        pages = -(-ctx_size // _core.PAGE_SLOTS) * parallel
        self._pages = model.new_pages(kv_type, pages)
        self._allocator = PageAllocator(pages)
        self._running: list[Sequence] = []
        self._lock = threading.RLock()
        self.last: Sequence | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; FormatError where its file has none."""
        if self._tokenizer is None:
            raise FormatError(
                f"{self.model.weights.checkpoint.path} has no tokenizer: give token ids, not text"
            )
        return self._tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text; none without a tokenizer."""
        return frozenset() if self._tokenizer is None else self._tokenizer.eos_ids

    def submit(self, prompt: Items[int], params: SamplingParams) -> Sequence:
        """Takes in a prompt; :meth:`step` runs it beside the others.

        Raises:
            RequestError: The prompt is empty, too long, or holds ids outside the vocabulary.
        """
        self._check_prompt(prompt)
        sequence = Sequence(list(prompt), params)
        with self._lock:
            self._running.append(sequence)
        return sequence

    def step(self) -> list[Sequence]:
        """One pass of the model over all running sequences; returns those that grew by a token."""
        with self._lock:
            chunks = schedule(self._running, DEFAULT_CHUNK)
            if not chunks:
                return []
            logits = self._run(chunks, all_rows=False)
            grown = [c.sequence for c in chunks if c.reaches_end]
            for sequence, row in zip(grown, logits, strict=True):
                self._append(sequence, row)
            return grown

    def cancel(self, sequence: Sequence) -> None:
        """Ends a sequence and frees its pages."""
        with self._lock:
            if sequence in self._running:
                sequence.finish_reason = sequence.finish_reason or "cancelled"
                self._retire(sequence)

    def generate_tokens(self, prompt: Items[int], params: SamplingParams) -> Iterator[int]:
        """Generated ids one by one, an end-of-text id included.

        The prompt is checked at once, not at the first token.
        """
        sequence = self.submit(prompt, params)
        self.last = sequence
        return self._follow(sequence)

    def _follow(self, sequence: Sequence) -> Iterator[int]:
        try:
            seen = 0
            while not sequence.finished or seen < sequence.num_generated:
                if seen == sequence.num_generated:
                    self.step()
                    continue
                seen += 1
                yield sequence.tokens[sequence.num_prompt_tokens + seen - 1]
        finally:
            self.cancel(sequence)

    def generate(self, prompt: str | Items[int], params: SamplingParams) -> Iterator[str]:
        """Pieces of the text that continues a prompt, as they come.

        Args:
            prompt: Text, taken as it stands (special tokens in it are text), or token ids.
            params: How to choose tokens.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        return self._decode(self.generate_tokens(ids, params))

    def _decode(self, tokens: Iterator[int]) -> Iterator[str]:
        stream = StreamDecoder(self.tokenizer, continues=True)
        for token in tokens:
            piece = stream.feed(token)
            if piece:
                yield piece
        rest = stream.flush()
        if rest:
            yield rest

    def logits(self, ids: Items[int], chunk_size: int | None = None) -> npt.NDArray[np.float32]:
        """Logits after every token of one text: float32 [len(ids), vocabulary].

        Args:
            ids: Token ids.
            chunk_size: Tokens of a step; the result doesn't depend on it.
        """
        return self.logits_batch([ids], chunk_size)[0]

    def logits_batch(
        self, texts: Items[Items[int]], chunk_size: int | None = None
    ) -> list[npt.NDArray[np.float32]]:
        """:meth:`logits` of several texts that share their steps."""
        size = DEFAULT_CHUNK if chunk_size is None else chunk_size
        if size < 1:
            raise RequestError(f"chunk_size is {size}; it must be at least 1")
        for ids in texts:
            self._check_prompt(ids)
        sequences = [Sequence(list(ids), SamplingParams()) for ids in texts]
        vocabulary = self.model.config.vocab_size
        results = [np.empty((len(ids), vocabulary), dtype=np.float32) for ids in texts]
        with self._lock:
            try:
                for first in range(0, max(len(s.tokens) for s in sequences), size):
                    live = [s for s in sequences if len(s.tokens) > first]
                    chunks = [Chunk(s, first, min(size, len(s.tokens) - first)) for s in live]
                    rows = self._run(chunks, all_rows=True)
                    start = 0
                    for c in chunks:
                        where = results[sequences.index(c.sequence)]
                        where[c.first : c.first + c.count] = rows[start : start + c.count]
                        start += c.count
            finally:
                for s in sequences:
                    self._allocator.release(s.pages)
        return results

    def iter_logits(
        self, ids: Items[int], chunk_size: int = 64, first: int = 0
    ) -> Iterator[npt.NDArray[np.float32]]:
        """:meth:`logits` in blocks of rows, in order, so that memory holds one block at a time.

        Args:
            ids: Token ids of one text.
            chunk_size: Rows of a block at most; the values don't depend on it.
            first: The position to start from: rows before it are computed without logits.

        Yields:
            float32 [rows, vocabulary] of positions ``first`` and on.
        """
        if chunk_size < 1:
            raise RequestError(f"chunk_size is {chunk_size}; it must be at least 1")
        self._check_prompt(ids)
        if not 0 <= first < len(ids):
            raise RequestError(f"first is {first}; it must be 0 to {len(ids) - 1}")
        return self._logits_blocks(Sequence(list(ids), SamplingParams()), chunk_size, first)

    def _logits_blocks(
        self, sequence: Sequence, chunk_size: int, first: int
    ) -> Iterator[npt.NDArray[np.float32]]:
        length = len(sequence.tokens)
        try:
            for start in range(0, first, DEFAULT_CHUNK):
                with self._lock:
                    chunk = Chunk(sequence, start, min(DEFAULT_CHUNK, first - start))
                    self._run([chunk], all_rows=False)
            for start in range(first, length, chunk_size):
                with self._lock:
                    chunk = Chunk(sequence, start, min(chunk_size, length - start))
                    rows = self._run([chunk], all_rows=True)
                yield rows
        finally:
            with self._lock:
                self._allocator.release(sequence.pages)

    def _check_prompt(self, ids: Items[int]) -> None:
        if len(ids) == 0:
            raise RequestError("the prompt is empty: there is nothing to continue")
        if len(ids) > self.ctx_size:
            raise RequestError(
                f"the prompt has {len(ids)} tokens, more than the context of {self.ctx_size}: shorten "
                "it or raise --ctx-size"
            )
        vocabulary = self.model.config.vocab_size
        for i, token in enumerate(ids):
            if not 0 <= token < vocabulary:
                raise RequestError(
                    f"token id {token} at index {i} is outside the vocabulary of {vocabulary}"
                )

    def _run(self, chunks: list[Chunk], *, all_rows: bool) -> npt.NDArray[np.float32]:
        """Logits of all rows, or of the last row of each chunk that reaches its sequence's end."""
        tokens: list[int] = []
        positions: list[int] = []
        owner: list[int] = []
        outputs: list[int] = []
        for i, c in enumerate(chunks):
            self._allocator.extend(c.sequence.pages, c.first + c.count)
            tokens += c.sequence.tokens[c.first : c.first + c.count]
            positions += range(c.first, c.first + c.count)
            owner += [i] * c.count
            if all_rows:
                outputs += range(len(tokens) - c.count, len(tokens))
            elif c.reaches_end:
                outputs.append(len(tokens) - 1)
        pages = [c.sequence.pages for c in chunks]
        logits = self.model.run(
            _core.Batch(tokens, positions, owner, pages, outputs), [self._pages]
        )
        for c in chunks:
            c.sequence.num_computed = c.first + c.count
        return logits

    def _append(self, sequence: Sequence, logits: npt.NDArray[np.float32]) -> None:
        token = sequence.sampler.choose(logits, sequence.tokens, sequence.num_generated)
        sequence.tokens.append(token)
        params = sequence.params
        if token in self.eos_ids and not params.ignore_eos:
            sequence.finish_reason = "stop"
        elif sequence.num_generated == params.max_tokens or len(sequence.tokens) >= self.ctx_size:
            sequence.finish_reason = "length"
        if sequence.finished:
            self._retire(sequence)

    def _retire(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._allocator.release(sequence.pages)
