"""Choose a type for each matrix by what it costs the model's predictions, within a number of bits.

What a matrix costs is predicted: the mean square error of its layer's output, which the second moments
of the layer's inputs give for every type, times a sensitivity that is measured. For that, all
matrices of one role in a quarter of the layers are rounded at once, and the Kullback-Leibler
divergence of the model's predictions is divided by the sum of their errors: for small errors it grows
as their squares do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.calibrate.second_moments import Doubles, SecondMoments, collect_moments
from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine.windows import read_windows
from oxibonsai.errors import RequestError
from oxibonsai.files.step_progress import StepProgress
from oxibonsai.models import Model
from oxibonsai.quantize import Plan
from oxibonsai.quantize.blocks import Bytes, Floats
from oxibonsai.quantize.type_choice import Choice, Tensor, is_matrix, layer_of
from oxibonsai.quantize.weight_types import type_named

# Types that llama.cpp reads too, and that take feedback; where several have the same bits, the one
# of the least error is chosen.
CANDIDATES = (
    "Q2_0_g64", "IQ2_XXS", "IQ2_S", "Q2_K", "IQ3_XXS", "IQ3_S", "Q3_K", "IQ4_XS", "IQ4_NL", "Q4_K",
    "Q5_0", "Q5_K", "Q6_K",
)  # fmt: skip

_SAMPLE_ROWS = 64  # of each matrix, to measure its error in every type
_PARTS = 4  # of the layers, each with sensitivities of its own
_MEASURED_WINDOWS, _MEASURED_TOKENS = 2, 256

LogProbs = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TypeChoices:
    """The types that were chosen.

    Attributes:
        types: By the tensors' names.
        bits: Of a weight, over these tensors.
        divergence: What the choice is predicted to cost, nats a token.
    """

    types: Mapping[str, str]
    bits: float
    divergence: float


@dataclass(frozen=True)
class Option:
    """One type of one matrix: its size, and what it is predicted to cost."""

    type_name: str
    nbytes: int
    cost: float


def choose_types(
    model: Model,
    kv_type: str | None,
    plan: Plan,
    windows: Sequence[Sequence[int]],
    target_bits: float,
    *,
    fixed: Callable[[Tensor], bool],
    layers_at_once: int,
    threads: int,
    progress: StepProgress,
) -> TypeChoices:
    """Choose types for the matrices of a model's layers.

    Args:
        model: The source of the plan, loaded.
        kv_type: Of cached keys and values; None: it keeps none.
        plan: Its tensors.
        windows: Token ids of the calibration text, all windows of one length.
        target_bits: Of a weight at most, on average over the matrices that a type is chosen for.
        fixed: Whether the type of a tensor is chosen already.
        layers_at_once: Layers whose inputs are collected in one pass over the text.
        threads: Share out the rows.
        progress: Told after each tensor and each measured role.

    Raises:
        RequestError: Not even the smallest types are that small.
    """
    chosen = [c for c in plan.choices if _is_free(c.tensor) and not fixed(c.tensor)]
    measured = _measure(
        model, kv_type, plan, chosen, windows, target_bits, layers_at_once, progress
    )
    free = [c for c in chosen if c.tensor.name in measured]
    sensitivities = _sensitivities(model, kv_type, plan, free, measured, windows, threads, progress)
    options = {
        c.tensor.name: [
            Option(t, type_named(t).size(c.tensor.count), e * sensitivities[c.tensor.name])
            for t, e in measured[c.tensor.name].errors.items()
        ]
        for c in free
    }
    count = sum(c.tensor.count for c in free)
    return best_within(options, count, target_bits)


def best_within(
    options: Mapping[str, Sequence[Option]], weights: int, target_bits: float
) -> TypeChoices:
    """Return the types of the least cost in so many bits.

    From the smallest types on, the step that saves most for each byte is taken next, of steps along
    the lower hull of each matrix's sizes and costs, until the next does not fit.

    Args:
        options: By the tensors' names.
        weights: Of all tensors.
        target_bits: Of a weight, on average.

    Raises:
        RequestError: Not even the smallest types are that small.
    """
    if not options:
        raise RequestError("the model has no matrices for which a type could be chosen")
    budget = math.floor(target_bits * weights / 8)
    hulls = {name: _lower_hull(found) for name, found in options.items()}
    at = dict.fromkeys(hulls, 0)
    used = sum(hull[0].nbytes for hull in hulls.values())
    if used > budget:
        raise RequestError(
            f"{target_bits:g} bits a weight are less than the smallest types take, which are "
            f"{used * 8 / weights:.2f}: ask for more"
        )
    steps = sorted(
        (-(low.cost - high.cost) / (high.nbytes - low.nbytes), name, i)
        for name, hull in hulls.items()
        for i, (low, high) in enumerate(itertools.pairwise(hull), 1)
    )
    for _, name, i in steps:
        grown = hulls[name][i].nbytes - hulls[name][at[name]].nbytes
        # A hull's steps come in their order; behind one that does not fit, its later ones wait too.
        if at[name] == i - 1 and used + grown <= budget:
            used += grown
            at[name] = i
    taken = {name: hull[at[name]] for name, hull in hulls.items()}
    cost = math.fsum(option.cost for option in taken.values())
    return TypeChoices({n: o.type_name for n, o in taken.items()}, used * 8 / weights, cost)


def _lower_hull(options: Sequence[Option]) -> list[Option]:
    """Return the options that are best for some price of a byte, the smallest first."""
    hull: list[Option] = []
    for option in sorted(options, key=lambda o: (o.nbytes, o.cost, o.type_name)):
        if hull and option.cost >= hull[-1].cost:
            continue
        while len(hull) > 1 and _saving(hull[-1], option) >= _saving(hull[-2], hull[-1]):
            hull.pop()
        hull.append(option)
    return hull


def _saving(low: Option, high: Option) -> float:
    return (low.cost - high.cost) / (high.nbytes - low.nbytes)


def _is_free(tensor: Tensor) -> bool:
    matrix = is_matrix(tensor) and len(tensor.shape) == 2 and layer_of(tensor.name) is not None
    return matrix and bool(_candidates(tensor.shape[1]))


def _candidates(cols: int) -> list[str]:
    """Return the types whose groups divide so many columns."""
    return [name for name in CANDIDATES if cols % type_named(name).group == 0]


@dataclass(frozen=True)
class Measured:
    """Measurements of a matrix.

    Attributes:
        errors: Mean square errors of its output with feedback, by type.
        probe: The type that its sensitivity is measured with, without feedback.
        probe_error: The mean square error with it.
        importance: Of its columns.
    """

    errors: Mapping[str, float]
    probe: str
    probe_error: float
    importance: Floats


def _measure(
    model: Model,
    kv_type: str | None,
    plan: Plan,
    chosen: Sequence[Choice],
    windows: Sequence[Sequence[int]],
    target_bits: float,
    layers_at_once: int,
    progress: StepProgress,
) -> dict[str, Measured]:
    """Return what each matrix that a linear layer multiplies with loses in each type."""
    layers = sorted({_layer(c) for c in chosen})
    found: dict[str, Measured] = {}
    for first in range(0, len(layers), layers_at_once):
        numbers = set(layers[first : first + layers_at_once])
        part = [c for c in chosen if _layer(c) in numbers]
        moments = collect_moments(model, kv_type, windows, [c.tensor.name for c in part])
        factors: dict[int, Floats] = {}
        for choice in part:
            name = choice.tensor.name
            progress(len(found), len(chosen), name)
            if name not in moments:
                continue
            read = moments[name]
            if id(read) not in factors:
                factors[id(read)] = read.feedback_factor()
            found[name] = _measured(plan, choice, read, factors[id(read)], target_bits)
    return found


def _layer(choice: Choice) -> int:
    return layer_of(choice.tensor.name) or 0


def _measured(
    plan: Plan, choice: Choice, moments: SecondMoments, factor: Floats, target_bits: float
) -> Measured:
    matrix, means = plan.matrix(choice), moments.means()
    rows = matrix.read(0, matrix.rows)[:: max(1, matrix.rows // _SAMPLE_ROWS)]
    share = matrix.rows / len(rows)
    importance = np.einsum("ii->i", means).astype(np.float32)
    types = _candidates(matrix.cols)
    probe = min(types, key=lambda n: abs(type_named(n).bits - target_bits))
    errors = {}
    for name in types:
        blocks = _core.encode_with_feedback(rows, name, factor)
        errors[name] = share * _output_error(rows, blocks, name, means)
    plain = _core.encode(rows, probe, importance)
    return Measured(errors, probe, share * _output_error(rows, plain, probe, means), importance)


def _output_error(rows: Floats, blocks: Bytes, type_name: str, means: Doubles) -> float:
    difference = rows - _core.decode(type_name, blocks.reshape(-1)).reshape(rows.shape)
    return float(np.einsum("ij,ij->", difference @ means, difference))


def _sensitivities(
    model: Model,
    kv_type: str | None,
    plan: Plan,
    free: Sequence[Choice],
    measured: Mapping[str, Measured],
    windows: Sequence[Sequence[int]],
    threads: int,
    progress: StepProgress,
) -> dict[str, float]:
    """Return each matrix's divergence for each unit of its output's error, by its name."""
    read = [window[:_MEASURED_TOKENS] for window in windows[:_MEASURED_WINDOWS]]
    base = _log_probs(model, kv_type, read)
    layers = sorted({_layer(c) for c in free})
    part_of = {layer: i * _PARTS // len(layers) for i, layer in enumerate(layers)}
    groups: dict[tuple[str, int], list[Choice]] = {}
    for choice in free:
        groups.setdefault((choice.tensor.role, part_of[_layer(choice)]), []).append(choice)
    found: dict[str, float] = {}
    for done, ((role, _), group) in enumerate(sorted(groups.items()), 1):
        names = [c.tensor.name for c in group]
        rounded = {
            c.tensor.name: _rounded(plan, c, measured[c.tensor.name], threads) for c in group
        }
        divergence = _divergence(base, _log_probs(model.with_matrices(rounded), kv_type, read))
        total = math.fsum(measured[name].probe_error for name in names)
        found |= dict.fromkeys(names, divergence / total if total > 0.0 else 0.0)
        progress(done, len(groups), role)
    return found


def _rounded(plan: Plan, choice: Choice, measured: Measured, threads: int) -> _core.Weight:
    matrix = plan.matrix(choice)
    values = matrix.read(0, matrix.rows)
    blocks = _core.encode(values, measured.probe, measured.importance, threads)
    return _core.Weight.from_blocks(choice.tensor.name, measured.probe, blocks, matrix.cols)


def _log_probs(
    model: Model, kv_type: str | None, windows: Sequence[Sequence[int]]
) -> list[LogProbs]:
    """Return the model's log-probabilities of all tokens at each place, by steps."""
    program = model.program(model.main_pass)
    (name,) = model.main_pass.outputs

    def run(batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None) -> LogProbs:
        logits: LogProbs = program.run(batch, pools, slots)[name]
        shifted = logits - logits.max(axis=1, keepdims=True)
        sums: LogProbs = np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float32)
        found: LogProbs = shifted - np.log(sums)
        return found

    read = read_windows(model, kv_type, windows, run, outputs=True)
    return [step for steps in read for step in steps]


def _divergence(base: Sequence[LogProbs], other: Sequence[LogProbs]) -> float:
    """Return the mean Kullback-Leibler divergence of some steps' rows."""
    total, rows = 0.0, 0
    for p, q in zip(base, other, strict=True):
        total += float((np.exp(p) * (p - q)).sum(dtype=np.float64))
        rows += len(p)
    return total / rows
