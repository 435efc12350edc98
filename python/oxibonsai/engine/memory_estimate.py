"""Estimate the memory that a model will take, before its weights are read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import default_threads
from oxibonsai.engine.engine_core import DEFAULT_CHUNK
from oxibonsai.engine.memory import (
    cache_ram_bytes,
    default_ctx_size,
    default_kv_type,
    kv_bytes_per_token,
    plan_slots,
)
from oxibonsai.engine.page_table import PAGE_POSITIONS
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.kv_types import find_kv_type
from oxibonsai.loading import discovered_mmproj, open_model, open_tower
from oxibonsai.models import load_model
from oxibonsai.vision.tower import Tower

# Where packed weights begin in the file that stands for them.
_OFFSET = 64
# What an entry of a vocabulary takes as Python's strings, tables and merges; measured.
_TOKEN_BYTES = 600
# A model's result, and what is sampled from.
_LOGITS_COPIES = 2


@dataclass(frozen=True)
class MemoryEstimate:
    """The memory of the CPU that a model takes with full contexts, in bytes.

    Attributes:
        weights: Packed matrices, and tables of embeddings, which are read in the file.
        cache: Keys and values.
        recurrent_state: Of the sequences.
        snapshots: Of recurrent state, from which equal beginnings are continued.
        work: Values of a step, and logits.
        vision: Weights of the vision tower.
        tokenizer: Vocabulary and merges.
        ctx_size: Positions of a sequence that this is for.
        parallel: Sequences that this is for.
        kv_type: Of keys and values; None: there are none.
    """

    weights: int
    cache: int
    recurrent_state: int
    snapshots: int
    work: int
    vision: int
    tokenizer: int
    ctx_size: int
    parallel: int
    kv_type: str | None

    @property
    def parts(self) -> dict[str, int]:
        """The bytes of each part, by its name."""
        names = ("weights", "cache", "recurrent_state", "snapshots", "work", "vision", "tokenizer")
        return {name: getattr(self, name) for name in names}

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(self.parts.values())


def estimate_memory(
    source: str | os.PathLike[str] | None = None,
    *,
    ctx: int | None = None,
    parallel: int = 1,
    cache_type: str | None = None,
    mmproj: str | os.PathLike[str] | bool | None = None,
) -> MemoryEstimate:
    """Estimate the memory that a model will take on the CPU, from the headers of its files alone.

    Args:
        source: As of :func:`oxibonsai.load`.
        ctx: Positions of a sequence; None: those that ``load`` chooses here.
        parallel: Sequences at once, all of full length.
        cache_type: Of keys and values; None: the type that ``load`` chooses.
        mmproj: The vision tower, as of ``load``.

    Raises:
        SourceError: No such model.
        FormatError: The file is damaged.
        UnsupportedError: The file asks for what this version does not implement.
        RequestError: An argument is out of range.
    """
    checkpoint = open_model(source)
    if isinstance(mmproj, str | os.PathLike):
        tower: Checkpoint | None = open_tower(mmproj)
    else:
        tower = None if mmproj is False else find_tower(source, checkpoint)
    return MemoryPlan(checkpoint, tower).estimate(ctx, parallel, cache_type)


def find_tower(source: str | os.PathLike[str] | None, checkpoint: Checkpoint) -> Checkpoint | None:
    """Return the likeliest vision tower beside a model; None: there is none."""
    _, opened = next(discovered_mmproj(source, checkpoint.path), (None, None))
    return None if opened is None else opened()


class MemoryPlan:
    """A model whose passes are compiled over weights that are not there: only the sizes are.

    They are those of :func:`oxibonsai.load`: the same code computes them.

    Args:
        checkpoint: The model.
        tower: Its vision tower, if any.

    Raises:
        FormatError: A file is damaged.
        UnsupportedError: A file asks for what this version does not implement.
    """

    def __init__(self, checkpoint: Checkpoint, tower: Checkpoint | None = None) -> None:
        if not checkpoint.has_weights:
            raise FormatError(f"{checkpoint.path} holds a vocabulary but no weights")
        with tempfile.TemporaryDirectory() as folder:
            device = _DeviceWithoutWeights(default_threads(), Path(folder))
            self._model = load_model(checkpoint, device)
            executable = self._model.program(self._model.main_pass)
            assert isinstance(executable, _core.Executable)
            self._executable = executable
            self._weights = device.held_bytes + executable.table_bytes
            before = device.held_bytes
            if tower is not None:
                Tower.of_checkpoint(tower, device, lambda _: 0)
            self._vision = device.held_bytes - before
        self._checkpoint = checkpoint

    def estimate(
        self, ctx: int | None = None, parallel: int = 1, cache_type: str | None = None
    ) -> MemoryEstimate:
        """Return the memory for so many full contexts.

        Args:
            ctx: As of :func:`estimate_memory`.
            parallel: As there.
            cache_type: As there.

        Raises:
            RequestError: An argument is out of range.
        """
        for name, value in {"ctx": ctx, "parallel": parallel}.items():
            if value is not None and (not isinstance(value, int) or value is True or value < 1):
                raise RequestError(f"{name} is {value!r}; it must be a whole number from 1 on")
        model, layers = self._model, self._model.graph.paged_layers
        if not layers and cache_type is not None:
            raise RequestError("this model keeps no keys and values: leave out cache_type")
        kv_type = None
        if layers:
            kv_type = default_kv_type(layers) if cache_type is None else find_kv_type(cache_type)
        size = default_ctx_size(model.config, self._checkpoint) if ctx is None else ctx
        size = min(size, model.config.longest_text)
        cache = 0
        if kv_type is not None:
            cache = _pages(size) * PAGE_POSITIONS * kv_bytes_per_token(layers, kv_type) * parallel
        slots, snapshots = _recurrent(model.graph.slot_entries, size, parallel)
        tokens = self._checkpoint.file.get("tokenizer.ggml.tokens")
        return MemoryEstimate(
            weights=self._weights,
            cache=cache,
            recurrent_state=slots,
            snapshots=snapshots,
            work=self._work_bytes(kv_type, size, parallel),
            vision=self._vision,
            tokenizer=_TOKEN_BYTES * (0 if tokens is None else len(tokens)),
            ctx_size=size,
            parallel=parallel,
            kv_type=kv_type,
        )

    def _work_bytes(self, kv_type: str | None, size: int, parallel: int) -> int:
        """Return the bytes of the larger step: a prompt's last chunk, or the next token of all."""
        model, pages = self._model, _pages(size)
        # Address space only: nothing is written.
        pools = [] if kv_type is None else [model.new_pages(kv_type, pages * parallel)]
        slots = model.new_slots(parallel) if model.graph.slot_entries else None

        def step_bytes(sequences: int, rows: int) -> int:
            batch = _core.Batch()
            for i in range(sequences):
                own = range(i * pages, (i + 1) * pages) if pools else ()
                batch.add([0] * rows, first=size - rows, pages=list(own), slot=i, outputs=1)
            return self._executable.step_bytes(batch, pools, slots)

        if not model.config.causal:
            return step_bytes(1, size)
        logits = _LOGITS_COPIES * parallel * model.config.vocab_size * 4
        return logits + max(step_bytes(1, min(size, DEFAULT_CHUNK)), step_bytes(parallel, 1))


