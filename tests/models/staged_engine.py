"""Our engine over a Bonsai 2 of which a few layers at a time are in memory, as floats.

The values of a PQ2_0 file are written in float16, which holds them exactly, and the layers then compute in
float32. A stage is a file with some of the layers; it reads the states that the one before it gave.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from bonsai2_models import IDS, Bonsai2, Floats

import gguf_copy
import make_random_bonsai as maker
import oxibonsai
from oxibonsai import _core
from oxibonsai.devices import default_threads
from oxibonsai.loading import open_model
from oxibonsai.models.layer_states import LayerStateBuilder, NamedVectors
from oxibonsai.quantize import quantize

_STATES, _LOGITS = "states", "logits"


class _StageBuilder(LayerStateBuilder):
    """Reads states in place of the tokens' embeddings, where images would be inserted."""

    def images(self, h: Any, part: int = 0, *, added: bool = False) -> Any:
        """Return the states of all tokens."""
        return self.input(_STATES, h.cols)


def logits_in_stages(model: Bonsai2, folder: Path, positions: slice) -> Floats:
    """Return logits at some positions; of the first stage the embeddings are the engine's, too."""
    states: Floats | None = None
    starts = range(0, model.layers, maker.INTERVAL)
    for first in starts:
        is_last = first == starts[-1]
        path = _write_stage(model, first, is_last, folder / "stage.gguf")
        states = _run(path, states, is_last)
    assert states is not None
    return states[positions]


def _write_stage(model: Bonsai2, first: int, is_last: bool, path: Path) -> Path:
    """Write the layers from ``first`` on, up to the next one that attends."""
    count = maker.INTERVAL
    names = {}
    for tensor in model.file.tensors:
        found = re.fullmatch(r"blk\.(\d+)\.(.*)", tensor.name)
        if found is None:
            names[tensor.name] = tensor.name
        elif first <= int(found[1]) < first + count:
            names[tensor.name] = f"blk.{int(found[1]) - first}.{found[2]}"
    rotated = [n for n in model.file.get("prism.hadamard.weight_names") if n in names]
    packed = path.with_name("packed.gguf")
    gguf_copy.copy(
        model.path, packed, only=set(names), names=names,
        keys={
            "qwen35.block_count": (count, "u32"),
            "prism.hadamard.weight_names": ([names[n] for n in rotated], "arr[str]"),
        },
    )  # fmt: skip
    # A head is computed with in the last stage only.
    kept = ["output"] if not model.size.tied else []
    kept = ([] if is_last else kept) + ([] if is_last and model.size.tied else ["token_embd"])
    patterns = [(rf"^{name}\.", "PQ2_0") for name in kept]
    patterns += [(rf"\.{name}", "F32") for name in maker.UNROTATED]
    quantize(open_model(packed).file, path, "F16", patterns=patterns, threads=default_threads())
    packed.unlink()
    return path


def _run(path: Path, states: Floats | None, is_last: bool) -> Floats:
    """Return the logits of the last stage, or what layers of another one give."""
    engine = oxibonsai.load(path, kv_type="f32", parity="off", ctx_size=64, parallel=1)
    model = engine.model
    c, layers = model.config, model.config.num_hidden_layers
    weights: Any = NamedVectors(model.weights)
    make = LayerStateBuilder if states is None else _StageBuilder
    builder = make(weights, layers, c.hadamard)
    h = model.family.hidden_states(builder, c.of_family, weights)
    final = model.family.final_norm(builder, c.of_family, weights, h)
    if is_last:
        builder.output(_LOGITS, model._logits(builder, builder.select_outputs(final)))
    else:
        builder.output(_STATES, builder.layer_input(f"layer.{layers}"))
    batch = _core.Batch()
    batch.add(IDS, pages=[0], slot=0, outputs=len(IDS))
    if states is not None:
        batch.set_input(_STATES, np.ascontiguousarray(states))
    program = model.device.compile(builder.graph)
    found = program.run(batch, [model.new_pages("f32", 1)], model.new_slots(1))
    result: Floats = found[_LOGITS if is_last else _STATES].copy()
    engine.close()
    return result
