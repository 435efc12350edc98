"""A drafter proposes a block of tokens at once from hidden states (DFlash, DSpark, DFlash 2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures import dflash
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Slots
from oxibonsai.engine.batching import reserve
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.sequence import Wanted
from oxibonsai.engine.speculation.following import Draft, StatesDrafter, own_pages
from oxibonsai.engine.speculation.proposals import Limits
from oxibonsai.errors import CapacityError
from oxibonsai.models.block_drafter import BlockDrafter

Floats = npt.NDArray[np.float32]

_UNLIKELY = np.float32(-1e30)


class DflashDraft(StatesDrafter):
    """Makes speculators from a drafter of architecture ``dflash``.

    Args:
        engine: Whose texts are proposed.
        file: The drafter.
        threshold: Proposing ends before a token of which the drafter is less sure.
        length: Tokens of a proposal, no more than the drafter's block has; None: as many as make
            decoding fastest.
        least: Shorter proposals are dropped.

    Raises:
        FormatError: The drafter is damaged, or made for another model.
        UnsupportedError: It is of a kind that is not known.
    """

    def __init__(
        self,
        engine: Engine,
        file: Checkpoint,
        *,
        threshold: float = 0.5,
        length: int | None = None,
        least: int = 0,
    ) -> None:
        limits = Limits(length, least, threshold)
        self._drafter = BlockDrafter(engine.model, file)
        c = self._drafter.config
        pages = own_pages(engine, self._drafter.new_pages)
        name = f"{dflash.NAME} {file.fingerprint()}"
        super().__init__(
            engine, name, pages, c.target_layers, ahead=False, longest=c.longest, limits=limits
        )
        self._slots: Slots | None = self._new_slots(1)

    def run(self, batch: _core.Batch, states: Floats) -> list[tuple[Floats, Floats]]:
        """Take rows into the cache; there are no outputs."""
        self._drafter.observe(batch, list(self.cache.pools), states)
        return []

    def propose(self, wanted: list[Wanted]) -> list[list[int]]:
        """See :class:`StatesDrafter`."""
        drafts = [_Block(self, one) for one in wanted]
        with self.lock:
            ready = [d for d in drafts if d.guess.wants_more()]
            rows = [(d, d.pending()) for d in ready]
            self.read([r for d, r in rows if d.reserve(r)])
            ready = [d for d in ready if d.guess.wants_more() and self._reserve(d)]
            if ready:
                self._draft(ready)
            for draft in drafts:
                draft.close()
        return [d.guess.tokens for d in drafts]

    def _reserve(self, draft: _Block) -> bool:
        """Take pages for a block; without them there is no proposal."""
        try:
            reserve(self.cache, draft.speculator.table, draft.begin, draft.rows)
        except CapacityError:
            draft.guess.end()
            return False
        return True

    def _draft(self, drafts: list[_Block]) -> None:
        """Run all blocks, and take tokens from their rows."""
        c, batch = self._drafter.config, _core.Batch()
        if self._slots is not None and self._slots.slots <= len(drafts):
            self._slots = self._new_slots(len(drafts))
        for i, d in enumerate(drafts):
            if self._slots is not None:
                self._slots.copy(0, i + 1)
            end = d.begin + d.rows
            batch.add(
                [d.last, *[c.mask_token_id] * (d.rows - 1)],
                first=d.begin,
                pages=d.speculator.table.pages,
                slot=-1 if self._slots is None else i + 1,
                outputs=d.wanted,
                blocks=[] if c.causal else [(d.begin, end)],
            )
        logits, hidden, gate = self._drafter.draft(batch, list(self.cache.pools), self._slots)
        at = 0
        for d in drafts:
            of_block = slice(at, at + d.wanted)
            at += d.wanted
            d.take(logits[of_block], hidden[of_block], gate[of_block])
        if c.markov_rank > 0:
            self._walk_markov(drafts)
        elif c.selector_rank > 0:
            self._walk_pairs(drafts)
        else:
            for d in drafts:
                for row in d.logits:
                    if d.guess.wants_more():
                        d.guess.extend(row)

    def _walk_markov(self, drafts: list[_Block]) -> None:
        """Add to each token's logits the bias by the token before it."""
        while growing := [d for d in drafts if d.guess.wants_more()]:
            rows, biases = self._drafter.markov([d.newest for d in growing])
            for d, row, bias in zip(growing, rows, biases, strict=True):
                i = len(d.guess.tokens)
                sure = None
                if self._drafter.has_confidence:
                    sure = self._drafter.confidence(d.hidden[i], row)
                d.guess.extend(d.logits[i] + bias, probability=sure)

    def _walk_pairs(self, drafts: list[_Block]) -> None:
        """Choose each token among the likeliest of its position, by how it follows the token before it."""
        k = min(self._drafter.config.selector_top_k, self._drafter.config.vocab_size)
        candidates = [np.argpartition(d.logits, -k, axis=1)[:, -k:] for d in drafts]
        tokens = sorted({d.last for d in drafts}.union(*(c.ravel().tolist() for c in candidates)))
        place = {token: i for i, token in enumerate(tokens)}
        before, after = self._drafter.pairs(tokens)
        for d, of_block in zip(drafts, candidates, strict=True):
            for logits, ids, gate in zip(d.logits, of_block, d.gate, strict=True):
                # A structure may have made a token of it that is no candidate.
                if not d.guess.wants_more() or d.newest not in place:
                    break
                following = after[[place[int(token)] for token in ids]]
                scores = np.full_like(logits, _UNLIKELY)
                scores[ids] = logits[ids] + following @ (before[place[d.newest]] * gate)
                d.guess.extend(scores)

    def _new_slots(self, blocks: int) -> Slots | None:
        """Return a slot of zeros, and one for each of so many blocks."""
        slots = self._drafter.new_slots(1 + blocks)
        if slots is not None:
            slots.write(0, bytes(slots.slot_bytes))
        return slots


class _Block(Draft):
    """A proposal in the making.

    Attributes:
        rows: Of the block.
        wanted: How many of the last ones propose a token.
        logits, hidden, gate: Of these rows.
    """

    def __init__(self, drafter: DflashDraft, wanted: Wanted) -> None:
        super().__init__(drafter, wanted)
        self.wanted = self.guess.most
        self.rows = self.wanted + (0 if drafter._drafter.config.anchored else 1)
        self.logits = self.hidden = self.gate = np.empty((0, 0), np.float32)

    @property
    def begin(self) -> int:
        """Position of the block in the drafter's cache."""
        return self.speculator.num_read

    @property
    def newest(self) -> int:
        """The last token of the text and the proposal."""
        return self.guess.tokens[-1] if self.guess.tokens else self.last

    def take(self, logits: Floats, hidden: Floats, gate: Floats) -> None:
        """Take what the drafter gives for the rows."""
        self.logits, self.hidden, self.gate = logits, hidden, gate
