"""A batch of texts that grow call by call, with their keys and values kept in the engine's cache."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine import Engine, Options, Sequence
from oxibonsai.engine.batching import make_batch, reads_images, reserve
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.scheduler import Chunk
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.vision import PlacedImage

Results = dict[str, npt.NDArray[np.float32]]
# The last argument says whether some rows are given embeddings.
Run = Callable[[_core.Batch, Items[KvPages], Slots | None, bool], Results]

_STEP_ROWS = 256  # rows of a batch; results don't depend on it

# Tables that the garbage collector has found. It may run inside the engine, so they are only noted
# there, and given back by the next call.
_discarded: weakref.WeakKeyDictionary[Engine, deque[PageTable]] = weakref.WeakKeyDictionary()


class Rows:
    """Texts of a batch: what has been fed is computed once, however the calls cut it.

    Args:
        engine: Its cache has the pages.

    Attributes:
        rows: One sequence a text; empty before the first call.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rows: list[Sequence] = []
        discarded = _discarded.setdefault(engine, deque())
        weakref.finalize(self, _discard, self.rows, discarded)

    def feed(
        self,
        new: Items[Items[int]],
        run: Run,
        *,
        last_only: bool = False,
        embeds: Items[Any] | None = None,
    ) -> list[Results]:
        """Continue every text.

        Args:
            new: Token ids for each text, which may be none.
            run: The pass of the model.
            last_only: Only the results of the last new token are wanted.
            embeds: Of each text, what is read in place of the embeddings of the new tokens; see
                :meth:`oxibonsai.engine.Engine.embedded_prompt`.

        Returns:
            For each text, what the pass gives, [new tokens (or 1), columns] each; nothing for a
            text without new tokens.

        Raises:
            RequestError: Another number of texts, a text longer than the context, a wrong id.
            CapacityError: The cache has no room for these texts.
        """
        engine = self.engine
        self._free_discarded()
        first = not self.rows
        if first:
            self.rows.extend(Sequence([], SamplingParams(), Options()) for _ in new)
        if len(new) != len(self.rows):
            raise RequestError(f"the batch has {len(new)} texts, its cache {len(self.rows)}")
        for s, ids in zip(self.rows, new, strict=True):
            engine.check_ids(ids)
            if len(s.tokens) + len(ids) > engine.ctx_size:
                raise RequestError(
                    f"a text has {len(s.tokens) + len(ids)} tokens, more than the context of "
                    f"{engine.ctx_size}: shorten it or load the model with a larger ctx_size"
                )
        images = [()] * len(new) if embeds is None else [self._placed(rows) for rows in embeds]
        # Samples and beams begin with equal texts: one is computed, the others share its pages.
        original: dict[tuple[tuple[int, ...], tuple[bytes, ...]], int] = {}
        keys = [
            (tuple(ids), tuple(image.embedding.digest for image in given))
            for ids, given in zip(new, images, strict=True)
        ]
        same_as = [original.setdefault(key, i) if first else i for i, key in enumerate(keys)]
        own = [i for i, j in enumerate(same_as) if i == j]
        for i in own:
            self._extend(self.rows[i], new[i], images[i])
        results = self._compute([i for i in own if new[i]], run, last_only)
        for i in own:
            results[i] = {n: a[len(a) - len(new[i]) :] for n, a in results.get(i, {}).items()}
        for i, j in enumerate(same_as):
            if i != j:
                self.rows[i] = self._fork(self.rows[j])
        return [results[j] for j in same_as]

    def select(self, indices: Items[int]) -> None:
        """Make row i what row ``indices[i]`` was.

        Raises:
            CapacityError: No slot is free for a copy; the rows are left as they were.
        """
        old = list(self.rows)
        new: list[Sequence] = []
        try:
            for i in indices:
                new.append(self._fork(old[i]))
        except CapacityError:
            self._release(new)
            raise
        self.rows[:] = new
        self._release(old)

    def fork(self) -> Rows:
        """Return the same texts once more; pages are shared.

        Raises:
            CapacityError: No slot is free for a copy.
        """
        made = Rows(self.engine)
        for row in self.rows:
            made.rows.append(self._fork(row))
        return made

    def crop(self, row: int, length: int) -> None:
        """Take away all tokens of a row but the first ``length``."""
        sequence = self.rows[row]
        del sequence.tokens[length:]
        if sequence.images is not None:
            kept = (_shortened(image, length) for image in sequence.images.placed)
            placed = tuple(image for image in kept if len(image.embedding) > 0)
            sequence.images = self.engine.prompt_images(sequence.tokens, placed)
        # Recurrent state may go back farther: what it lacks is computed again by the next call.
        with self.engine.lock:
            computed = min(sequence.num_computed, length)
            sequence.num_computed = self.engine.cache.rewind(sequence.table, computed)

    def clear(self) -> None:
        """Return all pages back."""
        self._release(self.rows)
        self.rows.clear()

    def _placed(self, rows: Any) -> tuple[PlacedImage, ...]:
        """Return a text's new embeddings, checked; there may be none."""
        if len(rows) == 0:
            return ()
        return self.engine.embedded_prompt(rows)[1].images

    def _extend(self, sequence: Sequence, ids: Items[int], images: tuple[PlacedImage, ...]) -> None:
        length = len(sequence.tokens)
        sequence.tokens.extend(ids)
        if images:
            before = () if sequence.images is None else sequence.images.placed
            moved = (replace(image, first=image.first + length) for image in images)
            sequence.images = self.engine.prompt_images(sequence.tokens, (*before, *moved))

    def _compute(self, own: list[int], run: Run, last_only: bool) -> dict[int, Results]:
        parts: dict[int, list[Results]] = {i: [] for i in own}
        while waiting := [i for i in own if self.rows[i].num_waiting]:
            share = max(1, _STEP_ROWS // len(waiting))
            rows = [self.rows[i] for i in waiting]
            chunks = [Chunk(s, s.num_computed, min(s.num_waiting, share)) for s in rows]
            outputs = self._step(chunks, run, last_only)
            start = 0
            for i, c in zip(waiting, chunks, strict=True):
                count = c.outputs if last_only else c.count
                part = {name: a[start : start + count] for name, a in outputs.items()}
                parts[i].append(part)
                start += count
                c.sequence.num_computed += c.count
        return {i: _joined(p) for i, p in parts.items()}

    def _step(self, chunks: list[Chunk], run: Run, last_only: bool) -> Results:
        with self.engine.lock:
            for c in chunks:
                reserve(self.engine.cache, c.sequence.table, c.first, c.count)
            cache = self.engine.cache
            batch = make_batch(chunks, all_rows=not last_only)
            return run(batch, cache.pools, cache.slot_memory, reads_images(chunks))

    def _fork(self, parent: Sequence) -> Sequence:
        child = Sequence(parent.tokens, SamplingParams(), Options())
        child.num_computed = parent.num_computed
        child.images = parent.images
        with self.engine.lock:
            child.table = self.engine.cache.fork(parent.table, parent.num_computed)
        return child

    def _release(self, rows: Items[Sequence]) -> None:
        with self.engine.lock:
            for s in rows:
                self.engine.cache.release(s.table)

    def _free_discarded(self) -> None:
        discarded = _discarded[self.engine]
        with self.engine.lock:
            while discarded:
                self.engine.cache.release(discarded.popleft())


def _discard(rows: list[Sequence], discarded: deque[PageTable]) -> None:
    discarded.extend(s.table for s in rows)


def _shortened(image: PlacedImage, length: int) -> PlacedImage:
    """Return what is left of embeddings in the first ``length`` positions."""
    rows = image.embedding.rows[: max(length - image.first, 0)]
    return replace(image, embedding=replace(image.embedding, held=rows))


def _joined(parts: list[Results]) -> Results:
    if not parts:
        return {}
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
