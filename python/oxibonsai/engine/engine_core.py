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
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.scheduler import Chunk, PromptBudget, ServiceCounts, schedule
from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.lookahead import StepCosts
from oxibonsai.engine.speculation.proposals import propose
from oxibonsai.engine.token_sampling import Row, sample_tokens, top_wanted
from oxibonsai.errors import CapacityError, OxiBonsaiError
from oxibonsai.models import Model
from oxibonsai.sampling.sampler import TopLogits

Floats = npt.NDArray[np.float32]

# Rows of one step: a prompt is read in chunks of this many tokens. Results don't depend on it.
DEFAULT_CHUNK = 256


@dataclass(frozen=True)
class _NewestStep:
    """The newest step, whose time is still to come.

    Attributes:
        started: When, in seconds of ``time.perf_counter``.
        drafting: Seconds of the making of proposals.
        asked: Tokens that the longest proposal might have had.
        decoding: Sequences that decoded.
        rows: Of the pass.
        drafted: How many of them were proposed.
        prompt_rows: How many of them were of prompts.
    """

    started: float
    drafting: float
    asked: int
    decoding: int
    rows: int
    drafted: int
    prompt_rows: int


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
        self._newest: _NewestStep | None = None
        self._costs = StepCosts()
        # Computes what may come next while the model runs.
        self._masks = ThreadPoolExecutor(1, thread_name_prefix="oxibonsai-masks")
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.counts = StepCounts()

    def step(self) -> list[Sequence]:
        """Run one pass of the model over all running sequences; return those with new tokens."""
        started = time.perf_counter()
        if self._newest is not None and self.running:
            # From step to step, so with all that texts have to wait for.
            self._learn(self._newest, started - self._newest.started)
        self._newest = None
        self.sweep()
        self._admit()
        before = time.perf_counter()
        self._propose()
        drafting = time.perf_counter() - before
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
        self._newest = _NewestStep(
            started,
            drafting,
            asked=max((c.sequence.asked for c in chunks), default=0),
            decoding=len(chunks) - len(prompts),
            rows=sum(c.rows for c in chunks),
            drafted=sum(len(c.draft) for c in chunks),
            prompt_rows=sum(c.rows for c in prompts),
        )
        return self._collect(chunks, logits, states)

    def _learn(self, step: _NewestStep, seconds: float) -> None:
        """Learn from the time that the newest step has taken."""
        self._budget.observe(step.decoding, step.prompt_rows, seconds)
        if step.prompt_rows == 0:
            rest = seconds - step.drafting
            self._costs.observe(step.rows, step.drafted, step.asked, step.drafting, rest)

    def _run(self, chunks: list[Chunk]) -> tuple[list[Chunk], Rows[Row], dict[int, Floats]]:
        """Run the chunks, ordered by adapter, with a pass for each.

        Returns:
            The chunks and the rows of their logits; those whose pass cannot be compiled end by that
            error. And the hidden states of all rows by their taps, where speculators follow them; but
            none follows a step with rows of images: it begins anew behind them.
        """
        pools, slots = self._cache.pools, self._cache.slot_memory
        readers = [r for c in chunks if (r := c.sequence.states_reader) is not None]
        taps = sorted({tap for reader in readers for tap in reader.taps})
        if reads_images(chunks):
            taps = []
        top = top_wanted(c.sequence for c in chunks if c.outputs > 0)
        groups: dict[str, list[Chunk]] = {}
        for c in chunks:
            groups.setdefault(c.sequence.options.adapter, []).append(c)
        self.models.begin_step(groups)
        ordered: list[Chunk] = []
        logits: list[Row] = []
        states: dict[int, list[Floats]] = {tap: [] for tap in taps}
        for key, group in groups.items():
            images = reads_images(group)
            try:
                model = self.models.of(key)
                model.prepare(images=images, taps=taps)
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
            if taps:
                of_outputs, of_taps = model.run_with_hidden_states(batch, pools, slots, taps)
                for tap, of_rows in zip(taps, of_taps, strict=True):
                    states[tap].append(of_rows)
                logits.extend(of_outputs)
            elif top is not None and model.finds_top and not images:
                found = model.run_top(batch, pools, slots, top)
                logits.extend(
                    TopLogits(i, v, model.config.vocab_size, fetch) for i, v, fetch in found
                )
            else:
                logits.extend(model.run(batch, pools, slots, images=images))
        return ordered, logits, {tap: np.concatenate(s) for tap, s in states.items() if s}

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
        self._keep_end(sequence)
        self._cache.release(sequence.table)
        sequence.finish(finish_reason, sequence.matched_stop)

    def pool(self) -> int:
        """Return the number of the cache's pool that new sequences use."""
        if self._policy is None:
            return 0
        types = [p.type for p in self._cache.pools]
        return types.index(self._policy.kv_type)

    @property
    def has_work(self) -> bool:
        """Whether a step has something to do."""
        return bool(self.running) or any(not s.paused or s.cancelled for s in list(self.waiting))

    def sweep(self) -> None:
        """Retire what was cancelled, and send back what was paused."""
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
        """Let waiting sequences in while pages and slots are free.

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
        """Return sequences that may be preempted for a waiting one: first the newest of the largest tenant.

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
        shared = self._cache.shared_pages(self._cache.lookup(s.cache_ids, pool, s.cache_root))
        needed = len(s.tokens) // _core.PAGE_POSITIONS + 1 - shared
        # One more page for every running sequence, so that they need not give way at once.
        if self.running and self._cache.free_pages(pool) < needed + len(self.running):
            return False
        try:
            s.table = self._cache.find(s.cache_ids, pool, s.cache_root)
        except CapacityError:  # what runs beside the steps has the slots; the step will say so
            s.table = PageTable(pool)
        if s.table.covered < s.encoded:
            self._cache.release(s.table)  # a prompt goes through an encoder whole
        s.num_computed = s.table.covered
        if s.num_generated == 0:
            s.num_cached = s.num_computed
        return True

    def _propose(self) -> None:
        """Ask for proposals for the sequences that decode."""
        wanted: list[tuple[Sequence, int]] = []
        decoding = sum(s.decodes for s in self.running)
        for s in self.running:
            s.draft, s.asked = [], 0
            speculator = s.speculator
            forced = s.constraint is not None and s.constraint.forced()
            if speculator is None or s.num_waiting != 1 or forced:
                continue
            most = self._ctx_size - len(s.tokens) - 1
            stop = self._cache.next_stop(s.table, s.num_computed, s.stops)
            most = min(most, stop - s.num_computed - 1)
            if s.params.max_tokens is not None:
                most = min(most, s.params.max_tokens - s.num_generated - 1)
            if most > 0 and (length := speculator.lookahead.plan(self._costs, decoding)) > 0:
                wanted.append((s, min(most, length)))
        propose(wanted)

    def _cut(self, c: Chunk) -> Chunk:
        """Return the chunk, or less of it where the state after that is to be kept.

        Images whose rows see each other are not cut, and may make it longer; nor is an encoder's input.
        """
        if c.encodes:
            return replace(c, count=c.sequence.encoded - c.first)
        end = self._cache.chunk_end(c.sequence.table, c.first, c.count, c.sequence.stops)
        if c.sequence.images is not None:
            end = c.sequence.images.chunk_end(c.first, end)
        return c if end == c.first + c.count else replace(c, count=end - c.first)

    def _with_states(self, c: Chunk) -> Chunk:
        """Return the chunk with as much of its draft as there are slots to go back to within it."""
        if not c.draft:
            return c
        count = self._cache.take_states(c.sequence.table, len(c.draft))
        if count == len(c.draft):
            return c
        c.sequence.asked = count
        return replace(c, draft=c.draft[:count])

    def _reserve(self, chunks: list[Chunk]) -> list[Chunk]:
        """Return pages for the step; where they run out, the latest arrivals give way and start again.

        That is, those of the tenant that has most sequences running.
        """
        ready: list[Chunk] = []
        for c in chunks:
            while c.sequence in self.running:
                try:
                    reserve(self._cache, c.sequence.table, c.first, c.rows)
                    ready.append(self._with_states(c))
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
        self._keep_end(s)
        self._cache.release(s.table)
        s.num_computed = 0
        s.parent = None
        self.waiting.appendleft(s)

    def _collect(
        self, chunks: list[Chunk], logits: Rows[Row], states: dict[int, Floats]
    ) -> list[Sequence]:
        """Choose tokens from the logits of a step."""
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
            if states and (reader := s.states_reader) is not None:
                end = first_state + min(max(s.num_computed - c.first, 0), c.rows)
                parts = [states[tap][first_state:end] for tap in reader.taps]
                reader.follow(s, c.first, np.concatenate(parts, axis=1))
            first_state += c.rows
            if s.num_computed == 0:  # its context has shifted
                self._cache.release(s.table)
            if c.draft and not s.finished:
                s.num_computed = self._cache.rewind(s.table, s.num_computed)
            if self._cache.remember(s.table, s.cache_ids, s.num_computed, s.cache_root, s.stops):
                self._keep_states(s, s.num_computed)
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

    def _keep_end(self, s: Sequence) -> None:
        """Keep the last state of a sequence that gives its own up, for whoever goes on from there."""
        position = self._cache.keep_end(s.table, s.cache_ids, s.num_computed, s.cache_root)
        if position:
            self._keep_states(s, position)

    @staticmethod
    def _keep_states(s: Sequence, position: int) -> None:
        if s.states_reader is not None:
            s.states_reader.keep(s, position)

    def _retire(self, s: Sequence) -> None:
        self.running.remove(s)
        if s.error is None:
            self._keep_end(s)
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