def _pages(size: int) -> int:
    return -(-size // PAGE_POSITIONS)


def _recurrent(entries: list[int], size: int, parallel: int) -> tuple[int, int]:
    """Return the bytes of the sequences' slots, and of their snapshots at most."""
    ram = cache_ram_bytes(None, recurrent=bool(entries))
    plan = plan_slots(entries, ctx_size=size, parallel=parallel, ram_bytes=ram)
    if plan is None:
        return 0, 0
    slot = _core.slot_bytes(entries)
    taken = min(plan.snapshots, parallel * (size // plan.interval + 2))
    return parallel * slot, min(taken * slot, ram)


class _DeviceWithoutWeights(_core.CpuDevice):
    """A CPU that compiles passes over packed weights that are a hole in a file.

    Attributes:
        held_bytes: Of the weights that it would have packed.
    """

    def __init__(self, threads: int, folder: Path) -> None:
        super().__init__(threads)
        self._folder = folder
        self.held_bytes = 0

    def pack(
        self, weights: list[_core.Weight], progress: Callable[[int], None] | None = None
    ) -> _core.PackedWeights:
        """Stand for the packed form of weights."""
        size = self.packed_size(weights)
        hole = self._folder / f"{self.held_bytes}-{size}"
        with hole.open("wb") as file:
            file.truncate(_OFFSET + size)
        self.held_bytes += size
        return self.attach(weights, str(hole), _OFFSET)
