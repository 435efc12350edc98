"""Whether this machine's kernels give the results that the definition, the scalar tier, gives."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np

from oxibonsai import _core
from oxibonsai.architectures.layers.pooled import TOKEN_TYPES
from oxibonsai.devices import Device, Executable
from oxibonsai.errors import ParityError
from oxibonsai.models.model import Model
from oxibonsai.models.parity_graphs import graph_of
from oxibonsai.models.parity_steps import (
    DECODING,
    GPU_ROW_COUNTS,
    LONG_DECODING,
    Span,
    Step,
    StepMaker,
    compare_steps,
    keep_kernel_names,
    kernel_names,
    random_activations,
    rows_only,
)
from oxibonsai.models.parity_wide import compare_top, heads_of

Parity = Literal["quick", "full", "off"]
DEFINITION = "scalar"

# Rows of a step: one, a few, and more than a kernel takes at once.
_ROW_COUNTS = (1, 3, 9)
# Of attention: over the border of two pages, of which the positions before are empty.
_ATTENTION_FIRST, _ATTENTION_ROWS = 60, 9
# Of attention without pages: a GPU has another kernel for few rows than for many.
_LOCAL_ROWS = (3, 70)
_PROMPT_TOKENS = 8
_GREEDY_TOKENS = 8
# Steps that between them launch every kernel of a model.
_SERVED: list[Step] = [*rows_only(1, 3, 6, 20), [Span(1), Span(1), Span(1)]]


def check_parity(model: Model, level: Parity, kv_type: str) -> None:
    """Compare the device in use with the scalar tier, byte for byte.

    Args:
        model: With its weights packed.
        level: ``quick``: one op of each kind and shape in the model's graph, on slices of its
            weights; on a GPU also attention with the ops that it joins, in steps of several
            sequences and long contexts that are replayed, and the search for the largest logits.
            ``full``: besides, a greedy decode of 8 tokens after a prompt of 8, or a pass of a model
            that does not generate, which takes as long as the scalar tier does. ``off``: nothing.
        kv_type: Of the decode, and of what a GPU joins with attention.

    Raises:
        ParityError: An op gives other bytes; it is named.
    """
    if level == "off" or all(device.tier == DEFINITION for device, _ in model.stages):
        return
    definition = defining(model.device)
    for device, graph in model.stages:
        if isinstance(device, _core.GpuDevice):
            different = _compare_as_served(model, graph, device, definition, kv_type)
        else:
            different = compare_ops(graph, device, definition)
        if different:
            raise ParityError(_sentence(device, ", ".join(sorted(set(different)))))
    if level == "full":
        compare = _compare_decoding if model.config.generates else _compare_states
        compare(model, definition, kv_type)


def defining(device: Device) -> _core.CpuDevice:
    """Return the scalar tier, with what a device can lend it."""
    if isinstance(device, _core.CpuDevice):
        return device.with_tier(DEFINITION)
    return _core.CpuDevice(device.threads, DEFINITION)


def compare_ops(
    graph: _core.Graph, device: Device, definition: Device, kernels: set[str] | None = None
) -> list[str]:
    """Return names of the graph's ops that give other bytes on one device than on another; [] if none do.

    Each op is compiled for both, alone, and reads the same random inputs.

    Args:
        graph: Whose ops are compared.
        device: To compare.
        definition: With what.
        kernels: Takes the names of the kernels that a GPU launches.
    """
    different = []
    row_counts = GPU_ROW_COUNTS if isinstance(device, _core.GpuDevice) else _ROW_COUNTS
    for name, op, inputs in graph.isolated():
        ones = [(d, d.compile(op)) for d in (device, definition)]
        keep_kernel_names(ones[0][1])
        if "attend" in op.ops:
            for kv_type in _core.KV_TYPES:
                if not _same(op, ones, inputs, _ATTENTION_ROWS, kv_type, _ATTENTION_FIRST):
                    different.append(f"attention, {kv_type} cache")
        else:
            counts = _LOCAL_ROWS if "attend_local" in op.ops else row_counts
            if not all([_same(op, ones, inputs, rows, _core.KV_TYPES[0]) for rows in counts]):
                different.append(name)
        if kernels is not None:
            kernels |= kernel_names(ones[0][1])
    return different


def _compare_as_served(
    model: Model, graph: _core.Graph, device: Device, definition: Device, kv_type: str
) -> list[str]:
    """Return what differs of a part of a model on a GPU, where ops are joined and steps replayed.

    Kernels that the part launches and that nothing has compared are in it by their names.
    """
    kernels: set[str] = set()
    different = compare_ops(graph, device, definition, kernels)
    attending = [(name, op) for name, op, _ in graph.isolated() if "attend" in op.ops]
    for name, op in attending:
        differ, launched = compare_steps(op, device, definition, kv_type, DECODING)
        kernels |= launched
        different += [f"{name} over long contexts"] if differ else []
    for shape in _head_shapes([op for _, op in attending]) if "rope" in graph.ops else ():
        for norms, limited in product((True, False), repeat=2):
            joined = graph_of(heads_of(*shape, norms=norms, limited=limited))
            differ, launched = compare_steps(joined, device, definition, kv_type, LONG_DECODING)
            kernels |= launched
            different += ["attention with what is joined with it"] if differ else []
    if model.config.generates:
        if compare_top(device, definition):
            different += ["the search for the largest values"]
        unseen = _launched(graph, device, kv_type) - kernels
        different += [f"the kernel {kernel}, which nothing compares" for kernel in unseen]
    return different


def _launched(graph: _core.Graph, device: Device, kv_type: str) -> set[str]:
    """Return the kernels of a GPU that steps of a whole graph launch."""
    maker = StepMaker(graph, _SERVED)
    executable = device.compile(graph)
    keep_kernel_names(executable)
    layers, entries = graph.paged_layers, graph.slot_entries
    pools = [device.make_pages(layers, kv_type, maker.pages)] if layers else []
    slots = device.make_slots(entries, maker.sequences) if entries else None
    for step in _SERVED:
        executable.run(maker.step(step), pools, slots)
    return kernel_names(executable)


def _head_shapes(attending: list[_core.Graph]) -> set[tuple[int, int, int]]:
    """Return heads of queries, heads of keys, and their dims, of attention that joins rotated heads."""
    shapes = set()
    for op in attending:
        for layer in op.paged_layers:
            heads, rest = divmod(op.results[0][2], layer.value_dim)
            whole = rest == 0 and heads % layer.kv_heads == 0
            if whole and layer.key_dim == layer.value_dim and layer.key_dim % 2 == 0:
                shapes.add((heads, layer.kv_heads, layer.key_dim))
    return shapes


def _same(
    graph: _core.Graph,
    executables: list[tuple[Device, Executable]],
    inputs: list[tuple[str, int, int]],
    rows: int,
    kv_type: str,
    first: int = 0,
) -> bool:
    """Return whether all executables of a graph give the same bytes, over state of their own.

    Attention reads zeros for the positions before ``first``.
    """
    random = np.random.default_rng(rows)
    batch = _core.Batch()
    pages = list(range(-(-(first + rows) // _core.PAGE_POSITIONS)))
    tokens = list(range(rows)) if "embed" in graph.ops else []
    add = batch.add if tokens else batch.add_span
    add(tokens or rows, first=first, pages=pages, outputs=rows)  # type: ignore[arg-type]
    if graph.position_axes:
        batch.set_positions(random.integers(0, 4000, (rows, graph.position_axes)).astype(np.int32))
    for name, per_token, cols in inputs:
        batch.set_input(name, random_activations(random, rows * per_token, cols))
    results = []
    for device, executable in executables:
        paged, entries = graph.paged_layers, graph.slot_entries
        pools = [device.make_pages(paged, kv_type, len(pages))] if paged else []
        for pool in pools:
            for page in pages:
                pool.write(page, bytes(pool.page_bytes))
        slots = device.make_slots(entries, 1) if entries else None
        results.append(executable.run(batch, pools, slots))
    wanted, *others = ({k: v.tobytes() for k, v in r.items()} for r in results)
    return all(other == wanted for other in others)


def _sentence(device: Device, what: str) -> str:
    if isinstance(device, _core.CpuDevice):
        which, without = f"the tier {device.tier}", "Set OXIBONSAI_ISA=scalar"
    else:
        which, without = f"the device {device.name} ({device.tier})", "Choose --device cpu"
    return (
        f"{which} gives other results than the definition on this machine: {what}. {without} to run "
        "without it, and please report it"
    )


def _compare_states(model: Model, definition: Device, kv_type: str) -> None:
    """Compare one pass up to the hidden states of all tokens."""
    paged = model.graph.paged_layers
    tokens = [i * 7919 % model.config.vocab_size for i in range(_PROMPT_TOKENS)]
    batch = _core.Batch()
    batch.add(tokens, pages=[0], outputs=len(tokens))
    if (types := model.config.token_types) > 1:
        rows = np.eye(types, dtype=np.float32)
        batch.set_input(TOKEN_TYPES, rows[np.arange(len(tokens)) % types])
    results = []
    for device, executable in (
        (model.device, model.program(model.main_pass)),
        (definition, definition.compile(model.graph)),
    ):
        pools = [device.make_pages(paged, kv_type, 1)] if paged else []
        results.append(executable.run(batch, pools)["hidden"].tobytes())
    if results[0] != results[1]:
        raise ParityError(_sentence(model.device, "the hidden states of a pass"))


def _compare_decoding(model: Model, definition: Device, kv_type: str) -> None:
    executables = [model.program(model.main_pass), definition.compile(model.graph)]
    devices = model.device, definition
    paged, recurrent = model.graph.paged_layers, model.graph.slot_entries
    pools = [[d.make_pages(paged, kv_type, 1)] if paged else [] for d in devices]
    slots = [d.make_slots(recurrent, 1) if recurrent else None for d in devices]
    tokens = [i * 7919 % model.config.vocab_size for i in range(_PROMPT_TOKENS)]
    position = 0
    for step in range(_GREEDY_TOKENS + 1):
        batch = _core.Batch()
        batch.add(tokens, first=position, pages=[0], outputs=1)
        runs = zip(executables, pools, slots, strict=True)
        first, second = (e.run(batch, p, s)["logits"] for e, p, s in runs)
        if first.tobytes() != second.tobytes():
            raise ParityError(
                _sentence(model.device, f"the logits of step {step} of a greedy decode")
            )
        position += len(tokens)
        tokens = [int(_core.argmax(first[0]))]
