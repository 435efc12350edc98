"""Choose a type for each matrix by what it costs the model's predictions, within a number of bits.

Mixes of types are proposed by a prediction and chosen by measurement. What a type costs is predicted
to be the mean square error of the matrix's output, of inputs that don't go together, times a
sensitivity. At first the error counts in units of the output's own mean square. Then sensitivities
are measured in the best mix so far, as the Kullback-Leibler divergence of the model's predictions that
the rounding of the matrices of one role in a quarter of the layers adds, for each unit of their errors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oxibonsai import _core
from oxibonsai.calibrate.measured_mixes import MeasuredMixes
from oxibonsai.calibrate.second_moments import diagonal_factor
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.step_progress import StepProgress
from oxibonsai.models import Model
from oxibonsai.quantize import Plan
from oxibonsai.quantize.blocks import Bytes, Floats, Matrix, finite_rows
from oxibonsai.quantize.importance import ImportanceMatrix, importance_for
from oxibonsai.quantize.type_choice import Tensor, is_matrix, layer_of
from oxibonsai.quantize.weight_types import type_named

# Types that llama.cpp reads too, and that take feedback; where several have the same bits, the one
# of the least error is chosen.
CANDIDATES = (
    "Q2_0_g64", "IQ2_XXS", "IQ2_S", "Q2_K", "IQ3_XXS", "IQ3_S", "Q3_K", "IQ4_XS", "IQ4_NL", "Q4_K",
    "Q5_0", "Q5_K", "Q6_K",
)  # fmt: skip

_SAMPLE_ROWS = 32  # of each matrix, to measure its error in every type
_PARTS = 4  # of the layers, each with sensitivities of its own
_ROUNDS = 2  # of sensitivities that are measured in a mix
_MEASURED_WINDOWS, _MEASURED_TOKENS = 2, 256
# Of the first sensitivities, that measured ones are no less: a difference of two divergences may be
# anything.
_LEAST_SHARE = 0.1

_TINY = 1e-30  # outputs that are all zero have no size
_ROUNDING = 1e-12  # of bits that were computed from sizes: what they allow are those sizes

Sensitivities = dict[str, float]  # by the tensors' names


@dataclass(frozen=True)
class TypeChoices:
    """The types that were chosen.

    Attributes:
        types: By the tensors' names.
        bits: Of a weight, over these tensors.
    """

    types: Mapping[str, str]
    bits: float


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
    imatrix: ImportanceMatrix,
    windows: Sequence[Sequence[int]],
    target_bits: float,
    *,
    fixed: Callable[[Tensor], bool],
    feedback: bool,
    threads: int,
    progress: StepProgress,
) -> TypeChoices:
    """Choose types for the matrices of a model's layers.

    Args:
        model: The source of the plan, loaded.
        kv_type: Of cached keys and values; None: it keeps none.
        plan: Its tensors; where its own types take no more bits, they are one of the mixes measured.
        imatrix: The importance of columns. Tensors that it has no entry for are left to the plan.
        windows: Token ids of the calibration text, all windows of one length.
        target_bits: Of a weight at most, on average over the matrices that a type is chosen for.
        fixed: Whether the type of a tensor is chosen already.
        feedback: Whether the matrices will be encoded with feedback. They are measured with the same
            fits of scales, but without what columns make up for each other.
        threads: Share out the rows.
        progress: Told after each tensor and each measured group.

    Raises:
        RequestError: Not even the smallest types are that small.
        FormatError: The importance matrix is of another model, or a weight is not finite.
    """
    matrices = _free_matrices(plan, imatrix, fixed, feedback)
    weights = {name: matrix.weights for name, matrix in matrices.items()}
    own = _own_types(plan, weights)
    start = [own] if own.bits <= target_bits * (1 + _ROUNDING) else []
    errors: dict[str, dict[str, float]] = {}
    first: Sensitivities = {}
    for name, matrix in matrices.items():
        errors[name] = matrix.errors([mix.types[name] for mix in start], threads)
        first[name] = 1.0 / max(matrix.output_power(), _TINY)
        progress(len(errors), len(matrices), name)

    def propose(sensitivities: Sensitivities) -> TypeChoices:
        options = {
            name: [
                Option(t, type_named(t).size(weights[name]), error * sensitivities[name])
                for t, error in found.items()
            ]
            for name, found in errors.items()
        }
        return best_within(options, sum(weights.values()), target_bits)

    start.append(propose(first))  # refuses too few bits before anything is measured
    mixes = MeasuredMixes(
        model,
        kv_type,
        [window[:_MEASURED_TOKENS] for window in windows[:_MEASURED_WINDOWS]],
        lambda name, kind: matrices[name].encode(kind, threads),
    )
    return _Search(mixes, errors, first, propose, progress).run(start)


class _Search:
    """Looks for the mix of the least measured divergence.

    Args:
        mixes: Measures.
        errors: Of each matrix in each type that may be proposed for it.
        first: Sensitivities, up to a common factor, before any is measured.
        propose: Returns the best mix that fits, as far as sensitivities tell.
        progress: Told after each measured group.
    """

    def __init__(
        self,
        mixes: MeasuredMixes,
        errors: Mapping[str, Mapping[str, float]],
        first: Sensitivities,
        propose: Callable[[Sensitivities], TypeChoices],
        progress: StepProgress,
    ) -> None:
        self._mixes, self._errors, self._first = mixes, errors, first
        self._propose, self._progress = propose, progress
        self._groups = _groups(list(errors))
        self._done = 0

    def run(self, start: Sequence[TypeChoices]) -> TypeChoices:
        """Return the best of some mixes and those that are proposed from there on."""
        least, best = self._least(start)
        for _ in range(_ROUNDS):
            found = self._within(best.types, least)
            between = {name: math.sqrt(s * self._first[name]) for name, s in found.items()}
            divergence, mix = self._least([self._propose(found), self._propose(between)])
            if divergence >= least:
                break
            least, best = divergence, mix
        return best

    def _within(self, types: Mapping[str, str], divergence: float) -> Sensitivities:
        """Return sensitivities by taking back the rounding of one group at a time."""
        # What the first ones are to be multiplied with to add up to the whole.
        total = math.fsum(self._errors[n][t] * self._first[n] for n, t in types.items())
        share = divergence / total if total > 0.0 else 0.0
        found: Sensitivities = {}
        for group in self._groups:
            others = {name: kind for name, kind in types.items() if name not in group}
            added = divergence - self._mixes.divergence(others)
            error = math.fsum(self._errors[name][types[name]] for name in group)
            measured = added / error if error > 0.0 else 0.0
            for name in group:
                found[name] = max(measured, _LEAST_SHARE * share * self._first[name])
            self._done += 1
            self._progress(self._done, len(self._groups) * _ROUNDS, group[0])
        return found

    def _least(self, candidates: Sequence[TypeChoices]) -> tuple[float, TypeChoices]:
        measured = [self._mixes.divergence(candidate.types) for candidate in candidates]
        at = int(np.argmin(measured))
        return measured[at], candidates[at]


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
    budget = math.floor(target_bits * weights / 8 * (1 + _ROUNDING))
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
    return TypeChoices({n: o.type_name for n, o in taken.items()}, used * 8 / weights)


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


@dataclass(frozen=True)
class _FreeMatrix:
    """A matrix that a type is chosen for.

    Attributes:
        matrix: Its values.
        importance: Of its columns.
        feedback: Whether its scales are fitted as they are with feedback.
    """

    matrix: Matrix
    importance: Floats
    feedback: bool

    @property
    def weights(self) -> int:
        """Return their number."""
        return self.matrix.rows * self.matrix.cols

    def encode(self, kind: str, threads: int) -> Bytes:
        """Return the blocks of a type, [rows, bytes of a row]."""
        return self._encode(finite_rows(self.matrix, 0, self.matrix.rows), kind, threads)

    def errors(self, others: Sequence[str], threads: int) -> dict[str, float]:
        """Return the mean square errors of an output of the matrix, as some of its rows have them.

        Args:
            others: Types beside the candidates.
            threads: Share out the rows.
        """
        rows = self._sample()
        found = {}
        for kind in dict.fromkeys([*_candidates(self.matrix.cols), *others]):
            decoded = _core.decode(kind, self._encode(rows, kind, threads).reshape(-1))
            found[kind] = self._power(decoded.reshape(rows.shape) - rows)
        return found

    def output_power(self) -> float:
        """Return the mean square of an output of the matrix, as some of its rows have it."""
        return self._power(self._sample())

    def _power(self, rows: Floats) -> float:
        return float((np.square(rows) @ self.importance).mean(dtype=np.float64))

    def _sample(self) -> Floats:
        values = finite_rows(self.matrix, 0, self.matrix.rows)
        return values[:: -(-len(values) // _SAMPLE_ROWS)]

    def _encode(self, values: Floats, kind: str, threads: int) -> Bytes:
        try:
            if self.feedback and _core.takes_feedback(kind):
                factor = diagonal_factor(self.importance)
                return _core.encode_with_feedback(values, kind, factor, threads)
            return _core.encode(values, kind, self.importance, threads)
        except FormatError as e:
            raise FormatError(f"{self.matrix.where}: {e}") from e


def _free_matrices(
    plan: Plan, imatrix: ImportanceMatrix, fixed: Callable[[Tensor], bool], feedback: bool
) -> dict[str, _FreeMatrix]:
    found: dict[str, _FreeMatrix] = {}
    for choice in plan.choices:
        tensor = choice.tensor
        if not _is_free(tensor) or fixed(tensor):
            continue
        importance = importance_for(tensor, imatrix)
        if importance is not None:
            found[tensor.name] = _FreeMatrix(plan.matrix(choice), importance, feedback)
    return found


def _is_free(tensor: Tensor) -> bool:
    matrix = is_matrix(tensor) and len(tensor.shape) == 2 and layer_of(tensor.name) is not None
    return matrix and bool(_candidates(tensor.shape[1]))


def _candidates(cols: int) -> list[str]:
    """Return the types whose groups divide so many columns."""
    return [name for name in CANDIDATES if cols % type_named(name).group == 0]


def _own_types(plan: Plan, weights: Mapping[str, int]) -> TypeChoices:
    """Return the plan's own types of some tensors."""
    own = [c for c in plan.choices if c.tensor.name in weights]
    bits = 8 * sum(c.nbytes for c in own) / max(1, sum(weights.values()))
    return TypeChoices({c.tensor.name: c.type.name for c in own}, bits)


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Return the matrices of each role in each part of the layers."""
    layer = {name: layer_of(name) or 0 for name in names}
    layers = sorted(set(layer.values()))
    part_of = {number: i * _PARTS // len(layers) for i, number in enumerate(layers)}
    groups: dict[tuple[str, int], list[str]] = {}
    for name in names:
        role = name.removesuffix(".weight").rpartition(".")[2]
        groups.setdefault((role, part_of[layer[name]]), []).append(name)
    return list(groups.values())
