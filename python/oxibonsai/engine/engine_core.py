"""Continuous batching: admission, preemption, and what a step does for each sequence."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence as Rows
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import astuple, dataclass, replace

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.engine.adapted_models import AdaptedModels
from oxibonsai.engine.batching import make_batch, reads_images, reserve
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.kv_policy import KvPressurePolicy
from oxibonsai.engine.scheduler import Chunk, PromptBudget, ServiceCounts, schedule
from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.mtp import MtpSpeculator
from oxibonsai.engine.speculation.proposals import propose
from oxibonsai.engine.token_sampling import Row, sample_tokens, top_wanted
from oxibonsai.errors import CapacityError, OxiBonsaiError
from oxibonsai.models import Model
from oxibonsai.sampling import TopLogits

# Rows of one step: a prompt is read in chunks of this many tokens. Results don't depend on it.
DEFAULT_CHUNK = 256


@dataclass
class StepCounts:
    """Counts of an engine's work since its start.

    Attributes:
        steps: Passes of the model.
        sequences: Sequences that took part, over all steps.
        rows: Tokens computed, over all steps.
        preemptions: Sequences that gave way, for want of pages or to other tenants.
        drafts: Proposals that were checked.
        draft_tokens: Tokens of these proposals.
        accepted_tokens: Those that became part of the text.
    """

    steps: int = 0
    sequences: int = 0
    rows: int = 0
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    def __add__(self, other: StepCounts) -> StepCounts:
        """Return the counts of two engines together."""
        return StepCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class EngineCore:
    """Steps all sequences of an engine. Not for several threads at once: the engine has a lock.

    Args:
        model: Program and weights.
        cache: Pages of keys and values, slots of recurrent state.
        ctx_size: Positions a sequence may take.
        eos_ids: Tokens that end a text.
        policy: Chooses the type of new sequences' pages; None: the cache's first.

    Attributes:
        waiting: Sequences without state, in the order in which they may come in. Appending to it is
            safe at any time.
        running: Sequences with state, in the order in which they came in.
        counts: Of what has been done.
        models: The model with each set of adapters.
    """

    def __init__(
        self,
        model: Model,
        cache: KvCache,
        *,
        ctx_size: int,
        eos_ids: frozenset[int],
        policy: KvPressurePolicy | None,
    ) -> None:
        self.models = AdaptedModels(model)
        self._cache = cache
        self._ctx_size = ctx_size
        self._eos_ids = eos_ids
        self._policy = policy
        self._budget = PromptBudget(most=DEFAULT_CHUNK)
        self._served = ServiceCounts()
        # The newest step: when it began, sequences that decoded, rows of prompts.
        self._newest: tuple[float, int, int] | None = None
        # Computes what may come next while the model runs.
        self._masks = ThreadPoolExecutor(1, thread_name_prefix="oxibonsai-masks")
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.counts = StepCounts()

    def step(self) -> list[Sequence]:
        """One pass of the model over all running sequences; returns those with new tokens."""
        started = time.perf_counter()
        if self._newest is not None and self.running:
            # From step to step, so with all that texts have to wait for.
            self._budget.observe(*self._newest[1:], started - self._newest[0])
        self._newest = None
        self.sweep()
        self._admit()
        self._propose()
        chunks = schedule(self.running, DEFAULT_CHUNK, self._budget.rows, self._served)
        chunks = self._reserve([self._cut(c) for c in chunks])
        if not chunks:
            return []
        self._served.observe(chunks)
        for c in chunks:
            c.sequence.times.started = c.sequence.times.started or started
        constraints = [c.sequence.constraint for c in chunks if c.reaches_end]
        masks = [self._masks.submit(c.mask) for c in constraints if c is not None]
        chunks, logits, states = self._run(chunks)
        if masks:
            wait(masks)
        self.counts.steps += 1
        self.counts.sequences += len(chunks)
        self.counts.rows += sum(c.rows for c in chunks)
        prompts = [c for c in chunks if c.reads_prompt]
        self._newest = (started, len(chunks) - len(prompts), sum(c.rows for c in prompts))
        return self._collect(chunks, logits, states)

    def _run(
        self, chunks: list[Chunk]
    ) -> tuple[list[Chunk], Rows[Row], npt.NDArray[np.float32] | None]:
        """Run the chunks, ordered by adapter, with a pass for each.

        Returns:
            The chunks and the rows of their logits; those whose pass cannot be compiled end by that
            error.

        Also the hidden states of all rows, where a speculator follows them; but none follows a step
        with rows of pictures: it begins anew behind them.
        """
        pools, slots = self._cache.pools, self._cache.slot_memory
        with_hidden_states = any(isinstance(c.sequence.speculator, MtpSpeculator) for c in chunks)
        with_hidden_states = with_hidden_states and not reads_images(chunks)
        top = top_wanted(c.sequence for c in chunks if c.outputs > 0)
        groups: dict[str, list[Chunk]] = {}
        for c in chunks:
            groups.setdefault(c.sequence.options.adapter, []).append(c)
        self.models.begin_step(groups)
        ordered: list[Chunk] = []
        logits: list[Row] = []
        states = []
        for key, group in groups.items():
            images = reads_images(group)
            try:
                model = self.models.of(key)
                model.prepare(images=images, with_hidden_states=with_hidden_states)
            except OxiBonsaiError as e:  # the pass cannot be compiled, or not again
                for c in group:
                    self._fail(c.sequence, e)
                    self._retire(c.sequence)
                continue
            ordered += group
            if encoding := [c for c in group if c.encodes]:
                model.encode(make_batch(encoding), pools)
                group = [c for c in group if not c.encodes]
            if not group:
                continue
            batch = make_batch(group)
            if with_hidden_states:
                of_outputs, of_rows = model.run_with_hidden_states(batch, pools, slots)
                states.append(of_rows)
                logits.extend(of_outputs)
            elif top is not None and model.finds_top and not images:
                found = model.run_top(batch, pools, slots, top)
                logits.extend(
                    TopLogits(i, v, model.config.vocab_size, fetch) for i, v, fetch in found
                )
            else:
                logits.extend(model.run(batch, pools, slots, images=images))
        return ordered, logits, np.concatenate(states) if states else None

    def adopt(self, sequence: Sequence, computed: int, finish_reason: str | None) -> None:
        """Take in a sequence whose table holds the state of its first tokens already."""
        self._cache.remember(sequence.table, sequence.cache_ids, computed, sequence.cache_root)
        # At least one token is left to compute: the logits after the last one are wanted.
        computed = min(computed, len(sequence.tokens) - 1)
        sequence.num_computed = self._cache.rewind(sequence.table, computed)
        if finish_reason is None:
            sequence.finish_reason = None
            sequence.times.started = time.perf_counter()
            self.running.append(sequence)
            return
        self._cache.release(sequence.table)
        sequence.finish(finish_reason, sequence.matched_stop)

    def pool(self) -> int:
        """Which of the cache's pools new sequences use."""
        if self._policy is None:
            return 0
        types = [p.type for p in self._cache.pools]
        return types.index(self._policy.kv_type)

    @property
    def has_work(self) -> bool:
        """Whether a step has something to do."""
        return bool(self.running) or any(not s.paused or s.cancelled for s in list(self.waiting))

    def sweep(self) -> None:
        """Retires what was cancelled, and sends back what was paused."""
        for s in [s for s in self.running if s.cancelled]:
            s.finish_reason = "cancelled"
            self._retire(s)
        for s in [s for s in list(self.waiting) if s.cancelled]:
            s.finish_reason = "cancelled"
            self.waiting.remove(s)
            self._close(s)
        for s in [s for s in reversed(self.running) if s.paused]:
            self._preempt(s)

    def _admit(self) -> None:
        """Lets waiting sequences in while pages and slots are free.

        First comes the tenant with the fewest sequences running, and of one tenant what came first;
        a sample that waits for the prompt that it shares is passed over.
        """
        while (s := self._next_waiting()) is not None:
            sibling = _sibling(s)
            found = self._find_room(s) if sibling is None else self._take_over(s, sibling)
            if not found:
                victims = self._victims(s)
                if not victims:
                    return
                self._preempt(victims[0])
                continue
            self.waiting.remove(s)
            self.running.append(s)

    def _next_waiting(self) -> Sequence | None:
        """Return the waiting sequence that comes in first; None where all that wait cannot yet."""
        held = Counter(s.options.tenant for s in self.running)
        stopped = set()  # tenants whose next sequence has to wait
        first = None
        for s in list(self.waiting):
            tenant = s.options.tenant
            if s.paused or tenant in stopped:
                continue
            sibling = _sibling(s)
            if sibling is not None and sibling.num_computed < s.num_prompt_tokens:
                continue  # its prompt is being computed; those behind it need not wait for that
            stopped.add(tenant)
            if first is None or held[tenant] < held[first.options.tenant]:
                first = s
        return first

    def _victims(self, s: Sequence) -> list[Sequence]:
        """Sequences that may be preempted for a waiting one: first the newest of the largest tenant.

        None where even all of it would not make enough room.
        """
        left, victims = list(self.running), []
        own = sum(r.options.tenant == s.options.tenant for r in left)
        while left:
            victim = _newest_of_most(left)
            if sum(r.options.tenant == victim.options.tenant for r in left) < own + 2:
                break
            left.remove(victim)
            victims.append(victim)
        room = self._cache.free_pages(s.table.pool) + sum(len(v.table.pages) for v in victims)
        needed = len(s.tokens) // _core.PAGE_POSITIONS + 1 + len(left)
        return victims if room >= needed else []

    def _take_over(self, s: Sequence, sibling: Sequence) -> bool:
        """Return a sequence the computed prompt of another one, if a slot is free."""
        if not self._cache.has_slot:
            return False
        # The last token is computed again, for its logits.
        s.table = self._cache.fork(sibling.table, s.num_prompt_tokens - 1)
        s.num_computed = s.num_cached = s.table.reach(s.num_prompt_tokens - 1)
        return True

    def _find_room(self, s: Sequence) -> bool:
        """Return a sequence what the cache knows of it, if the rest would fit too."""
        if self.running and not self._cache.has_slot:
            return False
        # One that had to give way goes on with the type that it began with.
        pool = self.pool() if s.times.started is None else s.table.pool
        s.table = self._cache.find(s.cache_ids, pool, s.cache_root)
        if len(s.table.keys) * _core.PAGE_POSITIONS < s.encoded:
            self._cache.release(s.table)  # a prompt goes through an encoder whole
        needed = len(s.tokens) // _core.PAGE_POSITIONS + 1 - len(s.table.pages)
        # One more page for every running sequence, so that they need not give way at once.
        if self.running and self._cache.free_pages(pool) < needed + len(self.running):
            self._cache.release(s.table)
            return False
        computed = len(s.table.keys) * _core.PAGE_POSITIONS
        try:
            self._cache.attach(s.table)
        except CapacityError:  # what runs beside the steps has the slots; the step will say so
            self._cache.release(s.table)
            computed = 0
        s.num_computed = s.table.reach(computed)
        if s.num_generated == 0:
            s.num_cached = s.num_computed
        return True

    def _propose(self) -> None:
        """Asks for proposals for the sequences that decode."""
        wanted: list[tuple[Sequence, int]] = []
        for s in self.running:
            s.draft = []
            speculator = s.speculator
            forced = s.constraint is not None and s.constraint.forced()
            if speculator is None or s.num_waiting != 1 or forced:
                continue
            most = self._ctx_size - len(s.tokens) - 1
            if self._cache.slots is not None:  # a step ends at a border, for a snapshot
                most = min(most, -(s.num_computed + 1) % _core.PAGE_POSITIONS)
            if s.params.max_tokens is not None:
                most = min(most, s.params.max_tokens - s.num_generated - 1)
            if most > 0:
                wanted.append((s, most))
        for (s, _), draft in zip(wanted, propose(wanted), strict=True):
            s.draft = draft

    def _cut(self, c: Chunk) -> Chunk:
        """Return the chunk, or less of it where the state after that is to be kept.

        Images whose rows see each other are not cut, and may make it longer; nor is an encoder's input.
        """
        if c.encodes:
            return replace(c, count=c.sequence.encoded - c.first)
        end = self._cache.chunk_end(c.first, c.count, len(c.sequence.tokens))
        end = min(end, c.first + c.count)
        if c.sequence.images is not None:
            end = c.sequence.images.chunk_end(c.first, end)
        return c if end == c.first + c.count else replace(c, count=end - c.first)

    def _back_up(self, c: Chunk) -> Chunk:
        """Return the chunk; without its draft where no slot is free to return to if that is rejected."""
        if not c.draft:
            return c
        try:
            self._cache.back_up(c.sequence.table)
        except CapacityError:
            return replace(c, draft=[])
        return c

    def _reserve(self, chunks: list[Chunk]) -> list[Chunk]:
        """Pages for the step; where they run out, the latest arrivals give way and start again.

        That is, those of the tenant that has most sequences running.
        """
        ready: list[Chunk] = []
        for c in chunks:
            while c.sequence in self.running:
                try:
                    reserve(self._cache, c.sequence.table, c.first, c.rows)
                    ready.append(self._back_up(c))
                    break
                except CapacityError as e:
                    if self.running == [c.sequence]:  # what runs beside the steps has the pages
                        self._fail(c.sequence, e)
                        self._retire(c.sequence)
                    else:
                        self._preempt(_newest_of_most(self.running))
        return [c for c in ready if c.sequence in self.running]

    def _preempt(self, s: Sequence) -> None:
        """Send a sequence back to wait; what it has computed may be found when it returns."""
        self.counts.preemptions += 1
        self.running.remove(s)
        self._cache.release(s.table)
        s.num_computed = s.replay = 0
        s.parent = None
        self.waiting.appendleft(s)

    def _collect(
        self,
        chunks: list[Chunk],
        logits: Rows[Row],
        states: npt.NDArray[np.float32] | None,
    ) -> list[Sequence]:
        """Chooses tokens from the logits of a step."""
        updated = []
        row = first_state = 0
        for c in chunks:
            s = c.sequence
            s.num_computed = c.first + c.count
            rows = logits[row : row + c.outputs]
            row += len(rows)
            before = s.num_generated
            if len(rows) > 0:
                try:
                    sample_tokens(s, rows, c.draft, self._eos_ids, self._ctx_size)
                except OxiBonsaiError as e:
                    self._fail(s, e)
                self._count_draft(c, s.num_generated - before)
                updated.append(s)
                s.changed.set()
            if states is not None and isinstance(s.speculator, MtpSpeculator):
                kept = states[first_state : first_state + max(s.num_computed - c.first, 0)]
                s.speculator.follow(s, c.first, kept[: c.rows])
            first_state += c.rows
            if s.num_computed == 0:  # its context has shifted
                self._cache.release(s.table)
            s.replay = 0
            if c.draft and not s.finished:
                computed = self._cache.rewind(s.table, s.num_computed)
                s.replay, s.num_computed = s.num_computed - computed, computed
            self._cache.remember(
                s.table, s.cache_ids, s.num_computed, s.cache_root, generated=len(rows) > 0
            )
            if s.finished:
                self._retire(s)
        if self._policy is not None:
            self._policy.observe(self._cache.used_bytes / self._cache.budget)
        return updated

    def _count_draft(self, c: Chunk, new: int) -> None:
        if c.draft:
            self.counts.drafts += 1
            self.counts.draft_tokens += len(c.draft)
            # The last new token is the model's own.
            self.counts.accepted_tokens += max(0, new - 1)

    def _fail(self, s: Sequence, error: OxiBonsaiError) -> None:
        """End one sequence by an error of its own; the others go on."""
        s.error = error
        s.finish("error")

    def _retire(self, s: Sequence) -> None:
        self.running.remove(s)
        self._cache.release(s.table)
        self._close(s)

    def _close(self, s: Sequence) -> None:
        s.times.finished = time.perf_counter()
        s.changed.set()
        if s.speculator is not None:
            s.speculator.close()


def _sibling(s: Sequence) -> Sequence | None:
    """Return the sequence whose computed prompt this one takes over; None where it computes its own."""
    parent = s.parent
    return None if parent is None or parent.finished or parent.shifts else parent


def _newest_of_most(running: list[Sequence]) -> Sequence:
    """Return the newest sequence of the tenant that has most of them."""
    held = Counter(s.options.tenant for s in running)
    return max(reversed(running), key=lambda s: held[s.options.tenant])
